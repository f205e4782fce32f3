"""Results that one process of a run of the tests computes for all of them."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

# Names the folder of a run of the tests. conftest.py makes and removes it.
VARIABLE = "STALLSCOPE_TESTS_KEPT"

Result = TypeVar("Result")


def kept(name: str, compute: Callable[[], Result]) -> Result:
    """What ``compute`` returns to the first process that asks for ``name``, as pickle keeps it."""
    with open(Path(os.environ[VARIABLE]) / name, "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if not (content := file.read()):
            content = pickle.dumps(compute())
            file.write(content)
            file.flush()
        result: Result = pickle.loads(content)
        return result
