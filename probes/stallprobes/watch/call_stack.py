"""Call stack of a call: the frames of the program's code that made it, innermost first."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

# Files of Python's own library and of installed packages.
_LIBRARY_FILE = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3\.\d+/|^<frozen ")
# Modules between a program's call and the driver, and functions of the CUDA runtime that a program may contain.
_CUDA_MODULE = re.compile(r"lib(?:cuda|cudart|cupti|nvToolsExt)\b.*\.so.*|inject(?:-[0-9a-f]+)?\.so")
_CUDA_FUNCTION = re.compile(r"(?:__)?cuda(?:rt)?[A-Z0-9_].*|libcudart_static_.*")


class FrameKind(StrEnum):
    """What a frame is of: Python code, or compiled code."""

    PYTHON = "python"
    NATIVE = "native"


@dataclass(frozen=True)
class StackFrame:
    """A frame of a call stack.

    ``function`` is "" if its name is not known. ``file`` is the source of Python code, the program or library of
    compiled code, "" if not known; ``line`` is None and ``offset`` (bytes from the begin of ``file`` as it is linked)
    has a value for compiled code only.
    """

    kind: FrameKind
    function: str
    file: str
    line: int | None = None
    offset: int | None = None

    @property
    def is_users(self) -> bool:
        """Whether it is of the program itself, not of Python's library, an installed package or CUDA."""
        if self.kind is FrameKind.PYTHON:
            return not _LIBRARY_FILE.search(self.file)
        return not self.is_cuda and not _CUDA_FUNCTION.fullmatch(self.function)

    @property
    def is_cuda(self) -> bool:
        """Whether it is of a library of CUDA's or of the injected one."""
        return self.kind is FrameKind.NATIVE and _CUDA_MODULE.fullmatch(os.path.basename(self.file)) is not None


@dataclass(frozen=True)
class CallStack:
    """The Python frames and the native frames of one thread at one call, each innermost first.

    ``complete``: neither has more frames than were recorded.
    """

    python: tuple[StackFrame, ...] = ()
    native: tuple[StackFrame, ...] = ()
    complete: bool = True

    @property
    def place(self) -> StackFrame | None:
        """The innermost frame of the program's own code: a Python frame where there are any; None without frames."""
        return _place(self.python) or _place(self.native)


def _place(frames: Iterable[StackFrame]) -> StackFrame | None:
    known = [frame for frame in frames if not frame.is_cuda]
    own = next((frame for frame in known if frame.is_users), None)
    return own or next(iter(known), None)
