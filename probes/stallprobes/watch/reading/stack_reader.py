"""Call stacks of a watched process: from the addresses and texts in its file to named frames."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np

from stallprobes.files.codec import LARGEST_UNSIGNED
from stallprobes.foreign_text import printable
from stallprobes.native.layouts.watch_file import STACKS
from stallprobes.watch.reading.call_stack import CallStack, FrameKind, StackFrame
from stallprobes.watch.reading.code_files import CodeFiles, Opener, open_regular
from stallprobes.watch.reading.code_lines import LIBRARY_SOURCE
from stallprobes.watch.reading.kernel_names import demangle_all, short_name
from stallprobes.watch.reading.map_reader import MapFile
from stallprobes.watch.reading.process import LoadedModule, RecordedStack, SampleBatch, WatchedProcess
from stallprobes.watch.reading.untrusted_parser import UntrustedParser

# Pattern of a frame of a Python stack. A file's name may contain the separators; the last separators on the line
# separate the parts.
_PYTHON_FRAME = re.compile(r'  File (?:"(.*)"|\?\?\?), line (\d{1,9}|\?\?\?) in (.*)')
# Escapes in the text of a Python stack.
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")
# Line of a Python stack in place of further frames.
_MORE = "  ..."
# Pattern of the mangled names of functions in the namespaces of C++'s library, Thrust, CUB, libcu++ and Eigen.
_LIBRARY_FUNCTION = re.compile(r"_ZN?K?(?:S[tabsiod]|9__gnu_cxx|6thrust|3cub|5Eigen|4cuda(?:3std|\d__\d))")
# Pattern of the names of the functions through which nvcc launches a kernel, mangled or not. _STUB: the function that
# calls CUDA; the group is the kernel's mangled name without its underscore. _WRAPPER: the caller of a template's stub.
_STUB, _WRAPPER = re.compile(r"__device_stub__(\w+)"), re.compile(r"__wrapper__device_stub_")
# Largest code point of Unicode.
_LAST_CHARACTER = 0x10FFFF


class StackReader:
    """Reads each stack of one process once. ``stacks`` has those read so far by their number in the file."""

    def __init__(self, parser: UntrustedParser | None = None, opener: Opener = open_regular) -> None:
        """``parser`` reads the files of code, which ``opener`` opens; None: the parser of names."""
        self._code = CodeFiles(parser, opener)
        self.stacks: dict[int, CallStack] = {}
        self._frames: dict[int, tuple[StackFrame, ...]] = {}
        self._sampled: set[int] = set()

    @property
    def skipped_files(self) -> frozenset[str]:
        """Paths of the files of code that could not be read within limits."""
        return frozenset(self._code.skipped)

    def read(self, file: MapFile, process: WatchedProcess, samples: SampleBatch | None = None) -> None:
        """Read the stacks of the threads and slow calls of ``process`` and of ``samples`` that are new.

        Raises WatchError if the file is damaged.
        """
        if samples is not None:
            holders = {(number - 1) % STACKS + 1 for number in np.unique(samples.rows["holder"]).tolist() if number}
            self._sampled |= {*np.unique(samples.rows["stack"]).tolist(), *holders}
        numbers = {slow.stack for thread in process.threads for slow in thread.slow_calls}
        numbers = (numbers | self._sampled | {thread.stack for thread in process.threads}) - {0}
        new = {number: stack for number in numbers - self.stacks.keys() if (stack := file.stack(number)) is not None}
        if not new:
            return
        unknown = {address for stack in new.values() for address in stack.addresses} - self._frames.keys()
        if unknown:
            self._frames |= native_frames(unknown, file.modules(), self._code)
        for number, stack in new.items():
            self.stacks[number] = self._stack(stack)

    def frames_at(self, file: MapFile, addresses: Collection[int]) -> Mapping[int, tuple[StackFrame, ...]]:
        """The frames of each address of code, those of inlined functions first. Raises WatchError if the file is
        damaged."""
        return native_frames(addresses, file.modules(), self._code) if addresses else {}

    def _stack(self, stack: RecordedStack) -> CallStack:
        python, more = python_frames(stack.text, stack.text_cut)
        native = tuple(frame for address in stack.addresses for frame in self._frames[address])
        return CallStack(python, with_launches(native), not (more or stack.native_cut))


def python_frames(text: str, cut: bool = False) -> tuple[tuple[StackFrame, ...], bool]:
    """The frames in a text that Python wrote, and whether there were more. ``cut``: the end of the text is missing."""
    lines = text.split("\n")
    more = cut or _MORE in lines
    # The last line of a text that was cut may look whole.
    matches = (_PYTHON_FRAME.fullmatch(line) for line in (lines[:-1] if cut else lines))
    return tuple(_python_frame(match) for match in matches if match), more


def native_frames(
    addresses: Iterable[int], modules: Iterable[LoadedModule], code: CodeFiles
) -> Mapping[int, tuple[StackFrame, ...]]:
    """The frames of each address, those of inlined functions first.

    Where modules overlap, the last one was loaded last.
    """
    latest_first = tuple(reversed(tuple(modules)))
    members: dict[LoadedModule | None, list[int]] = {}
    for address in addresses:
        module = next((module for module in latest_first if module.start <= address < module.end), None)
        members.setdefault(module, []).append(address)
    return {
        address: frames for module, inside in members.items() for address, frames in _frames_of(module, inside, code)
    }


def with_launches(frames: tuple[StackFrame, ...]) -> tuple[StackFrame, ...]:
    """``frames`` of compiled code, in which nvcc's functions for the launch of a kernel are marked as of a library.

    For each kernel, nvcc generates a stub, which calls CUDA, and a function with the name and the line of the kernel,
    which calls the stub. The caller of that function launches the kernel.
    """
    stubs = {frame.function: match[1] for frame in frames if (match := _STUB.search(frame.function))}
    if not stubs:
        return frames
    kernels = demangle_all(f"_{name}" for name in stubs.values())
    launches, kernel = [], None
    for frame in frames:
        if frame.function in stubs:
            kernel = kernels[f"_{stubs[frame.function]}"]
        elif kernel is not None and not _WRAPPER.search(frame.function):
            frame = frame.changed(library=True) if _is_kernel(frame.function, kernel) else frame
            kernel = None
        launches.append(frame)
    return tuple(launches)


def _is_kernel(function: str, kernel: str) -> bool:
    """True if a function has the name of a kernel; that of an inlined one, as DWARF has it, lacks the parameters."""
    inlined = "<" in function and "(" not in function
    return function == kernel or (inlined and short_name(function) == short_name(kernel).rpartition("::")[2])


def _frames_of(
    module: LoadedModule | None, addresses: Iterable[int], code: CodeFiles
) -> Iterator[tuple[int, tuple[StackFrame, ...]]]:
    if module is None:
        for address in addresses:
            yield address, (StackFrame(FrameKind.NATIVE, "", "", None, _offset(address)),)
        return
    offsets = {address: _offset(address - module.base) for address in addresses}
    readable = [offset for offset in offsets.values() if offset is not None]
    places = code.code(module.path, module.build_id, readable)
    inlined = {line.function for lines in places.lines.values() for line in lines[:-1]}
    functions = demangle_all({*places.names.values(), *inlined} - {""})
    for address, offset in offsets.items():
        lines = () if offset is None else places.lines.get(offset, ())
        name = "" if offset is None else places.names.get(offset, lines[-1].function if lines else "")
        frames = []
        for function, source, number in (*lines[:-1], (name, *lines[-1][1:]) if lines else (name, "", None)):
            patterns = (_LIBRARY_FUNCTION.match(function), _STUB.search(function), _WRAPPER.search(function))
            library = any(patterns) or bool(LIBRARY_SOURCE.search(source))
            shown = functions.get(function, function)
            path = printable(module.path)
            frames.append(StackFrame(FrameKind.NATIVE, shown, path, number, offset, source, library))
        yield address, tuple(frames)


def _offset(value: int) -> int | None:
    """An offset; None where the module lies elsewhere than the file says, or that is damaged."""
    return value if 0 <= value <= LARGEST_UNSIGNED else None


def _python_frame(match: re.Match[str]) -> StackFrame:
    file, line, function = match.groups()
    return StackFrame(
        kind=FrameKind.PYTHON,
        function=_unescaped(function) if function != "???" else "",
        file=_unescaped(file or ""),
        line=None if line == "???" else int(line),
    )


def _unescaped(text: str) -> str:
    r"""``text`` with the characters for which Python wrote ``\xe4`` and the like."""
    return printable(_ESCAPE.sub(_character, text))


def _character(match: re.Match[str]) -> str:
    number = int(next(part for part in match.groups() if part), 16)
    return chr(number) if number <= _LAST_CHARACTER else match[0]
