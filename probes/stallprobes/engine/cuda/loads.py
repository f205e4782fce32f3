"""Kernels that keep one unit of a GPU as busy as it can be, as PTX; each runs for a number of rounds."""

from __future__ import annotations

from typing import NamedTuple

# Number of independent chains of operations in a thread, and of operations of each chain in a round. Eight chains hide
# the latency of an operation (4 cycles, of a tensor product some 30) with the warps that fit.
_CHAINS, _LENGTH = 8, 16
# Number of elements in a row of the tensor product of a warp group (wgmma), and of its registers in a thread.
_COLUMNS, _SUMS = 256, 128
# Size (bytes) of the shared memory with the factors of such a product: 64 and 256 rows of 16 numbers of 16 bits.
_FACTORS = (64 + _COLUMNS) * 16 * 2
# Descriptor of a factor in shared memory without its address, in units of 16 bytes: the distances of parts of 8 rows
# along the row (128 bytes) and along the column (256 bytes), no swizzling (PTX ISA 8.0, 9.7.15.5.1).
_DESCRIPTOR = (128 >> 4) << 16 | (256 >> 4) << 32


class UnitLoad(NamedTuple):
    """A kernel: its PTX, its grid (blocks for each SM, threads), and the counter of the unit that it keeps busy.

    The kernel has three parameters: an address to write to, an address to read from, both of ``size`` bytes, and the
    number of rounds.
    """

    name: str
    counter: str
    ptx: str
    blocks: int
    threads: int


def _kernel(name: str, target: str, registers: str, before: str, body: str, after: str) -> str:
    """A kernel that runs ``body`` for a number of rounds."""
    version = "8.0" if target.endswith("a") else "7.0"
    return f"""
.version {version}
.target {target}
.address_size 64
.visible .entry {name}(.param .u64 to, .param .u64 from, .param .u64 size, .param .u32 rounds)
{{
    .reg .pred %more, %inside;
    .reg .b32 %rounds, %thread, %block, %threads;
    .reg .b64 %to;
    {registers}
    ld.param.u64 %to, [to];
    ld.param.u32 %rounds, [rounds];
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    cvta.to.global.u64 %to, %to;
    {before}
ROUND:
    {body}
    sub.u32 %rounds, %rounds, 1;
    setp.ne.u32 %more, %rounds, 0;
    @%more bra ROUND;
    {after}
    ret;
}}
"""


def _arithmetic(name: str, counter: str, kind: str, operation: str, make: str) -> UnitLoad:
    """A kernel of chains of ``operation`` on registers; ``make`` sets one from the number of the thread."""
    chains = range(_CHAINS)
    chain = [f"{operation} %c{at}, %c{at}, %scale, %scale;" for at in chains]
    return UnitLoad(
        name,
        counter,
        _kernel(
            name,
            "sm_80",
            f".reg .{kind} %scale, {', '.join(f'%c{at}' for at in chains)};",
            "\n    ".join(f"{make.format(each)}" for each in ("%scale", *(f"%c{at}" for at in chains))),
            "\n    ".join(chain * _LENGTH),
            "\n    ".join(f"st.global.{kind} [%to + {8 * at}], %c{at};" for at in chains),
        ),
        blocks=4,
        threads=512,
    )


