/* CUPTI includes this header of the CUDA runtime; the records need nothing of it. */
