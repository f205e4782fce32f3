"""Call stacks: the program's own frames, Python's text, addresses, and what they are called in a sentence."""

from __future__ import annotations

import pytest

from stallprobes.watch.attribution.findings import CallSite
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.reading.call_stack import CallStack, FrameKind, StackFrame
from stallprobes.watch.reading.code_files import CodeFiles
from stallprobes.watch.reading.process import LoadedModule
from stallprobes.watch.reading.stack_reader import native_frames, python_frames
from stallprobes.watch.sentences import frame_text, site_text, stack_text

SECOND = 1_000_000_000


def python(function: str, file: str = "/home/me/train.py", line: int | None = 42) -> StackFrame:
    return StackFrame(FrameKind.PYTHON, function, file, line)


def native(function: str, file: str = "/opt/solver/solver", offset: int = 0x1234) -> StackFrame:
    return StackFrame(FrameKind.NATIVE, function, file, None, offset)


@pytest.mark.parametrize(
    ("frame", "own"),
    [
        (python("step"), True),
        (python("step", "train.py"), True),
        (python("run", "/usr/lib/python3.12/threading.py"), False),
        (python("forward", "/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py"), False),
        (python("forward", "/usr/lib/python3/dist-packages/torch/nn/modules/linear.py"), False),
        (python("_call_with_frames_removed", "<frozen importlib._bootstrap>"), False),
        # Code that torch.compile and torch.fx write.
        (python("call", "/tmp/torchinductor_me/hi/chim72jhslygbwok6fk4hko5x75djevfzehxokpv5hi7b5z43f5x.py"), False),
        (python("call", "/tmp/torchinductor_me/ab/chim72jhslygbwok6fk4hko5x75djevfzehxokpv5hi7b5z43f5x.py"), True),
        (python("forward", "<eval_with_key>.3"), False),
        (python("<module>", "<string>"), True),
        # Of a notebook.
        (python("step", "/tmp/ipykernel_1/3.py"), True),
        (native("solve"), True),
        (native("cudaMemcpy"), False),
        (native("__cudart612"), False),
        (native("cuda_solver_step"), True),
        (native("__device_stub__Z5smallPf"), False),
        (native("_PyEval_EvalFrameDefault", "/usr/lib/libpython3.13.so.1.0"), False),
        (native("", "/usr/bin/python3.12"), False),
        (native("ffi_call", "/usr/lib/libffi.so.8"), False),
        (native("at::native::item", "/venv/lib/python3.13/site-packages/torch/lib/libtorch_cpu.so"), True),
        (native("__libc_start_main", "/lib/x86_64-linux-gnu/libc.so.6"), False),
        (native("on_call", "/usr/lib/libcupti.so.13"), False),
        (native("", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"), False),
        (
            native("ss_callback", "/venv/lib/stallprobes/native/lib/stallscope-inject.so"),
            False,
        ),
    ],
)
def test_which_frames_are_the_programs_own(frame: StackFrame, own: bool) -> None:
    assert frame.is_users is own


def test_the_place_is_the_innermost_frame_of_the_program() -> None:
    library = python("forward", "/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py")
    stack = CallStack((library, python("step"), python("main", line=80)), (native("solve"),))
    assert stack.place == python("step")
    assert stack_text(stack) == "train.py:42 in step, called by train.py:80 in main"
    # A method that a dataclass has made is called by the program, and python -c is the program.
    made = python("__init__", "<string>")
    assert CallStack((made, library, python("step"))).place == python("step")
    assert CallStack((made, python("<module>", "<string>", 1))).place == made
    # Nothing but libraries: the innermost of them.
    assert CallStack((library,)).place == library
    driver = native("", "/usr/lib/libcuda.so.1")
    assert CallStack(native=(driver, native("solve"), native("main"))).place == native("solve")
    assert CallStack().place is None
    assert CallStack(native=(driver,)).place is None
    assert stack_text(CallStack()) == "an unknown place"
    interpreter = native("_PyEval_EvalFrameDefault", "/usr/lib/libpython3.13.so.1.0")
    assert stack_text(CallStack(native=(driver, interpreter))) == "an unknown line of Python"
    assert CallStack(native=(driver, native("item", "/opt/libtorch_cpu.so"), interpreter)).place == native(
        "item", "/opt/libtorch_cpu.so"
    )  # fmt: skip


def test_stacks_of_the_same_own_frames_have_one_key() -> None:
    one, other = CallStack((python("step"),), (native("a"),)), CallStack((python("step"),), (native("b"),))
    assert one.key == other.key != CallStack((python("step", line=43),)).key


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (python("step"), "train.py:42 in step"),
        (python("", line=None), "train.py"),
        (python("step", ""), "an unknown file:42 in step"),
        (python("asnumpy", "/lib/cupy/__init__.py"), "cupy/__init__.py:42 in asnumpy"),
        (native("void solve<float>(float*, int)"), "solve in solver"),
        (native(""), "solver+0x1234"),
        (native("", ""), "address 0x1234"),
    ],
)
def test_a_frame_in_a_sentence(frame: StackFrame, text: str) -> None:
    assert frame_text(frame) == text


