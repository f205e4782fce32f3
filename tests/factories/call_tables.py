"""Tables of calls and of operations as the division of a program's time has them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from stallprobes.watch.division.instants import KERNEL, Calls, Operations


def call_table(
    begins: Any,
    ends: Any,
    kinds: Any = 0,
    *,
    thread: Any = 1,
    contexts: Any = 1,
    correlations: Any = 0,
    functions: Any = 0,
    holds: Any = 0,
) -> Calls:
    """Calls from ``begins`` to ``ends`` (ns); a number stands for a column of that number."""
    columns = np.broadcast_arrays(begins, ends, thread, contexts, correlations, functions, kinds, holds)
    names = ("begins", "ends", "threads", "contexts", "correlations", "functions", "kinds", "holds")
    return Calls(**{name: np.array(column, np.int64) for name, column in zip(names, columns, strict=True)})


# Columns of flags.
_FLAGS = ("engine", "few", "pageable", "seen")


def operation_table(starts: Any, ends: Any, kinds: Any = KERNEL, **of: Any) -> Operations:
    """Operations of thread 1 from ``starts`` to ``ends`` (ns), without what is not given; a number stands for a column
    of that number."""
    values = {field.name: 0 for field in fields(Operations)} | {"threads": 1}
    values |= {"starts": starts, "ends": ends, "kinds": kinds, **of}
    columns = zip(values, np.broadcast_arrays(*values.values()), strict=True)
    return Operations(**{name: np.array(column, bool if name in _FLAGS else np.int64) for name, column in columns})
