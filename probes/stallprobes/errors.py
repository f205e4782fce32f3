"""Exceptions that cross package borders, and the exit codes of the process.

Every message is one sentence for the user: what is wrong and what to do. Exceptions that never leave their package are
defined where they are raised. This module imports nothing. ``reason_of`` and ``kind_and_text`` are for errors of other
origin, which need not have a text.
"""

from __future__ import annotations

# Exit code of the process for invalid usage, and for a file that cannot be read or written. The command line (class
# ExitCode) defines the codes 1, 5 and 130.
EXIT_USAGE = 2
# Exit code of the process when no usable GPU was found.
EXIT_NO_GPU = 3
# Exit code of the process when the engine, the GPU or stallscope itself failed, or when the machine lacks something
# that a probe needs.
EXIT_ENGINE = 4


class StallprobesError(Exception):
    """Base class of the exceptions of this module. ``exit_code`` (EXIT_*) is that of a command that ends so."""

    exit_code = EXIT_USAGE


class Stopped(Exception):
    """A measurement ended early because its caller asked it to stop."""


class Unsupported(StallprobesError):
    """This machine, GPU or driver lacks something that a probe needs.

    ``reason`` is a clause without a full stop. ``probes`` are the names of the probes that need it, empty if unknown.
    """

    exit_code = EXIT_ENGINE

    def __init__(self, reason: str, *probes: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.probes = probes


class EngineError(StallprobesError):
    """An error that ends an engine.

    ``exit_code`` is the exit code of the process (EXIT_*), ``sentence`` the message for the user.
    """

    def __init__(self, exit_code: int, sentence: str) -> None:
        super().__init__(exit_code, sentence)
        self.exit_code = exit_code
        self.sentence = sentence

    def __str__(self) -> str:
        return self.sentence


class BackendError(EngineError):
    """Raised by a backend, inside the engine process, when it cannot continue."""


class NativeLibraryError(BackendError):
    """The native libraries of this installation are missing, damaged, or older than their sources."""

    def __init__(self, sentence: str) -> None:
        super().__init__(EXIT_ENGINE, sentence)


class EngineFailed(EngineError):
    """Raised by a session when its engine could not start or stopped with an error."""


class EngineLost(EngineFailed):
    """The engine process ended without being stopped. ``stderr_tail`` is the end of its stderr, "" if it is empty."""

    def __init__(self, sentence: str, stderr_tail: str) -> None:
        super().__init__(EXIT_ENGINE, sentence)
        self.stderr_tail = stderr_tail


class NoTimeline(EngineFailed):
    """The timeline was asked for and cannot be switched on; the message says why and what to do."""

    def __init__(self, sentence: str) -> None:
        super().__init__(EXIT_ENGINE, sentence)


class NoGpu(StallprobesError):
    """No usable GPU, or not the requested one; the message is one sentence."""

    exit_code = EXIT_NO_GPU


class NvmlUnavailable(StallprobesError):
    """NVML cannot be used; ``reason`` and ``remedy`` are each a sentence without a full stop."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


class UnknownName(StallprobesError):
    """No pattern, probe, context or stream has the name; the message is a sentence that proposes the nearest ones."""


class FileNotWritten(StallprobesError):
    """The file could not be written and nothing was changed on disk; the message is one sentence."""


class FileNotRead(StallprobesError):
    """The file that the user named cannot be read; the message is one sentence."""


class FileMissing(FileNotRead):
    """There is no such file."""


class FileReplaced(FileNotRead):
    """Another file got the name while the file was opened."""


class MalformedJson(StallprobesError):
    """The text is not JSON of the expected structure; the message is a clause that says where and what is wrong."""


class TruncatedJson(MalformedJson):
    """The text ends before its JSON value is complete."""


class OversizedData(StallprobesError):
    """The data exceed a limit of their reader; the message is a clause that says which."""


class DamagedData(StallprobesError):
    """The data cannot be decompressed; the message is a clause."""


class WatchError(StallprobesError):
    """A program cannot be watched, or what was recorded of it cannot be read; the message is one sentence."""


class BesideRefused(StallprobesError):
    """No aggressor may run beside a watched program; the message is one sentence, without a capital."""


class RecordingError(StallprobesError):
    """A recording cannot be read or written; the message is one sentence."""


class CheckFileError(StallprobesError):
    """A check cannot be read, written or merged; the message is one sentence: what is wrong, and what to do."""


class RunFileError(StallprobesError):
    """The file of watched runs cannot be read or written; the message is one sentence: what is wrong, what to do."""


class NotComparable(StallprobesError):
    """Two checks, or the runs of two programs, cannot be compared; the message is one sentence."""


class TimelinesDiffer(NotComparable):
    """One of two checks was made with the timeline, so that nothing makes them comparable."""


def reason_of(error: BaseException) -> str:
    """The reason that ``error`` gives, as a clause that is never empty: the system's words, its text, or its kind."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error).strip()
    if isinstance(error, MemoryError):
        return f"too little memory ({text})" if text else "too little memory"
    if isinstance(error, ValueError) and "embedded null" in text:
        # What path it is, and which function refused it, is said in front.
        return "embedded null byte"
    return text or f"an error of the kind {type(error).__name__}"


def kind_and_text(error: BaseException) -> str:
    """The kind of ``error``, and its text if it has one: for a defect, whose text alone says too little."""
    return f"{type(error).__name__}: {text}" if (text := str(error).strip()) else type(error).__name__
