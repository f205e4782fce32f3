"""What all tests share: tests marked ``gpu`` are skipped, with the reason, where there is no usable driver."""

from __future__ import annotations

import ctypes

import pytest


def _why_no_gpu() -> str | None:
    try:
        libcuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no NVIDIA driver: {error}"
    status = libcuda.cuInit(0)
    if status != 0:
        return f"cuInit answers {status}"
    count = ctypes.c_int(0)
    status = libcuda.cuDeviceGetCount(ctypes.byref(count))
    if status != 0 or count.value == 0:
        return f"cuDeviceGetCount answers {status} with {count.value} GPUs"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    reason = _why_no_gpu()
    if reason is not None:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))