def _mma() -> UnitLoad:
    """Tensor products of warps (mma.sync), which GPUs have from Ampere on."""
    sums = [[f"%s{at}_{place}" for place in range(4)] for at in range(_CHAINS)]
    products = [
        f"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{{', '.join(each)}}}, {{%a, %a, %a, %a}}, {{%a, %a}}, "
        f"{{{', '.join(each)}}};"
        for each in sums
    ]
    every = [register for each in sums for register in each]
    return UnitLoad(
        "mma",
        "tensor",
        _kernel(
            "mma",
            "sm_80",
            f".reg .b32 %a; .reg .f32 {', '.join(every)};",
            "\n    ".join(("mov.b32 %a, 0;", *(f"mov.f32 {register}, 0f00000000;" for register in every))),
            "\n    ".join(products * (_LENGTH // 4)),
            "\n    ".join(f"st.global.f32 [%to + {4 * at}], {register};" for at, register in enumerate(every)),
        ),
        blocks=2,
        threads=512,
    )


def _wgmma() -> UnitLoad:
    """Tensor products of warp groups (wgmma), by which Hopper alone reaches its peak."""
    every = [f"%s{at}" for at in range(_SUMS)]
    product = (
        f"wgmma.mma_async.sync.aligned.m64n{_COLUMNS}k16.f32.bf16.bf16 {{{', '.join(every)}}}, %left, %right, 1, 1, 1, "
        "0, 0;"
    )
    return UnitLoad(
        "wgmma",
        "tensor",
        _kernel(
            "wgmma",
            "sm_90a",
            f""".shared .align 128 .b8 factors[{_FACTORS}];
    .reg .b32 %address, %place; .reg .b64 %left, %right, %wide;
    .reg .f32 {", ".join(every)};""",
            f"""mov.u32 %address, factors;
    shl.b32 %place, %thread, 2;
CLEAR:
    add.u32 %block, %address, %place;
    mov.b32 %threads, 0;
    st.shared.b32 [%block], %threads;
    mov.u32 %threads, %ntid.x;
    shl.b32 %threads, %threads, 2;
    add.u32 %place, %place, %threads;
    setp.lt.u32 %inside, %place, {_FACTORS};
    @%inside bra CLEAR;
    fence.proxy.async;
    bar.sync 0;
    shr.u32 %address, %address, 4;
    cvt.u64.u32 %wide, %address;
    or.b64 %left, %wide, {_DESCRIPTOR};
    add.u64 %wide, %wide, {(64 * 16 * 2) >> 4};
    or.b64 %right, %wide, {_DESCRIPTOR};
    """
            + "\n    ".join(f"mov.f32 {register}, 0f00000000;" for register in every),
            "\n    ".join(
                (
                    "wgmma.fence.sync.aligned;",
                    *[product] * _LENGTH,
                    "wgmma.commit_group.sync.aligned;",
                    "wgmma.wait_group.sync.aligned 0;",
                )
            ),
            "\n    ".join(f"st.global.f32 [%to + {4 * at}], {register};" for at, register in enumerate(every)),
        ),
        blocks=1,
        threads=256,
    )


def _copy() -> UnitLoad:
    """A copy of memory in device memory, of four times 16 bytes of each thread at once."""
    parts = range(4)
    registers = [[f"%v{part}_{place}" for place in range(4)] for part in parts]
    move = "\n    ".join(
        [f"ld.global.v4.u32 {{{', '.join(registers[part])}}}, [%source + {16 * 32 * part}];" for part in parts]
        + [f"st.global.v4.u32 [%target + {16 * 32 * part}], {{{', '.join(registers[part])}}};" for part in parts]
    )
    return UnitLoad(
        "copy",
        "dram",
        _kernel(
            "copy",
            "sm_80",
            f""".reg .b64 %from, %size, %first, %at, %step, %source, %target;
    .reg .b32 %lane, %warp, %blocks, {", ".join(register for each in registers for register in each)};""",
            # Each warp copies parts of 2 KiB: 32 lanes of 16 bytes, four times.
            """ld.param.u64 %from, [from];
    ld.param.u64 %size, [size];
    cvta.to.global.u64 %from, %from;
    mov.u32 %blocks, %nctaid.x;
    mad.lo.u32 %warp, %block, %threads, %thread;
    and.b32 %lane, %warp, 31;
    shr.u32 %warp, %warp, 5;
    mul.wide.u32 %first, %warp, 2048;
    mad.wide.u32 %first, %lane, 16, %first;
    mul.lo.u32 %blocks, %blocks, %threads;
    mul.wide.u32 %step, %blocks, 64;""",
            f"""mov.u64 %at, %first;
PART:
    setp.lt.u64 %inside, %at, %size;
    @!%inside bra DONE;
    add.u64 %source, %from, %at;
    add.u64 %target, %to, %at;
    {move}
    add.u64 %at, %at, %step;
    bra PART;
DONE:""",
            "",
        ),
        blocks=8,
        threads=256,
    )


def tensor_load(capability: tuple[int, int]) -> UnitLoad:
    """The tensor products for a GPU of this compute capability."""
    return _wgmma() if capability[0] == 9 else _mma()


def loads(capability: tuple[int, int]) -> tuple[UnitLoad, ...]:
    """A load of each unit for a GPU of this compute capability."""
    return (
        _copy(),
        tensor_load(capability),
        _arithmetic("fp32", "fp32", "f32", "fma.rn.f32", "cvt.rn.f32.u32 {}, %thread;"),
        _arithmetic("fp64", "fp64", "f64", "fma.rn.f64", "cvt.rn.f64.u32 {}, %thread;"),
        _arithmetic("fp16", "fp16", "b32", "fma.rn.f16x2", "mov.b32 {}, %thread;"),
        _arithmetic("integer", "integer", "b32", "mad.lo.s32", "mov.b32 {}, %thread;"),
    )
