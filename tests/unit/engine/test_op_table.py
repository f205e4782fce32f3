from __future__ import annotations

import ctypes
from collections.abc import Sequence

import pytest

from stallprobes.engine.backend import failed_op
from stallprobes.engine.host_resolver import CACHE_LINE, HostMemory, HostResolver, error_text, read, write
from stallprobes.engine.op_table import OpTable, compile_program
from stallprobes.errors import Unsupported
from stallprobes.model import (
    Arg,
    Buffer,
    BufferPart,
    Channel,
    Guard,
    HostFunction,
    Load,
    Op,
    Phase,
    Program,
    Space,
    Stream,
    Text,
    Word,
    op_name,
)
from stallprobes.native.layouts.program import OpFlag


def host_program(
    *ops: Op, setup: tuple[Op, ...] = (), guard: Guard | None = None, proof: Word | None = None
) -> Program:
    return Program(ops, context=None, setup=setup, guard=guard, proof=proof)


def compiled(*ops: Op) -> OpTable:
    return compile_program(host_program(*ops), HostResolver(HostMemory()))


def test_each_measured_op_fills_the_channel_of_its_phase_and_its_label() -> None:
    program = host_program(
        Op("native:nothing", phase=None),
        Op("native:nothing", phase=Phase.CALL, label="first"),
        Op("native:nothing", phase=Phase.WAIT),
    )
    table = compile_program(program, HostResolver(HostMemory()))
    channels = program.channels
    assert [row.channel for row in table.ops] == [
        -1,
        channels.index(Channel(Phase.CALL)),
        channels.index(Channel(Phase.WAIT)),
    ]
    assert [row.label_channel for row in table.ops] == [-1, channels.index(Channel(Phase.CALL, "first")), -1]


def test_setup_ops_are_never_measured() -> None:
    program = host_program(Op("native:nothing"), setup=(Op("native:nothing", label="made"),))
    table = compile_program(program, HostResolver(HostMemory()))
    assert table.setup[0].channel == -1
    assert table.setup[0].label_channel == -1


def test_a_load_passes_the_address_and_marks_the_argument() -> None:
    memory = HostMemory()
    word = Word("pointer")
    program = host_program(Op("libc:munmap", (Load(word), 4096)), Op("native:store", (word, 7)))
    table = compile_program(program, HostResolver(memory))
    assert [row.load_mask for row in table.ops] == [0b01, 0]
    assert [row.arguments[0] for row in table.ops] == [memory.word(word)] * 2
    assert table.ops[0].arguments[1] == 4096


def test_a_part_of_a_buffer_is_its_address_and_the_offset() -> None:
    memory = HostMemory()
    buffer = Buffer("b", Space.PAGEABLE, 8192)
    table = compile_program(host_program(Op("native:add", (BufferPart(buffer, 4096), 1))), HostResolver(memory))
    assert table.ops[0].arguments[0] == memory.pageable(buffer) + 4096


def test_return_values_samples_fine_codes_and_repeats_get_their_columns() -> None:
    memory = HostMemory()
    result, sample = Word("result"), Word("sample")
    program = host_program(
        Op("libc:mmap", (0, 4096, 3, 34, -1, 0), into=result),
        Op("native:nothing", value=sample),
        Op("native:wait", (result, 1, 0), ok=(1, 600), repeat=5),
    )
    ops = compile_program(program, HostResolver(memory)).ops
    assert [row.into for row in ops] == [memory.word(result), 0, 0]
    assert [row.value for row in ops] == [0, memory.word(sample), 0]
    assert [row.flags for row in ops] == [OpFlag.RETURN_IS_VALUE, OpFlag.SAMPLE_IS_FLOAT_MS, 0]
    assert ops[2].accepted[:] == [1, 600, -1]
    assert [row.repeat for row in ops] == [1, 1, 5]


def test_guard_and_proof_become_addresses() -> None:
    memory = HostMemory()
    started = Word("started")
    program = host_program(Op("native:add", (started, 1)), guard=Guard(started, ahead=2), proof=started)
    table = compile_program(program, HostResolver(memory))
    assert (table.guard_address, table.guard_ahead) == (memory.word(started), 2)
    assert table.proof_address == memory.word(started)
    plain = compiled(Op("native:nothing"))
    assert (plain.guard_address, plain.guard_ahead, plain.proof_address) == (0, 0, 0)


