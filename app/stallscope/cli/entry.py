"""Where the command begins: an interrupt while its modules load ends it as one later on does."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

_INTERRUPTED = 130


def main() -> NoReturn:
    """Load the command line and run it; it ends the process."""
    try:
        from stallscope.cli.main import main
    except KeyboardInterrupt:
        # Nothing is open yet, and a thread of a half-loaded module must not keep the process.
        sys.stderr.write("stallscope: interrupted\n")
        sys.stderr.flush()
        os._exit(_INTERRUPTED)
    main()
