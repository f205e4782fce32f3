"""Console script ``stallscope``: handles SIGINT from its own import to the end of the process.

What no program can change: a SIGINT while Python itself starts, and until it imports this module, ends the process
without a message or with Python's own traceback.
"""

# The built-in module: ``signal`` itself takes milliseconds to import, and so do typing and the futures.
import _signal  # type: ignore[import-not-found]
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

# Exit code of an interrupted command: 128 and the number of SIGINT.
_INTERRUPTED = 130
# Environment variables that limit the number of threads of NumPy's linear algebra library. If the user has set none of
# these variables, stallscope sets the limit to 1 thread.
_BLAS_THREADS = {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"}


def _end_at_once(*_: object) -> "NoReturn":
    # No file is open yet, and a thread of a half-loaded module must not keep the process alive.
    try:
        os.write(2, b"stallscope: interrupted\n")
    finally:
        os._exit(_INTERRUPTED)


def _limit_blas_threads() -> None:
    """Let numpy's OpenBLAS start one thread, unless the user has set another number.

    It starts one for each core, and all of them spin for a while; nothing here multiplies matrices. An engine inherits
    the variable, a watched program does not: its environment is ``os.environ``.
    """
    if not os.environ.keys() & _BLAS_THREADS:
        os.putenv("OPENBLAS_NUM_THREADS", "1")


def main() -> "NoReturn":
    """Load and run the command line. Ends the process, with exit code 130 if interrupted."""
    _limit_blas_threads()
    from stallscope.cli.process import signals

    signals.end_at_sigint(_end_at_once)
    from stallscope.cli import main as command_line

    command_line.main()


# A SIGINT that is ignored (of a shell's background job) or handled otherwise stays so.
if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _end_at_once)
