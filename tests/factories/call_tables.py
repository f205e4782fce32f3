"""Tables of calls as the division of a program's time has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from stallprobes.watch.division.instants import Calls


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
