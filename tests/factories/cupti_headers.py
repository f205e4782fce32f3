"""NVIDIA's headers of CUPTI, as far as they are installed."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest


def driver_functions() -> list[str]:
    """The functions of the driver that CUPTI knows."""
    return sorted(set(re.findall(r"CUPTI_DRIVER_TRACE_CBID_(cu[A-Z]\w*)", header("cupti_driver_cbid.h"))))


def header(name: str) -> str:
    """The text of one of CUPTI's headers."""
    return (headers() / name).read_text(encoding="utf-8", errors="replace")


def headers() -> Path:
    """The folder of CUPTI's headers: CUPTI_INCLUDE, or that of the installed package."""
    if os.environ.get("CUPTI_INCLUDE"):
        return Path(os.environ["CUPTI_INCLUDE"])
    spec = find_spec("nvidia")
    for place in () if spec is None else spec.submodule_search_locations or ():
        for found in Path(place).glob("*/include/cupti_driver_cbid.h"):
            return found.parent
    pytest.skip("no CUPTI headers")
