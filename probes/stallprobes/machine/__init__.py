"""This machine: libcuda survey, NVML, GPUs, the processes on them, telemetry, fingerprint.

No CUDA context is created here. It may import files, model, units and errors.
"""
