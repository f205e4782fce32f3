"""The layouts as C and Python see them: the same sizes, offsets and constants on both sides."""

# No postponed annotations: the decorator of structures reads them.

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

from stallprobes.native.building.compilers import of_system
from stallprobes.native.building.libraries import write_header
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts import header, timeline
from stallprobes.native.layouts.structure import Int64, LineInt64, UInt32, c_name, offset_of, structure
from stallprobes.native.sources import NATIVE


def as_c_sees_it(folder: Path, expressions: list[str]) -> list[int]:
    """The values of the expressions in a C program that includes the header."""
    compilers = of_system()
    if not compilers:
        pytest.skip("no C compiler")
    write_header(folder)
    source, program = folder / "sizes.c", folder / "sizes"
    lines = "".join(f'    printf("%lld\\n", (long long)({each}));\n' for each in expressions)
    source.write_text(f'#include <stdio.h>\n#include "layout.h"\nint main(void)\n{{\n{lines}    return 0;\n}}\n')
    compilers[0].run(
        [
            "-std=c11",
            "-D_GNU_SOURCE",
            "-Werror",
            f"-I{folder}",
            f"-I{NATIVE / 'common'}",
            str(source),
            "-o",
            str(program),
        ]
    )
    return [int(line) for line in subprocess.run([program], check=True, capture_output=True).stdout.split()]


def test_sizes_and_offsets_are_the_same_in_c_and_python(tmp_path: Path) -> None:
    expected = {}
    for owner in header.STRUCTURES:
        name, form = f"struct {c_name(owner)}", dtype_of(owner)
        assert form.itemsize == ctypes.sizeof(owner)
        expected[f"sizeof({name})"] = form.itemsize
        for field, (_, offset, *_) in (form.fields or {}).items():
            assert offset == offset_of(owner, field)
            expected[f"offsetof({name}, {field})"] = offset
            expected[f"sizeof((({name} *)0)->{field})"] = form[field].itemsize
    assert as_c_sees_it(tmp_path, list(expected)) == list(expected.values())


def test_constants_are_the_same_in_c_and_python(tmp_path: Path) -> None:
    expected = {f"SS_{name}": value for name, value in header.constants().items() if isinstance(value, int)}
    assert len(expected) > 100
    # Those beyond the signed range keep their bits.
    assert as_c_sees_it(tmp_path, list(expected)) == [ctypes.c_int64(value).value for value in expected.values()]


def test_every_structure_of_the_layouts_is_in_the_header() -> None:
    children: list[type] = ctypes.Structure.__subclasses__()
    known = {each for each in children if each.__module__.startswith("stallprobes.native.layouts")}
    assert known == set(header.STRUCTURES)


def test_a_field_begins_where_it_is_told() -> None:
    class Made(ctypes.Structure):
        first: Int64
        second: UInt32
        third: Int64
        line: LineInt64

    made = structure(Made)
    assert [offset_of(made, name) for name in ("first", "second", "third", "line")] == [0, 8, 16, 64]
    assert dtype_of(made).names == ("first", "second", "third", "line")
    assert np.zeros(2, dtype_of(made))["line"].tolist() == [0, 0]


def test_a_field_without_a_c_type_is_refused() -> None:
    class Made(ctypes.Structure):
        first: int

    with pytest.raises(TypeError, match=r"Made\.first has no C type"):
        structure(Made)


def test_a_constant_with_two_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "BUFFER_BYTES", 7, raising=False)
    with pytest.raises(ValueError, match="two constants have the name BUFFER_BYTES"):
        header.constants()
