"""Call stack of a call: the frames of the program's code that made it, innermost first."""

from __future__ import annotations

import os.path
import re
from enum import StrEnum
from functools import cached_property
from typing import Any

import msgspec

from stallprobes.files.codec import Natural, PlainDocument, String, Unsigned, schema
from stallprobes.native.sources import INJECTED
from stallprobes.watch.reading.compilers import DeviceCompiler, compiler_of
from stallprobes.watch.reading.library_tasks import LibraryTask, task_of

# Paths of files outside the program's own code: files of Python's library and of installed packages, and files that
# these packages generate. torch.compile names a file by a hash of 52 characters, and its folder by the second and third
# character of the hash. torch.fx, NumPy and Python's frozen modules use names in angle brackets instead of paths.
_LIBRARY_FILE = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python3\.\d+/|/([a-z2-7]{2})/c\1[a-z2-7]{49}\.py$"
    r"|^<(?:frozen |eval_with_key>|__array_function__ )"
)
# Names of files of code that was made from a text, such as the methods of a dataclass, or python -c. Such code is the
# program's own only where no other is.
_MADE_CODE = re.compile(r"^<(?:string>|attrs generated )")
# Pattern of the file names of CUDA's libraries and of stallscope's injected library.
_CUDA_MODULE = re.compile(rf"lib(?:cuda|cudart|cupti|nvToolsExt)\b.*\.so.*|{re.escape(INJECTED)}")
# Pattern of the file names of the Python interpreter, and of the libraries through which Python calls C functions.
_INTERPRETER_MODULE = re.compile(r"libpython3[.\d]*\.so.*|python[.\d]*|_ctypes\b.*\.so|libffi\.so.*")
# Pattern of the file names of the C and C++ libraries, and of the dynamic linker.
_RUNTIME_MODULE = re.compile(r"(?:libc|libm|libpthread|libdl|libgcc_s|libstdc\+\+|libc\+\+)\.so.*|ld-linux.*|ld-musl.*")
# Pattern of the names of CUDA runtime functions and kernel stubs, which a program itself may contain. Frames of these
# functions do not count as the program's own code.
_CUDA_FUNCTION = re.compile(r"(?:__)?cuda(?:rt)?[A-Z0-9].*|libcudart_static_.*|__device_stub__.*")


class FrameKind(StrEnum):
    """Kind of the code of a frame: Python or compiled."""

    PYTHON = "python"
    NATIVE = "native"


class StackFrame(PlainDocument):
    """A frame of a call stack."""

    kind: FrameKind
    function: String
    """Empty if its name is not known."""
    file: String
    """Source of Python code; program or library of compiled code; empty if it is not known."""
    line: Unsigned | None = None
    """Of Python code, or of source; null if it is not known."""
    offset: Unsigned | None = None
    """Of compiled code: bytes from the begin of the file as it is linked; else null."""
    source: String = ""
    """Source of compiled code where the file says it (-g), else empty."""
    library: bool = False
    """Whether compiled code is of a library in the program's own file, such as Thrust or C++'s, or is what nvcc
    generates for the launch of a kernel."""

    @property
    def is_users(self) -> bool:
        """True if it is of the program itself, not of Python's library, an installed package or CUDA."""
        if self.kind is FrameKind.PYTHON:
            return not self.is_installed
        name = os.path.basename(self.file)
        if self.library or self.is_cuda or self.is_interpreter or _RUNTIME_MODULE.fullmatch(name):
            return False
        return not _CUDA_FUNCTION.fullmatch(self.function)

    @property
    def is_installed(self) -> bool:
        """True if its file is of Python's own library or of an installed package."""
        return _LIBRARY_FILE.search(self.file) is not None

    @property
    def is_interpreter(self) -> bool:
        """True if it is of the Python interpreter itself."""
        return self.kind is FrameKind.NATIVE and bool(_INTERPRETER_MODULE.fullmatch(os.path.basename(self.file)))

    @property
    def is_cuda(self) -> bool:
        """True if it is of a library of CUDA's or of the injected one."""
        return self.kind is FrameKind.NATIVE and _CUDA_MODULE.fullmatch(os.path.basename(self.file)) is not None


# Frame that stands for Python code whose frames were not recorded.
UNKNOWN_PYTHON = StackFrame(FrameKind.PYTHON, "", "")


class StackFrames(PlainDocument):
    """The frames of one thread at one call, innermost first."""

    python: tuple[StackFrame, ...] = ()
    native: tuple[StackFrame, ...] = ()
    complete: bool = True
    """Whether neither has more frames than were recorded."""


class CallStack:
    """A call stack. In JSON it is its frames, or ``number``, its place in a list of stacks, where it has one."""

    def __init__(
        self,
        python: tuple[StackFrame, ...] = (),
        native: tuple[StackFrame, ...] = (),
        complete: bool = True,
        number: int | None = None,
    ) -> None:
        self.python, self.native, self.complete, self.number = python, native, complete, number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CallStack) and self.frames == other.frames

    def __hash__(self) -> int:
        return hash(self.frames)

    @classmethod
    def of_json(cls, value: Any) -> CallStack:
        """The stack whose frames are ``value``, or without frames for a number. Raises ValueError for what is none."""
        if type(value) is int:
            return cls(number=value)
        frames = msgspec.convert(value, StackFrames)
        return cls(frames.python, frames.native, frames.complete)

    def to_json(self) -> StackFrames | int:
        """Its frames or its number."""
        return self.frames if self.number is None else self.number

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """The JSON Schema of its number."""
        return schema(Natural)

    @property
    def frames(self) -> StackFrames:
        """All of it."""
        return StackFrames(self.python, self.native, self.complete)

    @cached_property
    def own(self) -> tuple[StackFrame, ...]:
        """Frames of the program's own code: Python's where there are any.

        Without any, the innermost frame of a library; UNKNOWN_PYTHON for Python code whose frames were not recorded.
        Empty without frames.
        """
        frames = self.python or tuple(frame for frame in self.native if not frame.is_cuda)
        own = tuple(frame for frame in frames if frame.is_users)
        if not own and any(frame.is_interpreter for frame in frames):
            return (UNKNOWN_PYTHON,)
        return tuple(frame for frame in own if not _MADE_CODE.match(frame.file)) or own or frames[:1]

    @property
    def place(self) -> StackFrame | None:
        """The innermost frame of the program's own code; None without frames."""
        return self.own[0] if self.own else None

    @cached_property
    def compiler(self) -> DeviceCompiler | None:
        """The compiler of device code that runs; None without one."""
        return compiler_of((frame.file, frame.function) for frame in (*self.native, *self.python))

    @cached_property
    def task(self) -> LibraryTask | None:
        """The task of a library beside the program's own work that runs; None without one, or inside a compiler."""
        frames = ((frame.file, frame.function) for frame in (*self.native, *self.python))
        return task_of(frames) if self.compiler is None else None

    @cached_property
    def key(self) -> str:
        """Text that is the same for stacks that a sentence names alike: with one place, and in Python with one caller
        of its function."""
        frames = self.own[: 2 if self.python else 1]
        return "\n".join(f"{each.file}:{each.line}:{each.source}:{each.function or each.offset}" for each in frames)
