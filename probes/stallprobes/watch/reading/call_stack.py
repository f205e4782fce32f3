"""Call stack of a call: the frames of the program's code that made it, innermost first."""

from __future__ import annotations

import os.path
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from stallprobes.files.codec import Unsigned
from stallprobes.native.sources import INJECTED

# Files of Python's own library and of installed packages, and code that these generate: torch.compile's has a hash as
# its name, in a folder of the second and third letter; torch.fx and NumPy name no file.
_LIBRARY_FILE = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python3\.\d+/|/([a-z2-7]{2})/c\1[a-z2-7]{49}\.py$"
    r"|^<(?:frozen |eval_with_key>|__array_function__ )"
)
# Modules between a program's call and the driver, and functions that a program may contain: those of the CUDA runtime,
# and the stubs of kernels.
_CUDA_MODULE = re.compile(rf"lib(?:cuda|cudart|cupti|nvToolsExt)\b.*\.so.*|{re.escape(INJECTED)}")
# The Python interpreter, and what it calls C functions through.
_INTERPRETER_MODULE = re.compile(r"libpython3[.\d]*\.so.*|python[.\d]*|_ctypes\b.*\.so|libffi\.so.*")
# The C library and the like.
_RUNTIME_MODULE = re.compile(r"(?:libc|libm|libpthread|libdl|libgcc_s|libstdc\+\+|libc\+\+)\.so.*|ld-linux.*|ld-musl.*")
_CUDA_FUNCTION = re.compile(r"(?:__)?cuda(?:rt)?[A-Z0-9].*|libcudart_static_.*|__device_stub__.*")


class FrameKind(StrEnum):
    """What a frame is of: Python code, or compiled code."""

    PYTHON = "python"
    NATIVE = "native"


@dataclass(frozen=True)
class StackFrame:
    """A frame of a call stack.

    ``function`` is "" if its name is not known. ``file`` is the source of Python code, the program or library of
    compiled code, "" if not known; ``offset`` (bytes from the begin of ``file`` as it is linked) has a value for
    compiled code only. ``line`` is that of ``source``, the source of compiled code, where the file says it (-g); else
    ``source`` is "" and ``line`` is None.
    """

    kind: FrameKind
    function: str
    file: str
    line: Unsigned | None = None
    offset: Unsigned | None = None
    source: str = ""

    @property
    def is_users(self) -> bool:
        """Whether it is of the program itself, not of Python's library, an installed package or CUDA."""
        if self.kind is FrameKind.PYTHON:
            return not self.is_installed
        name = os.path.basename(self.file)
        if self.is_cuda or self.is_interpreter or _RUNTIME_MODULE.fullmatch(name):
            return False
        return not _CUDA_FUNCTION.fullmatch(self.function)

    @property
    def is_installed(self) -> bool:
        """Whether its file is of Python's own library or of an installed package."""
        return _LIBRARY_FILE.search(self.file) is not None

    @property
    def is_interpreter(self) -> bool:
        """Whether it is of the Python interpreter itself."""
        return self.kind is FrameKind.NATIVE and bool(_INTERPRETER_MODULE.fullmatch(os.path.basename(self.file)))

    @property
    def is_cuda(self) -> bool:
        """Whether it is of a library of CUDA's or of the injected one."""
        return self.kind is FrameKind.NATIVE and _CUDA_MODULE.fullmatch(os.path.basename(self.file)) is not None


UNKNOWN_PYTHON = StackFrame(FrameKind.PYTHON, "", "")


@dataclass(frozen=True)
class CallStack:
    """The Python frames and the native frames of one thread at one call, each innermost first.

    ``complete``: neither has more frames than were recorded.
    """

    python: tuple[StackFrame, ...] = ()
    native: tuple[StackFrame, ...] = ()
    complete: bool = True

    @cached_property
    def own(self) -> tuple[StackFrame, ...]:
        """The frames of the program's own code: Python's where there are any.

        Where all are of libraries, the innermost; UNKNOWN_PYTHON for Python code whose frames were not recorded. Empty
        without frames.
        """
        known = self.python or tuple(frame for frame in self.native if not frame.is_cuda)
        own = tuple(frame for frame in known if frame.is_users)
        if not own and any(frame.is_interpreter for frame in known):
            return (UNKNOWN_PYTHON,)
        return own or known[:1]

    @property
    def place(self) -> StackFrame | None:
        """The innermost frame of the program's own code; None without frames."""
        return self.own[0] if self.own else None

    @cached_property
    def key(self) -> str:
        """A text that is the same for stacks with the same frames of the program's own code."""
        return "\n".join(f"{frame.file}:{frame.line}:{frame.offset}:{frame.function}" for frame in self.own)
