"""Hostile files against what reads them: mutation of names, ELF and DWARF, of watch files, and of a live control.

    python tests/benchmarks/bench_hostile_files.py [--minutes 2] [--seed 1] [--kind KINDS]

Each round makes a hostile input of the next kind. Names, ELF files made of counts and lengths, and compiled programs
with changed bytes, also in their tables of lines alone, go to the real process that parses them, as their addresses and
names would come from a program. Files of runs are compared, and recordings of `watch` read moment by moment, with
values or bytes changed; what is refused is refused in a sentence.
Watch files with changed fields are read, and everything is made of them that `watch` makes: report, document, trace and
recording. A process without rights has memory as that of the library and changes it all the time, while it is
attached and detached. Each minute, and at the end, a line has the rounds, the inputs that were skipped, how many
processes a signal ended, the tracebacks, and the largest resident memory of the parsing processes and of this one. It
exits 1 where there was a traceback, a round took more than 15 s, or a parsing process had more than 300 MB.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import itertools
import json
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from factories import hostile_files as files
from factories.attaching import NOBODY
from factories.damaged_watch_files import DamagedFile, use
from factories.hostile_program import ForgedControl, hostile
from factories.mutations import damaged, mutants
from factories.parser_children import ParserChildren
from factories.recorded_programs import PROGRAMS, recorded
from factories.stand_in import COMPILER
from factories.watch_moments import moments, record
from factories.watched_runs import NAMES, recorded_findings
from stallprobes.errors import NotComparable, RecordingError, RunFileError, WatchError
from stallprobes.foreign_text import is_printable
from stallprobes.watch.attaching import attachment as attaching
from stallprobes.watch.attaching.attached_processes import AttachedProcesses
from stallprobes.watch.comparing import run_file
from stallprobes.watch.comparing.compare import compare
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.live.recording import WatchRecording
from stallprobes.watch.reading.code_files import CodeFiles
from stallprobes.watch.reading.map_reader import watch_files
from stallprobes.watch.reading.untrusted_parser import UntrustedParser
from stallprobes.watch.report import document
from stallscope.report import runs_text
from stallscope.report.text import TextWriter

PEAK_BYTES = 300 << 20
PRINTED_S = 60.0
# Longest time (s) of a round: a request has 5 s, and a name that fails is asked for once.
ROUND_S = 15.0
# Rounds after which the parser is a new one: it gives up after many failures.
RENEWED = 4
ADDRESSES = 32
# Number of attachments to one process with a control that changes.
ATTACHMENTS = 5
SOURCE = """static inline __attribute__((always_inline)) int twice(int a) { return a * 2; }
int first(int a) { return twice(a) + 3; }
int main(void) { return first(twice(1)); }
"""
ODD_NUMBERS = (0, 1, 2, 3, 127, 128, 255, 256, 0xFFFF, 0x10000, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1)

# What makes and reads a hostile input; it raises what is a failure.
Round = Callable[[], None]


class Mutation:
    """The rounds of each kind. ``skipped`` counts what exceeded the limits, by kind."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.children = ParserChildren()
        self.skipped: Counter[str] = Counter()
        self._dice, self._folder = random.Random(seed), folder
        self._parser = UntrustedParser(self.children.start)
        self._asked = 0
        self._programs = list(self._compiled())
        self._watched = list(self._watch_files(seed))
        self._runs = [recorded_findings(name) for name in NAMES]
        record(self._folder / "watch.rec", moments(3, exit_code=3))
        head, _, packed = (self._folder / "watch.rec").read_bytes().partition(b"\n")
        self._head, self._lines = head, zlib.decompress(packed).splitlines()
        self.kinds: dict[str, Round] = {
            "names": self.names,
            "elf": self.elf,
            "compiled": self.compiled,
            "lines": self.lines,
            "runs": self.runs,
            "recording": self.recording,
            "watch": self.watch,
            "control": self.control,
        }

    def names(self) -> None:
        """Mangled names: those that double, and changed ones, among valid ones that have to come."""
        dice = self._dice
        name = files.doubling_name(dice.choice((2, 8, 12, 14, 20, 24, 40, 80)))
        letters = list(name)
        for _ in range(dice.choice((0, 0, 1, 4, 16))):
            letters[dice.randrange(2, len(letters))] = dice.choice("0123456789_AEFILNPRSTXZabcdijlsv$.")
        asked = ["_Z3addPf", "".join(letters), "_Z5solvei"]
        texts = self._renewed("names").demangled(asked)
        assert all(
            texts.get(name) in (name, text) for name, text in (("_Z3addPf", "add(float*)"), ("_Z5solvei", "solve(int)"))
        )
        assert all(map(is_printable, texts.values()))

    def elf(self) -> None:
        """Files of counts times lengths, some with changed bytes."""
        dice = self._dice
        length, count = (round(10 ** dice.uniform(0, most)) for most in (6, 4))
        raw = dice.choice(
            (
                lambda: files.long_folder(length, count, dice.choice((2, 3, 4))),
                lambda: files.shared_line_string(10 * length, count, compressed=dice.random() < 0.5),
                lambda: files.long_address(min(length, 500_000), 50 * count),
                lambda: files.many_rows(100 * count),
                lambda: files.many_notes(6 * count, min(length, 1 << 18)),
                lambda: files.repeated_symbols(1 + count // 50, 10 * length),
                lambda: files.nearly_endless([1 + count // 20]),
            )
        )()
        self._read(self._changed(raw) if dice.random() < 0.5 else raw, range(files.ADDRESS, files.ADDRESS + ADDRESSES))

    def compiled(self) -> None:
        """Programs of a compiler with changed bytes."""
        self._read(self._changed(self._dice.choice(self._programs)), range(0x1100, 0x1200, 256 // ADDRESSES))

    def lines(self) -> None:
        """Programs of a compiler with bytes changed in a section of their debug information."""
        dice, raw = self._dice, bytearray(self._dice.choice(self._programs))
        sections = list(_debug_sections(raw))
        for _ in range(dice.choice((1, 2, 4, 16, 64))):
            at, size = dice.choice(sections)
            raw[at + dice.randrange(size)] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        self._read(bytes(raw), range(0x1100, 0x1200, 256 // ADDRESSES))

    def runs(self) -> None:
        """A file of runs with changed values or bytes, compared with a run as it was."""
        dice, path = self._dice, self._folder / "runs"
        run = dice.choice(self._runs)
        seed, text = dice.randrange(2**32), document(run)
        if dice.random() < 0.3:
            raw = next(damaged(gzip.compress(json.dumps(text).encode()), seed, 1))
        else:
            raw = json.dumps(self._other(text)).encode() + b"\n"
        path.write_bytes(raw)
        try:
            changed = run_file.load(path)
            for sides in (([run], list(changed)), (list(changed), [run])):
                out = io.StringIO()
                runs_text.show(TextWriter(out, width=80), compare(*sides, force=True))
                assert all(is_printable(line) for line in out.getvalue().splitlines())
        except (RunFileError, NotComparable) as error:
            self._refused("runs", error)

    def recording(self) -> None:
        """A recording of `watch` with changed values, whose checksums are right, or with changed bytes."""
        dice, path = self._dice, self._folder / "changed.rec"
        seed = dice.randrange(2**32)
        if dice.random() < 0.3:
            path.write_bytes(next(damaged((self._folder / "watch.rec").read_bytes(), seed, 1)))
        else:
            lines = [line.partition(b" ")[2] for line in self._lines]
            place = dice.randrange(len(lines))
            lines[place] = json.dumps(self._other(json.loads(lines[place]))).encode()
            packed = zlib.compress(b"".join(f"{zlib.crc32(line):08x} ".encode() + line + b"\n" for line in lines))
            path.write_bytes(self._head + b"\n" + packed)
        try:
            with contextlib.closing(WatchRecording(path)) as recording:
                for number in range(len(recording)):
                    document(recording.at(number).moment.findings)
        except RecordingError as error:
            self._refused("recording", error)

    def _other(self, value: Any) -> Any:
        """A document with any change, or with other numbers alone, which more often passes."""
        dice = self._dice
        if dice.random() < 0.3:
            return next(mutants(value, dice.randrange(2**32), 1))
        changed = json.loads(json.dumps(value))
        places = list(_numbers(changed))
        for container, key in dice.choices(places, k=dice.choice((1, 2, 4))) if places else ():
            number = container[key]
            container[key] = dice.choice((0, 1, -1, 0.5, number + 1, number * 2, 2**53, 2**61, 1e300))
        return changed

    def _refused(self, kind: str, error: Exception) -> None:
        self.skipped[kind] += 1
        if not is_printable(str(error)):
            raise ValueError(f"not printable: {error}") from error

    def watch(self) -> None:
        """Recorded watch files with changed fields, to every output."""
        folder, damaged = self._dice.choice(self._watched)
        with damaged.changed():
            problems = use(folder, self._folder)
        self.skipped["watch"] += bool(problems)

    def control(self) -> None:
        """A control that changes all the time, attached and detached."""
        user = NOBODY if os.geteuid() == 0 else os.geteuid()
        with hostile(lambda: ForgedControl().scramble(self._dice.randrange(2**32)), user) as pid:
            for _ in range(ATTACHMENTS):
                processes = AttachedProcesses()
                try:
                    attachment = processes.attach(pid, WatchOptions())
                    shown = (attachment.waits_for, attachment.problem, attachment.held_up_ns, attachment.stopped_ns)
                    assert all(is_printable(str(text)) for text in shown)
                    for path in processes.files():
                        with contextlib.suppress(WatchError), processes.open(path) as file:
                            file.read()
                    attachment.detach()
                except WatchError as error:
                    self._refused("control", error)
                finally:
                    processes.close()

    def close(self) -> None:
        """End the parser."""
        self._parser.close()

    def _read(self, raw: bytes, addresses: range) -> None:
        path = self._folder / "library.so"
        path.write_bytes(raw)
        # The same name with other contents.
        found = CodeFiles(self._renewed("files")).code(str(path), b"", addresses)
        assert set(found.names) | set(found.lines) <= set(addresses)
        texts = (text for lines in found.lines.values() for line in lines for text in line[:2])
        assert all(map(is_printable, (*found.names.values(), *texts)))

    def _renewed(self, kind: str) -> UntrustedParser:
        """The parser, a new one from time to time. What the last request skipped is counted."""
        self._asked += 1
        if self._asked % RENEWED == 0:
            self.skipped.update({asked.name.lower(): number for asked, number in self._parser.skipped.items()})
            self._parser.close()
            self._parser = UntrustedParser(self.children.start)
        return self._parser

    def _changed(self, raw: bytes) -> bytes:
        """A copy with some bytes or numbers changed, most of them in headers and tables, or cut."""
        dice, changed = self._dice, bytearray(raw)
        for _ in range(dice.choice((1, 2, 4, 16))):
            at = dice.choice((dice.randrange(64), dice.randrange(len(raw)), max(len(raw) - dice.randrange(1, 2048), 0)))
            size = dice.choice((1, 2, 4, 8))
            number = dice.choice((*ODD_NUMBERS, len(raw), len(raw) - 1, dice.randrange(2**32)))
            changed[at : at + size] = (number % 2 ** (8 * size)).to_bytes(size, "little")
        return bytes(changed[: dice.randrange(len(changed))] if dice.random() < 0.1 else changed)

    def _compiled(self) -> Iterator[bytes]:
        assert COMPILER is not None, "this benchmark needs a C compiler"
        source, program = self._folder / "source.c", self._folder / "program"
        source.write_text(SOURCE)
        for options in (["-gdwarf-2"], ["-gdwarf-4"], ["-gdwarf-5"], ["-g", "-gz=zlib"], ["-g", "-gdwarf64"]):
            done = subprocess.run([COMPILER, *options, "-o", str(program), str(source)], capture_output=True)
            if not done.returncode:
                yield program.read_bytes()

    def _watch_files(self, seed: int) -> Iterator[tuple[Path, DamagedFile]]:
        for name in PROGRAMS:
            folder = self._folder / name
            folder.mkdir(mode=0o700)
            recorded(name, folder)
            for path in watch_files(folder):
                yield folder, DamagedFile(path, seed)


def _numbers(value: Any) -> Iterator[tuple[Any, Any]]:
    """Container and key of each number in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if isinstance(item, int | float) and not isinstance(item, bool):
            yield value, key
        else:
            yield from _numbers(item)


def _debug_sections(raw: bytearray) -> Iterator[tuple[int, int]]:
    """Place and size of each section with debug information in an ELF file."""
    (table,) = struct.unpack_from("<Q", raw, 40)
    size, count, names = struct.unpack_from("<HHH", raw, 58)
    headers = [struct.unpack_from("<IIQQQQ", raw, table + number * size) for number in range(count)]
    for name, _type, _flags, _address, at, length in headers:
        begin = headers[names][4] + name
        if raw[begin : begin + 7] == b".debug_" and length:
            yield at, length


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", default="names,elf,compiled,lines,runs,recording,watch,control")
    options = parser.parse_args()
    # What does not answer is not waited for as long as a program is.
    attaching.ANSWER_S = attaching.DETACH_S = attaching._SENDING_S = 0.2
    rounds: Counter[str] = Counter()
    printed: set[str] = set()
    tracebacks, longest_s, next_s = 0, 0.0, PRINTED_S
    with tempfile.TemporaryDirectory() as folder:
        mutation = Mutation(options.seed, Path(folder))
        began_s = time.monotonic()

        def line() -> str:
            signals = Counter(number for number in mutation.children.signals if number not in (0, 9))
            own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
            return (
                f"{time.monotonic() - began_s:6.0f} s: rounds {dict(rounds)}, skipped {dict(mutation.skipped)}, "
                f"signals {dict(signals)}, tracebacks {tracebacks}, longest {longest_s:.1f} s, "
                f"peak {mutation.children.peak_bytes / 1e6:.0f} MB, here {own:.0f} MB"
            )

        for kind in itertools.cycle(options.kind.split(",")):
            if time.monotonic() - began_s >= 60 * options.minutes:
                break
            round_s = time.monotonic()
            try:
                mutation.kinds[kind]()
            except Exception as error:
                tracebacks += 1
                if str(error) not in printed:
                    printed.add(str(error))
                    print(f"round {rounds[kind]} of {kind}, seed {options.seed}:\n{traceback.format_exc()}", flush=True)
            rounds[kind] += 1
            longest_s = max(longest_s, time.monotonic() - round_s)
            if time.monotonic() - began_s >= next_s:
                print(line(), flush=True)
                next_s += PRINTED_S
        mutation.close()
        print(line())
    return int(tracebacks > 0 or longest_s > ROUND_S or mutation.children.peak_bytes > PEAK_BYTES)


if __name__ == "__main__":
    sys.exit(main())
