"""CUDA backend: compiles programs to op tables of driver calls. Imported only in an engine process that uses a GPU.

It may import the rest of engine except engine.sim, and model and errors; cuda.bindings only in cuda.api."""