def site(calls: int = 4000, recorded: int = 4000, size: int | None = 4, **changes: object) -> CallSite:
    fields = {
        "stack": CallStack((python("step"),)), "function": "cuMemcpyDtoHAsync_v2",
        "bytes": size, "blocking": True, "recorded": recorded, "calls": calls, "total_ns": 5, "lost_ns": 4,
        "first_ns": SECOND, "last_ns": 11 * SECOND, "cause": WaitCause.GPU_WORK,
    }  # fmt: skip
    return CallSite(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (site(), "400 blocking 4-byte copies a second from train.py:42 in step"),
        (site(recorded=1000), "about 400 blocking 4-byte copies a second from train.py:42 in step"),
        (site(size=256 << 20, blocking=False), "400 256-MiB copies a second from train.py:42 in step"),
        (site(size=None), "400 blocking copies a second from train.py:42 in step"),
        (site(1, 1, last_ns=SECOND), "1 blocking 4-byte copy from train.py:42 in step"),
        (site(5, 5, last_ns=SECOND + SECOND // 2), "5 blocking 4-byte copies from train.py:42 in step"),
        (site(34, 34, last_ns=3 * SECOND), "34 blocking 4-byte copies in 2.00 s from train.py:42 in step"),
        (site(3, 3, last_ns=9 * SECOND), "3 blocking 4-byte copies from train.py:42 in step"),
        (
            site(function="cuStreamSynchronize"),
            "400 calls of cuStreamSynchronize a second from train.py:42 in step",
        ),
    ],
)
def test_the_calls_of_a_place_in_a_sentence(found: CallSite, text: str) -> None:
    assert site_text(found) == text


def test_the_text_that_python_writes() -> None:
    text = (
        "Stack (most recent call first):\n"
        '  File "/home/me/train.py", line 42 in step\n'
        '  File "/home/me/tr\\xe4in \\u2014 \\U0001f600.py", line 7 in <lambda>\n'
        '  File "/a", line 3 in x/b.py", line 9 in main\n'
        "  File ???, line ??? in ???\n"
        "  ...\n"
    )
    frames, more = python_frames(text)
    assert [(frame.file, frame.line, frame.function) for frame in frames] == [
        ("/home/me/train.py", 42, "step"),
        ("/home/me/träin — 😀.py", 7, "<lambda>"),
        ('/a", line 3 in x/b.py', 9, "main"),
        ("", None, ""),
    ]
    assert more
    assert python_frames("Stack (most recent call first):\n  <no Python frame>\n") == ((), False)


def test_a_text_without_its_end_loses_its_last_line() -> None:
    text = 'Stack (most recent call first):\n  File "/a.py", line 1 in f\n  File "/b.py", line 2'
    frames, more = python_frames(text + "1 in g", cut=True)
    assert ([frame.function for frame in frames], more) == (["f"], True)


@pytest.mark.parametrize("text", ['  File "\\x1b[2J.py", line 1 in \\u202ef', '  File "\\Uffffffff", line 1 in f'])
def test_what_a_text_says_cannot_reach_the_terminal(text: str) -> None:
    ((frame,), _) = python_frames(text)
    assert "\x1b" not in frame.file
    assert "\u202e" not in frame.function


def test_addresses_belong_to_the_module_that_was_loaded_last() -> None:
    old = LoadedModule(0x1000, 0x3000, 0x1000, b"", "/missing/old.so")
    new = LoadedModule(0x2000, 0x4000, 0x2000, b"", "/missing/new.so")
    frames = native_frames([0x1800, 0x2800, 0x9000], [old, new], CodeFiles())
    assert [(frames[at][0].file, frames[at][0].offset) for at in (0x1800, 0x2800, 0x9000)] == [
        ("/missing/old.so", 0x800), ("/missing/new.so", 0x800), ("", 0x9000),
    ]  # fmt: skip
    # A file that lies elsewhere than it is said to, and an address that no recording has.
    odd = LoadedModule(0x1000, 0x3000, 0x2000, b"", "/missing/odd.so")
    frames = native_frames([0x1800, (1 << 64) - 1], [odd], CodeFiles())
    assert [(frames[at][0].file, frames[at][0].offset) for at in frames] == [("/missing/odd.so", None), ("", None)]
    # A path that is not absolute is of another folder than the reader's.
    relative = LoadedModule(0x1000, 0x3000, 0x1000, b"", "host")
    assert native_frames([0x1800], [relative], CodeFiles())[0x1800][0].function == ""
