"""Symbols of ELF files: those of real ones, and files that are damaged or none."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from factories.code_places import function_of, places_of
from factories.stand_in import StandIn

ROUNDS = 400


def test_functions_by_address(stand_in: StandIn) -> None:
    path = stand_in.folder / "host"
    inside = function_of(path, "train_step")[3]
    places = places_of(path, [0, inside, 1 << 40, -1, 1 << 70])
    assert places is not None
    assert places.names == {inside: "train_step"}


def test_a_library_without_its_symbol_table_has_those_that_it_exports(stand_in: StandIn, tmp_path: Path) -> None:
    stripped = tmp_path / "libcuda.so"
    done = subprocess.run(["strip", "-o", str(stripped), str(stand_in.folder / "libcuda.so.1")])
    if done.returncode:
        pytest.skip("no strip")
    inside = function_of(stripped, "cuStreamSynchronize")[3]
    places = places_of(stripped, [inside])
    assert places is not None
    assert places.names == {inside: "cuStreamSynchronize"}


def test_a_file_of_another_build_is_not_used(stand_in: StandIn) -> None:
    assert places_of(stand_in.folder / "host", [0x1000], b"\x01\x02\x03\x04") is None


def test_what_is_no_elf_file_has_no_symbols(tmp_path: Path) -> None:
    pipe, text, short = tmp_path / "pipe", tmp_path / "text", tmp_path / "short"
    os.mkfifo(pipe)
    text.write_text("#!/bin/sh\n" * 100)
    short.write_bytes(b"\x7fELF\x02\x01")
    for path in (pipe, text, short, tmp_path, tmp_path / "missing", Path("/dev/zero")):
        assert places_of(path, [0x1000]) is None


def test_a_damaged_file_is_read_within_its_limits(stand_in: StandIn, tmp_path: Path) -> None:
    whole = (stand_in.folder / "host").read_bytes()
    headers = int.from_bytes(whole[0x28:0x30], "little")
    random_numbers = random.Random(1)
    path = tmp_path / "damaged"
    for _ in range(ROUNDS):
        damaged = bytearray(whole)
        for _ in range(4):
            # The headers of the file and of its sections, where damage does most.
            at = random_numbers.choice((random_numbers.randrange(64), random_numbers.randrange(headers, len(whole))))
            damaged[at] = random_numbers.choice((0, 1, 0x7F, 0xFF, random_numbers.randrange(256)))
        cut = random_numbers.randrange(1, len(whole)) if random_numbers.random() < 0.2 else len(whole)
        path.write_bytes(damaged[:cut])
        places = places_of(path, [0x1000, 0x2600, 0x2700], random_numbers.choice((b"", b"\x01")))
        if places is not None:
            assert all(len(name) <= 4096 for name in places.names.values())