def test_unsigned_64_bit_arguments_keep_their_bits() -> None:
    assert compiled(Op("native:work", ((1 << 64) - 1,))).ops[0].arguments[0] == -1


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (Op("native:nothing", tuple(range(12))), "12 arguments"),
        (Op("native:nothing", ok=(1, 2, 3, 4)), "4 accepted codes"),
        (Op("native:nothing", (1 << 64,)), "64 bits"),
        (Op("native:nothing", repeat=0), "repeat 0"),
    ],
)
def test_an_op_that_does_not_fit_a_row_is_refused(op: Op, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        compiled(op)


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (Op("cuLaunchKernel"), "cuLaunchKernel needs a GPU"),
        (Op("libc:no_such_function"), "no libc:no_such_function"),
        (Op("native:no_such_helper"), "no native:no_such_helper"),
        (Op("native:nothing", (Stream(),)), "a stream needs a GPU"),
        (Op("native:nothing", (Buffer("b", Space.PINNED, 64),)), "a buffer needs a GPU"),
        (Op("native:nothing", (Word("w", mapped=True),)), "needs a GPU"),
        (Op("native:nothing", (Buffer("b", Space.PAGEABLE, 1 << 60),)), "bytes of memory"),
    ],
)
def test_what_the_host_has_not_got_is_unsupported_with_the_reason(op: Op, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        compiled(op)


def test_a_resolver_may_spell_an_ops_arguments_otherwise() -> None:
    class Spelling(HostResolver):
        def lower(self, op: Op) -> Sequence[Arg] | None:
            return (3, Load(Word("w")), *op.args) if op.fn == "native:nothing" else None

    memory = HostMemory()
    table = compile_program(host_program(Op("native:nothing", (5,)), Op("native:work", (6,))), Spelling(memory))
    assert table.ops[0].arguments[:3] == [3, memory.word(Word("w")), 5]
    assert table.ops[0].load_mask == 0b10
    assert table.ops[1].arguments[0] == 6


def test_shared_words_are_one_word_and_others_are_each_probes_own() -> None:
    session = HostMemory()
    one, other = HostMemory(session), HostMemory(session)
    shared, own = Word("gate", shared=True), Word("gate")
    assert one.word(shared) == other.word(shared)
    assert one.word(own) != other.word(own)
    assert one.word(own) == one.word(own)


def test_no_two_words_share_a_cache_line() -> None:
    memory = HostMemory()
    addresses = [memory.word(Word(str(number))) for number in range(50)]
    assert len({address // CACHE_LINE for address in addresses}) == 50
    assert all(address % 8 == 0 and read(address) == 0 for address in addresses)


def test_a_pageable_buffer_has_been_written() -> None:
    memory = HostMemory()
    buffer = Buffer("b", Space.PAGEABLE, 3 * 4096 + 5)
    assert ctypes.string_at(memory.pageable(buffer), buffer.nbytes) == b"\x01" * buffer.nbytes


def test_a_text_is_a_c_string() -> None:
    assert ctypes.string_at(HostMemory().text(Text("first"))) == b"first"


def test_a_gate_looks_at_its_words_and_can_be_opened() -> None:
    memory = HostMemory()
    word, forced = Word("open"), Word("forced")
    resolver = HostResolver(memory)
    data = resolver.value(HostFunction("gate", word, forced, 1_000_000))
    assert [read(data + 8 * number) for number in range(3)] == [memory.word(word), memory.word(forced), 1_000_000]
    memory.open_gates()
    assert read(memory.word(word)) == 1
    assert read(memory.word(forced)) == 0


def test_a_watchdog_that_was_asked_for_goes_before_the_programs() -> None:
    memory = HostMemory()
    data = HostResolver(memory, watchdog_ns=5).value(HostFunction("gate", Word("open"), Word("forced"), 1_000_000))
    assert read(data + 16) == 5


def test_a_watchdog_ends_what_waits_and_shortens_no_work() -> None:
    memory = HostMemory()
    resolver = HostResolver(memory, watchdog_ns=5)
    words = {name: Word(name) for name in ("gate", "mutex", "busy")}
    data = {name: resolver.value(HostFunction(name, word, Word("forced"), 1_000_000)) for name, word in words.items()}
    assert {name: read(at + 16) for name, at in data.items()} == {"gate": 5, "mutex": 5, "busy": 1_000_000}
    for word in words.values():
        write(memory.word(word), 7)
    memory.open_gates()
    assert {name: read(memory.word(word)) for name, word in words.items()} == {"gate": 1, "mutex": 0, "busy": 7}


def test_words_are_written_and_read_with_their_sign() -> None:
    address = HostMemory().word(Word("w"))
    write(address, -3)
    assert read(address) == -3


def test_error_numbers_find_their_op_and_its_words() -> None:
    program = host_program(Op("native:nothing"), Op("native:work", label="long"), setup=(Op("libc:getpid"),))
    assert op_name(failed_op(program, 2)) == "native:work (long)"
    assert op_name(failed_op(program, -1)) == "libc:getpid"
    assert error_text(Op("libc:clock_nanosleep"), 22) == "Invalid argument"
    assert error_text(Op("native:wait"), 1) == "timed out"
    assert error_text(Op("libc:poll"), -1) == "0 was expected"
