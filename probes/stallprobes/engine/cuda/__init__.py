"""The CUDA side: programs become op tables of driver calls. Nothing here is imported unless a GPU is asked for."""
