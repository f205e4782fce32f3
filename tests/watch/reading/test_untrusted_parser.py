"""Process that parses names and files: its limits against hostile ones, and its client against a hostile process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from factories.hostile_files import (
    ADDRESS,
    doubling_name,
    long_address,
    long_folder,
    many_notes,
    many_rows,
    nearly_endless,
    repeated_symbols,
    shared_line_string,
    with_function,
)
from factories.parser_children import ParserChildren, ScriptedChildren, status_of
from stallprobes.watch.reading import kernel_names, untrusted_parser
from stallprobes.watch.reading.code_files import CodeFiles, open_regular
from stallprobes.watch.reading.code_lines import CodeLine
from stallprobes.watch.reading.demangler import demangler
from stallprobes.watch.reading.elf_symbols import CodePlaces
from stallprobes.watch.reading.parser_messages import HEADER, ParserAnswer, ParserRequest, receive_content
from stallprobes.watch.reading.untrusted_parser import MAX_FAILURES, UntrustedParser

pytestmark = pytest.mark.trust

NAMES, FILE = ParserRequest.NAMES, ParserRequest.FILE
PEAK_BYTES = 300 << 20
PLAIN = {"_Z3addPf": "add(float*)", "_Z5solvei": "solve(int)"}
# Far longer than any test takes, where only the number of failures or the CPU time may decide.
PATIENT_S = 60.0
needs_demangler = pytest.mark.skipif(demangler() is None, reason="no C++ library")


@pytest.fixture
def children() -> ParserChildren:
    return ParserChildren()


@pytest.fixture
def parser(children: ParserChildren) -> Iterator[UntrustedParser]:
    """A parser with real processes, whose memory stays within its limits."""
    made = UntrustedParser(children.start, PATIENT_S)
    yield made
    made.close()
    assert children.peak_bytes <= PEAK_BYTES


def code(parser: UntrustedParser, raw: bytes, *addresses: int) -> CodePlaces | None:
    """What ``parser`` has of a file with the content ``raw``."""
    descriptor = os.memfd_create("file", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(raw)
        return parser.code(descriptor, b"", addresses or (ADDRESS,))
    finally:
        os.close(descriptor)


def test_it_imports_neither_numpy_nor_msgspec() -> None:
    program = (
        "import sys, stallprobes.watch.reading.parser_process; "
        "sys.exit(any(name in sys.modules for name in ('numpy', 'msgspec', 'asyncio', 'subprocess')))"
    )
    assert (
        subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": os.pathsep.join(sys.path)}).returncode == 0
    )


@needs_demangler
def test_it_has_its_connection_and_no_rights(parser: UntrustedParser, children: ParserChildren) -> None:
    assert parser.demangled(list(PLAIN)) == PLAIN
    (pid,) = children.pids
    (descriptor,) = Path(f"/proc/{pid}/fd").iterdir()
    assert os.readlink(descriptor).startswith("socket:")
    assert [int(status_of(pid, field), 16) for field in ("CapPrm", "CapEff", "CapInh", "CapAmb")] == [0] * 4
    assert status_of(pid, "NoNewPrivs") == "1"
    if os.geteuid() == 0:
        assert status_of(pid, "Uid").split() == ["65534"] * 4
    limits = {line[:26].strip(): line[26:].split()[:2] for line in Path(f"/proc/{pid}/limits").read_text().splitlines()}
    assert limits["Max data size"] == [str(256 << 20)] * 2
    assert limits["Max open files"] == ["4"] * 2
    assert limits["Max core file size"] == limits["Max file size"] == limits["Max processes"] == ["0"] * 2
    assert Path(f"/proc/{pid}/environ").read_bytes() in (
        b"",
        f"LD_LIBRARY_PATH={os.environ.get('LD_LIBRARY_PATH')}\0".encode(),
    )


def test_it_ends_with_its_connection(children: ParserChildren) -> None:
    connection, _, end = children.start()
    connection.close()
    # Waits for its end: it is not killed.
    assert os.waitid(os.P_PID, children.pids[0], os.WEXITED | os.WNOWAIT) is not None
    end()
    assert children.signals == [0]


@needs_demangler
@pytest.mark.parametrize("parameters", [13, 24, 26, 60])
def test_a_name_that_stands_for_gigabytes_is_skipped_and_the_others_come(
    parser: UntrustedParser, parameters: int
) -> None:
    bomb = doubling_name(parameters)
    first, second = PLAIN
    assert parser.demangled([first, bomb, second]) == PLAIN
    assert parser.skipped == {NAMES: 1}


def test_names_are_given_up_where_all_fail() -> None:
    failing = ScriptedChildren(asked)
    parser = UntrustedParser(failing.start, PATIENT_S)
    assert parser.demangled([f"_Z3ad{letter}Pf" for letter in "abcdefghijkl"]) == {}
    assert (parser.skipped, failing.started, failing.ended) == ({NAMES: 12}, MAX_FAILURES, MAX_FAILURES)
    # Files are another kind.
    assert code(parser, with_function()) is None
    assert failing.started == MAX_FAILURES + 2


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(lambda: long_folder(500_000, 10_000), id="one long folder of many files"),
        pytest.param(lambda: shared_line_string(8 << 20, 1000), id="one long name of many files"),
        pytest.param(lambda: shared_line_string(8 << 20, 1000, compressed=False), id="the same, not compressed"),
        pytest.param(lambda: long_address(500_000, 500_000), id="an address of 500 kB and many rows"),
        pytest.param(lambda: many_notes(60_000, 1 << 18), id="notes that many headers name"),
        pytest.param(lambda: nearly_endless([512]), id="strings that inflate a thousand times"),
    ],
)
def test_a_file_with_tables_that_stand_for_gigabytes_has_its_functions(
    parser: UntrustedParser, raw: Callable[[], bytes]
) -> None:
    assert code(parser, raw()) == CodePlaces({ADDRESS: "solve"}, {})
    assert parser.skipped == {}


def test_symbols_that_many_headers_name_are_skipped_and_counted(parser: UntrustedParser) -> None:
    assert code(parser, repeated_symbols(200, 9_600_000)) is None
    assert parser.skipped == {FILE: 1}
    # A table that two headers name in the same way counts once; the process is the same.
    assert code(parser, repeated_symbols(2, 24_000)) == CodePlaces({ADDRESS: "solve"}, {})


def test_a_table_with_a_row_for_each_byte_is_read(parser: UntrustedParser) -> None:
    found = code(parser, many_rows(1_000_000), *range(ADDRESS + 1, ADDRESS + 600))
    assert found is not None
    assert found.lines[ADDRESS + 1] == (CodeLine("", "a.c", 1),)
    # More than fit into one request.
    assert (len(found.lines), len(found.names)) == (599, 255)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_file_of_a_known_form_has_its_lines(parser: UntrustedParser, version: int) -> None:
    assert code(parser, long_folder(3, 2, version)) == CodePlaces(
        {ADDRESS: "solve"}, {ADDRESS: (CodeLine("", "fff/a0", 7),)}
    )
    assert code(parser, shared_line_string(3, 2)) == CodePlaces(
        {ADDRESS: "solve"}, {ADDRESS: (CodeLine("", "nnn/nnn", 7),)}
    )


def test_a_file_that_takes_too_much_time_is_skipped_once(tmp_path: Path) -> None:
    path = tmp_path / "library.so"
    path.write_bytes(with_function())
    hanging = ScriptedChildren(wait_for_the_end)
    parser = UntrustedParser(hanging.start, seconds=0.05)
    files = CodeFiles(parser)
    for _ in range(3):
        assert files.code(str(path), b"", [ADDRESS]) == CodePlaces({}, {})
    assert files.skipped == {str(path)}
    # With its lines, and without them.
    assert (parser.skipped, hanging.started, hanging.ended) == ({FILE: 1}, 2, 2)


def wait_for_the_end(connection: socket.socket) -> None:
    """Read all requests and answer none."""
    while connection.recv(1 << 16):
        pass


def answer(kind: int, content: bytes) -> bytes:
    return HEADER.pack(len(content), kind) + content


def file_answer(**content: object) -> bytes:
    return answer(ParserAnswer.FOUND, json.dumps(content).encode())


def asked(connection: socket.socket) -> Any:
    """The content of the next request."""
    header, descriptors, _, _ = socket.recv_fds(connection, HEADER.size, 1)
    if not header:
        raise ConnectionError
    for descriptor in descriptors:
        os.close(descriptor)
    return json.loads(receive_content(connection, HEADER.unpack(header)[0]))


def replying(reply: bytes) -> Callable[[socket.socket], None]:
    """What answers a request with ``reply`` and waits for the end."""

    def script(connection: socket.socket) -> None:
        asked(connection)
        connection.sendall(reply)
        connection.recv(1)

    return script


BAD_NAMES = {
    "no answer": b"",
    "junk": b"\xff" * 64,
    "an unknown kind": answer(9, b'"add"'),
    "no text": answer(ParserAnswer.FOUND, b"7"),
    "no JSON": answer(ParserAnswer.FOUND, b"add"),
    "no UTF-8": answer(ParserAnswer.FOUND, b'"\xff\xfe"'),
    "a long text": answer(ParserAnswer.FOUND, b'"' + b"x" * 20_000 + b'"'),
    "an escape code": answer(ParserAnswer.FOUND, b'"\\u001b[2J"'),
    "a size without content": HEADER.pack(100, ParserAnswer.FOUND),
    "a huge size": HEADER.pack(2**32 - 1, ParserAnswer.FOUND) + b"x" * 1000,
}
BAD_FILES = {
    "junk": b"\xff" * 64,
    "no members": file_answer(),
    "an unknown member": file_answer(names=[], texts=[], lines=[], other=1),
    "an address that was not asked for": file_answer(names=[[ADDRESS + 1, "x"]], texts=[], lines=[]),
    "a line of another address": file_answer(names=[], texts=["x"], lines=[[ADDRESS + 1, [[0, 0, 1]]]]),
    "a name twice": file_answer(names=[[ADDRESS, "x"], [ADDRESS, "y"]], texts=[], lines=[]),
    "a negative line": file_answer(names=[], texts=["x"], lines=[[ADDRESS, [[0, 0, -1]]]]),
    "a huge line": file_answer(names=[], texts=["x"], lines=[[ADDRESS, [[0, 0, 2**40]]]]),
    "an address without a line": file_answer(names=[], texts=["x"], lines=[[ADDRESS, []]]),
    "a text that there is not": file_answer(names=[], texts=["x"], lines=[[ADDRESS, [[0, 1, 1]]]]),
    "a negative text": file_answer(names=[], texts=["x"], lines=[[ADDRESS, [[0, -1, 1]]]]),
    "many inlined functions": file_answer(names=[], texts=["x"], lines=[[ADDRESS, [[0, 0, 1]] * 100]]),
    "a long name": file_answer(names=[[ADDRESS, "x" * 5000]], texts=[], lines=[]),
    "many names": file_answer(names=[[ADDRESS, "x"]] * 1000, texts=[], lines=[]),
    "a direction mark": file_answer(names=[[ADDRESS, "x\u202ey"]], texts=[], lines=[]),
    "a direction mark in a text": file_answer(names=[], texts=["x\u202ey"], lines=[[ADDRESS, [[0, 0, 1]]]]),
    "deep nesting": answer(ParserAnswer.FOUND, b"[" * 100_000),
}


@pytest.mark.parametrize("reply", BAD_NAMES.values(), ids=BAD_NAMES)
def test_a_bad_answer_to_names_is_skipped_and_counted(reply: bytes) -> None:
    hostile = ScriptedChildren(replying(reply))
    parser = UntrustedParser(hostile.start, seconds=0.05)
    assert parser.demangled(["_Z3addPf"]) == {}
    assert (parser.skipped, hostile.started, hostile.ended) == ({NAMES: 1}, 1, 1)


@pytest.mark.parametrize("reply", BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_answer_about_a_file_is_skipped_and_counted(reply: bytes) -> None:
    hostile = ScriptedChildren(replying(reply))
    parser = UntrustedParser(hostile.start, seconds=0.05)
    assert code(parser, with_function()) is None
    # With its lines, and without them.
    assert (parser.skipped, hostile.started, hostile.ended) == ({FILE: 1}, 2, 2)


def test_a_file_whose_lines_exceed_the_limits_has_its_functions() -> None:
    def script(connection: socket.socket) -> None:
        while True:
            request = asked(connection)
            if request["lines"]:
                connection.close()
                return
            connection.sendall(file_answer(names=[[ADDRESS, "solve"]], texts=[], lines=[]))

    children = ScriptedChildren(script)
    parser = UntrustedParser(children.start, PATIENT_S)
    descriptor = os.memfd_create("file", os.MFD_CLOEXEC)
    try:
        for _ in range(3):
            assert parser.code(descriptor, b"", [ADDRESS]) == CodePlaces({ADDRESS: "solve"}, {})
    finally:
        os.close(descriptor)
    # Its lines were asked for once.
    assert (parser.skipped, children.started) == ({}, 2)


def test_more_answers_than_names_are_no_answers_to_the_next_request() -> None:
    reply = answer(ParserAnswer.FOUND, b'"add"')
    hostile = ScriptedChildren(replying(3 * reply))
    parser = UntrustedParser(hostile.start, PATIENT_S)
    assert parser.demangled(["_Z3addPf"]) == {"_Z3addPf": "add"}
    assert parser.demangled(["_Z5solvei"]) == {"_Z5solvei": "add"}
    assert (parser.skipped, hostile.started) == ({}, 2)


def test_a_process_without_a_cpu_has_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    late = threading.Event()
    began_s = time.monotonic()

    def starved(process: Path | None) -> tuple[int, int]:
        assert process in (None, Path("/proc/7"))
        if time.monotonic() - began_s > 0.05:
            late.set()
        return round((time.monotonic() - began_s) * 1e9), 0

    def script(connection: socket.socket) -> None:
        while True:
            asked(connection)
            late.wait()
            connection.sendall(answer(ParserAnswer.FOUND, b'"add"'))

    monkeypatch.setattr(untrusted_parser, "times_of", starved)
    parser = UntrustedParser(ScriptedChildren(script, pid=7).start, seconds=0.05)
    assert parser.demangled(["_Z3addPf"]) == {"_Z3addPf": "add"}
    # It has a CPU, and waits; or it lacks one for ever.
    for lacked, most_s in ((0, 25.0), (1, 0.05)):
        monkeypatch.setattr(untrusted_parser, "times_of", lambda _, each=lacked: (each * time.monotonic_ns(), 0))
        monkeypatch.setattr(untrusted_parser, "MAX_LACKED_S", most_s)
        parser = UntrustedParser(ScriptedChildren(wait_for_the_end, pid=7).start, seconds=0.05)
        assert parser.demangled(["_Z3addPf"]) == {}


def test_a_descriptor_in_an_answer_is_not_taken() -> None:
    def script(connection: socket.socket) -> None:
        while True:
            asked(connection)
            socket.send_fds(connection, [answer(ParserAnswer.FOUND, b'"add"')], [0, 1, 2])

    parser = UntrustedParser(ScriptedChildren(script).start, PATIENT_S)
    assert parser.demangled(["_Z3addPf"]) == {"_Z3addPf": "add"}
    before = len(os.listdir("/proc/self/fd"))
    assert parser.demangled(["_Z5solvei"]) == {"_Z5solvei": "add"}
    assert len(os.listdir("/proc/self/fd")) == before


@needs_demangler
def test_a_process_that_ends_between_requests_loses_nothing(parser: UntrustedParser, children: ParserChildren) -> None:
    first, second = PLAIN
    assert parser.demangled([first]) == {first: PLAIN[first]}
    os.kill(children.pids[0], 9)
    os.waitid(os.P_PID, children.pids[0], os.WEXITED | os.WNOWAIT)
    assert parser.demangled([second]) == {second: PLAIN[second]}
    assert (parser.skipped, len(children.pids)) == ({}, 2)


def test_a_process_that_cannot_be_started_is_not_tried_for_ever() -> None:
    tries = 0

    def refuse() -> tuple[socket.socket, int, Callable[[], None]]:
        nonlocal tries
        tries += 1
        raise PermissionError

    parser = UntrustedParser(refuse)
    assert parser.demangled([f"_Z3ad{letter}Pf" for letter in "abcdefghijkl"]) == {}
    for _ in range(12):
        assert code(parser, with_function()) is None
    assert parser.skipped == {NAMES: 12, FILE: 12}
    assert tries == 2 * MAX_FAILURES


@needs_demangler
def test_threads_share_a_parser(parser: UntrustedParser, children: ParserChildren) -> None:
    answers: list[dict[str, str]] = []

    def ask(number: int) -> None:
        for round_number in range(20):
            answers.append(parser.demangled([f"_Z4f{number}{round_number:02d}v"]))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 80
    assert all(text == name[3:-1] + "()" for found in answers for name, text in found.items())
    assert len(children.pids) == 1


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    pipe, file, link, loop = (tmp_path / name for name in ("pipe", "file", "link", "loop"))
    os.mkfifo(pipe)
    file.write_bytes(b"x")
    link.symlink_to(file)
    loop.symlink_to(loop)
    for path in (pipe, loop, tmp_path, tmp_path / "missing", Path("/dev/zero"), Path("/dev/tty"), Path("a\0b")):
        assert open_regular(str(path)) is None
    for path in (file, link):
        descriptor = open_regular(str(path))
        assert descriptor is not None
        assert os.read(descriptor, 2) == b"x"
        os.close(descriptor)


@needs_demangler
def test_names_that_are_not_mangled_need_no_process(children: ParserChildren) -> None:
    kernel_names.use(UntrustedParser(children.start, PATIENT_S))
    try:
        assert kernel_names.demangle_all(["gemm", "", "_Z", "x_Z3addPf"]) == {
            name: name for name in ("gemm", "", "_Z", "x_Z3addPf")
        }
        assert children.pids == []
        bomb = doubling_name(60)
        found = kernel_names.demangle_all(["gemm", bomb, *PLAIN])
        assert found == {"gemm": "gemm", bomb: f"{bomb[:200]}…", **PLAIN}
        assert len(children.pids) == 2
        # All are known now.
        assert [kernel_names.demangled(name) for name in found] == list(found.values())
        assert kernel_names.present_parser().skipped == {NAMES: 1}
        kernel_names.present_parser().close()
    finally:
        kernel_names.use(None)


def test_kept_names_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(connection: socket.socket) -> None:
        while True:
            header, _, _, _ = socket.recv_fds(connection, HEADER.size, 1)
            if not header:
                return
            for name in json.loads(receive_content(connection, HEADER.unpack(header)[0])):
                connection.sendall(answer(ParserAnswer.FOUND, json.dumps(name.lower()).encode()))

    monkeypatch.setattr(kernel_names, "_MAX_KEPT", 1000)
    kernel_names.use(UntrustedParser(ScriptedChildren(script).start, PATIENT_S))
    try:
        names = [f"_ZN{number:06d}" for number in range(2000)]
        assert kernel_names.demangle_all(names) == {name: name.lower() for name in names}
        assert len(kernel_names._names._kept) < len(names)
        assert kernel_names.demangle_all(names) == {name: name.lower() for name in names}
    finally:
        kernel_names.use(None)


def test_time_that_is_lost_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 20))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    hostile = ScriptedChildren(replying(b""))
    parser = UntrustedParser(hostile.start, seconds=10)
    assert parser.demangled([f"_Z3ad{letter}Pf" for letter in "abcd"]) == {}
    assert parser.skipped == {NAMES: 4}
    assert hostile.started < 4
