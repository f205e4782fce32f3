"""The console script: the number of threads of numpy's linear algebra."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# The variable as the C library has it, and as a watched program gets it.
_PROGRAM = """
import ctypes, os
from stallscope.cli import entry
entry._limit_blas_threads()
get = ctypes.CDLL(None).getenv
get.restype = ctypes.c_char_p
print(get(b"OPENBLAS_NUM_THREADS"), os.environ.get("OPENBLAS_NUM_THREADS"))
"""


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, "b'1' None"),
        ({"OPENBLAS_NUM_THREADS": "3"}, "b'3' 3"),
        ({"OMP_NUM_THREADS": "3"}, "None None"),
    ],
)
def test_linear_algebra_has_one_thread_unless_the_user_has_set_another_number(
    given: dict[str, str], found: str
) -> None:
    known = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", _PROGRAM], env={**known, **given}, capture_output=True, check=True)
    assert done.stdout.decode().strip() == found
