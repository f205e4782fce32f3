"""Console script ``stallscope``: handles SIGINT from the first imports to the end of the process.

What no program can change: a SIGINT while Python itself starts ends the process without a message in the first 40 ms or
so, and for some 5 ms after that with Python's own traceback. The import of this module is the last of these.
"""

from __future__ import annotations

import os
import sys

# Without typing: what is imported before ``main`` runs is interrupted with a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_INTERRUPTED = 130


def main() -> NoReturn:
    """Load and run the command line. Ends the process, with exit code 130 if interrupted."""
    try:
        from stallscope.cli import signals

        signals.end_at_sigint()
        from stallscope.cli import main as command_line
    except KeyboardInterrupt:
        # No file is open yet, and a thread of a half-loaded module must not keep the process alive.
        sys.stderr.write("stallscope: interrupted\n")
        sys.stderr.flush()
        os._exit(_INTERRUPTED)
    command_line.main()
