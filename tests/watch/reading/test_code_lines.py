"""Lines of compiled code with the functions that are inlined there, and the user's lines that lead to a library's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from factories.code_places import function_of, places_of
from factories.stand_in import COMPILER
from stallprobes.watch.reading import code_lines
from stallprobes.watch.reading.call_stack import CallStack, FrameKind, StackFrame
from stallprobes.watch.reading.code_files import CodeFiles
from stallprobes.watch.reading.code_lines import CodeLine
from stallprobes.watch.reading.process import LoadedModule
from stallprobes.watch.reading.stack_reader import native_frames, with_launches

# What the compiler inlines from a library's header, and from the program.
HEADER = """static inline __attribute__((always_inline)) void sort_all(void (*wait)(void))
{
    wait();  /* line 3 */
}
"""
SOURCE = """#include <sort_all.h>
void wait_for_gpu(void);
static inline __attribute__((always_inline)) void sort_twice(void)
{
    sort_all(wait_for_gpu);  /* line 5 */
    sort_all(wait_for_gpu);
}
void __attribute__((noinline)) step(void)
{
    sort_twice();  /* line 10 */
    wait_for_gpu();  /* line 11 */
    __asm__ volatile("");
}
void __attribute__((noinline)) wait_for_gpu(void) { __asm__ volatile(""); }
int main(void)
{
    step();
    return 0;
}
"""
# The chain of the first call in ``step``.
INLINED = [("sort_all", "sort_all.h", 3), ("sort_twice", "program.c", 5), ("step", "program.c", 10)]


def build(folder: Path, *options: str) -> Path:
    assert COMPILER is not None
    headers = folder / "targets" / "x86_64-linux" / "include"
    headers.mkdir(parents=True)
    (headers / "sort_all.h").write_text(HEADER)
    source, program = folder / "program.c", folder / "program"
    source.write_text(SOURCE)
    command = [COMPILER, "-O2", "-g", f"-I{headers}", *options, "-o", str(program), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return program


def lines_of(program: Path) -> list[list[tuple[str, str, int]]]:
    places = places_of(program, function_of(program, "step"))
    assert places is not None
    return [[(line.function, Path(line.file).name, line.line) for line in lines] for lines in places.lines.values()]


@pytest.mark.parametrize(
    "options", [(f"-gdwarf-{version}",) for version in (2, 3, 4, 5)] + [("-gz=zlib",), ("-no-pie",), ("-g1",)]
)
def test_an_address_has_the_lines_of_what_is_inlined_there(tmp_path: Path, options: tuple[str, ...]) -> None:
    lines = lines_of(build(tmp_path, *options))
    assert INLINED in lines
    assert [("step", "program.c", 11)] in lines


def test_a_file_that_is_written_anew_is_read_anew(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    first = build(tmp_path / "first")
    assert INLINED in lines_of(first)
    (tmp_path / "second").mkdir()
    first.write_bytes(build(tmp_path / "second", "-DOTHER", "-O0").read_bytes())
    assert INLINED not in [chain[-3:] for chain in lines_of(first) if len(chain) > 3]
    assert any(chain[-1][2] == 11 for chain in lines_of(first))


def test_without_symbolic_the_table_of_lines_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_lines, "load_symbolic", lambda: None)
    lines = lines_of(build(tmp_path))
    assert [("", "program.c", 11)] in lines
    assert {len(chain) for chain in lines} == {1}
    assert not any(file == "sort_all.h" for chain in lines for _, file, _ in chain)


def test_of_many_inlined_functions_the_innermost_and_the_outermost_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_lines, "MAX_INLINED", 2)
    assert [INLINED[0], INLINED[2]] in lines_of(build(tmp_path))


def test_the_place_is_the_programs_line_that_led_into_a_library(tmp_path: Path) -> None:
    program = build(tmp_path)
    module = LoadedModule(0, 1 << 40, 0, b"", str(program))
    frames = native_frames(function_of(program, "step"), [module], CodeFiles())
    chains = [
        [(frame.function, frame.line, frame.library, frame.is_users) for frame in chain] for chain in frames.values()
    ]
    assert [
        ("sort_all", 3, True, False), ("sort_twice", 5, False, True), ("step", 10, False, True),
    ] in chains  # fmt: skip
    places = {(place.function, place.line) for chain in frames.values() if (place := CallStack(native=chain).place)}
    assert ("sort_twice", 5) in places
    assert "sort_all" not in {function for function, _ in places}


def native(function: str, line: int = 0, library: bool = False) -> StackFrame:
    return StackFrame(FrameKind.NATIVE, function, "/home/me/solver", line, line, "/home/me/solver.cu", library)


@pytest.mark.parametrize(
    "above",
    [
        # Without optimization: the stub of a template has a wrapper, and the kernel's own function calls that.
        [
            native("__device_stub__Z3genIfEvPT_(float*)", 1, library=True),
            native("void __wrapper__device_stub_gen<float>(float*&)", 2, library=True),
            native("void gen<float>(float*)", 6),
        ],
        # With optimization, it is inlined: its name has no parameters.
        [
            native("__device_stub__Z3genIfEvPT_(float*)", 1, library=True),
            native("__wrapper__device_stub_gen<float>", 2, library=True),
            native("gen<float>", 6),
        ],
        [native("__device_stub__Z5plainPf(float*)", 1, library=True), native("plain(float*)", 3)],
        # The stub jumps out of the kernel's function, which is no frame then.
        [native("__device_stub__Z5plainPf(float*) [clone .cold]", 1, library=True)],
        [native("__device_stub__Z6hiddenPf(float*)", 1, library=True), native("hidden(float*)", 4)],
    ],
)
def test_a_launch_is_at_the_line_that_launches_and_not_at_that_of_the_kernel(above: list[StackFrame]) -> None:
    frames = (*above, native("step(float*)", 9), native("main", 14))
    place = CallStack(native=with_launches(frames)).place
    assert place is not None
    assert (place.function, place.line) == ("step(float*)", 9)
    # Deeper frames of the same name are the program's.
    again = with_launches((*above, native("step(float*)", 9), native("plain(float*)", 3)))
    assert again[-1].is_users


def test_a_function_beside_a_stub_of_another_kernel_is_the_programs() -> None:
    frames = (native("__device_stub__Z5plainPf(float*)", 1, library=True), native("plainly(float*)", 3))
    assert CallStack(native=with_launches(frames)).place == frames[1]


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("_ZN6thrust24THRUST_300001_SM_900_NS4sortIPiEEvT_", True),
        ("_ZN3cub17CUB_300001_SM_90010SyncStreamEP11CUstream_st", True),
        ("_ZSt8for_eachIPiEvT_", True),
        ("_ZNSt6vectorIiSaIiEE4pushEi", True),
        ("_ZNKSt6vectorIiSaIiEE4sizeEv", True),
        ("_ZN4cuda3std3__44swapIiEEvRT_S2_", True),
        ("_ZN4cuda6my_ownEv", False),
        # What a user's function returns or gets says nothing.
        ("_ZN6solver4dataISt6vectorIiSaIiEEEET_v", False),
        ("_ZZ4mainENKUlRiE_clES_", False),
        ("main", False),
    ],
)
def test_functions_of_libraries_are_known_without_debugging_information(
    name: str, library: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Code(CodeFiles):
        def code(self, path: str, build_id: bytes, addresses: object) -> object:  # type: ignore[override]
            from stallprobes.watch.reading.elf_symbols import CodePlaces

            return CodePlaces({0x10: name}, {0x20: (CodeLine("", "/home/me/a.cu", 3),)})

    module = LoadedModule(0, 1 << 40, 0, b"", "/home/me/solver")
    ((frame,),) = native_frames([0x10], [module], Code()).values()
    assert frame.library is library


def test_large_debugging_information_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stallprobes.watch.reading.elf_symbols.MAX_DEBUG_BYTES", 16)
    assert {len(chain) for chain in lines_of(build(tmp_path))} == {1}
