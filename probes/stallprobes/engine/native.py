"""Compiled primitives: calls through addresses, atomic words, clocks, and the helpers that programs call.

A loop calls every address as ``int64 f(int64 x 11)``; by the calling conventions of Linux on x86-64 and AArch64 a
function of fewer integers or pointers ignores the rest. ``native:NAME`` in a program is one of these helpers:

- ``store(address, value)`` and ``add(address, value)`` change a word; they return 0
- ``wait(address, value, timeout_ns)`` returns 0 once the word is at least ``value``, 1 after the timeout
- ``sleep(ns)``, ``work(iterations)`` (arithmetic of a fixed length) and ``nothing()`` return 0
- ``poll(query, handle, step_ns, timeout_ns)`` calls the driver function ``query`` with ``handle`` until it returns
  another code than NOT_READY, which it returns; after the timeout it returns NOT_READY. It sleeps ``step_ns`` between
  two calls; with 0 it does not sleep.
- ``spin(ns)`` occupies its thread for this time and returns 0
- ``lock(word, timeout_ns)`` changes the word from 0 to 1 and returns 0, or 1 after the timeout

``discard_records`` is not here but beside the buffers of CUPTI's records, in ``timeline.buffers``.

The host functions for cuLaunchHostFunc take the address of int64[3]: address of a word, address of a counter, timeout
in ns:

- ``gate`` returns once the word is not 0; after the timeout it counts and sets the word itself.
- ``mutex`` changes the word from 0 to 1 and back; after the timeout it counts.
- ``busy`` occupies its thread for the timeout and adds 1 to the word.

Only this module and ``code_cache`` import numba; other modules take ``compiled`` and ``c_callback`` from here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import numba  # type: ignore[import-untyped, unused-ignore]
from llvmlite import binding as llvm  # type: ignore[import-untyped, unused-ignore]
from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]
from numba.core import cgutils, types  # type: ignore[import-untyped, unused-ignore]
from numba.extending import intrinsic as _untyped_intrinsic  # type: ignore[import-untyped, unused-ignore]

from stallprobes.engine import code_cache

CLOCK_MONOTONIC = 1
TIMER_ABSTIME = 1
SECOND = 1_000_000_000
# CUDA_ERROR_NOT_READY.
NOT_READY = 600

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")

_i64 = types.int64
_word = ir.IntType(64)
_status = ir.IntType(32)
_timespec = ir.ArrayType(_word, 2)


def _compile(function: Any, decorator: Callable[..., Any], signature: Any, **options: Any) -> Any:
    """``decorator(signature, **options)(function)``, loaded from the cache if it is there, else compiled and stored."""
    code_cache.set_options(function, f"{decorator.__name__} {signature} {options}")
    code_cache.set_key(function)
    try:
        done = decorator(signature, cache=True, **options)(function)
    except (RuntimeError, OSError) as error:
        # Where nothing can be stored (a read-only home directory, a full disk) every start compiles again.
        if isinstance(error, RuntimeError) and "cannot cache" not in str(error):
            raise
        return decorator(signature, cache=False, **options)(function)
    if not (done.cache_hits if decorator is numba.cfunc else done.stats.cache_hits):
        code_cache.remove_former(function)
    return done


def compiled(signature: str | None = None) -> Callable[[F], F]:
    """Compiles a function without the GIL and without exceptions.

    With ``signature`` it is compiled at once and cached; without, it is inlined into its callers.
    """

    def decorate(function: F) -> F:
        if signature is not None:
            return cast(F, _compile(function, numba.njit, signature, nogil=True, error_model="numpy"))
        options = {"error_model": "numpy", "inline": "always"}
        code_cache.set_options(function, f"njit {options}")
        return cast(F, numba.njit(**options)(function))

    return decorate


def intrinsic(function: Callable[Concatenate[Any, P], Any]) -> Callable[P, int]:
    """``numba.extending.intrinsic``, typed: in compiled code it is called without the first argument."""
    return cast(Callable[P, int], _untyped_intrinsic(function))


def c_callback(signature: str) -> Callable[[Callable[..., Any]], int]:
    """Decorator that compiles a function which C code may call from any thread; the name stands for its address.

    The compiled code is cached on disk: an address of this process reaches it through ``external_address``.
    """

    def decorate(function: Callable[..., Any]) -> int:
        callback = _compile(function, numba.cfunc, signature)
        _callbacks.append(callback)
        return int(callback.address)

    return decorate


# The compiled functions, whose code must outlive every C library that holds an address.
_callbacks: list[object] = []


def external_address(name: str) -> Callable[[], int]:
    """A function of compiled code that returns the address which ``set_external_address`` gave to ``name``."""

    @intrinsic
    def external(typing: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            known = builder.module.globals.get(name)
            variable = known if known is not None else cgutils.add_global_variable(builder.module, _word, name)
            return builder.ptrtoint(variable, _word)

        return _i64(), generate

    return external


def set_external_address(name: str, value: int) -> None:
    """Give ``name`` an address, before any function that uses it is compiled or loaded from the cache."""
    llvm.add_symbol(name, value)


def _pointer(builder: Any, address: Any, pointee: Any) -> Any:
    return builder.inttoptr(address, pointee.as_pointer())


@intrinsic
def invoke(
    typing: Any, address: Any, a0: Any, a1: Any, a2: Any, a3: Any, a4: Any, a5: Any, a6: Any, a7: Any, a8: Any,
    a9: Any, a10: Any,
) -> Any:  # fmt: skip
    """The 64-bit return of the function at ``address``, called with eleven integers."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.call(_pointer(builder, values[0], ir.FunctionType(_word, [_word] * 11)), values[1:])

    return _i64(*[_i64] * 12), generate


@intrinsic
def load(typing: Any, address: Any) -> Any:
    """The word at ``address``, by an atomic load with acquire order."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load_atomic(_pointer(builder, values[0], _word), "acquire", 8)

    return _i64(_i64), generate


@intrinsic
def store(typing: Any, address: Any, value: Any) -> Any:
    """Writes the word at ``address``, by an atomic store with release order. Returns 0."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        builder.store_atomic(values[1], _pointer(builder, values[0], _word), "release", 8)
        return _word(0)

    return _i64(_i64, _i64), generate


@intrinsic
def add(typing: Any, address: Any, value: Any) -> Any:
    """Adds to the word at ``address`` atomically. Returns the old value."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, values[0], _word), values[1], "seq_cst")

    return _i64(_i64, _i64), generate


@intrinsic
def compare_exchange(typing: Any, address: Any, expected: Any, value: Any) -> Any:
    """Writes ``value`` to the word at ``address`` if it is ``expected``, atomically. Returns the old value."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = _pointer(builder, values[0], _word)
        return builder.extract_value(builder.cmpxchg(pointer, values[1], values[2], "seq_cst", "seq_cst"), 0)

    return _i64(_i64, _i64, _i64), generate


def _load_unsigned(bits: int) -> Callable[[int], int]:
    @intrinsic
    def load_unsigned(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            value = builder.load(_pointer(builder, values[0], ir.IntType(bits)), align=1)
            return value if bits == 64 else builder.zext(value, _word)

        return _i64(_i64), generate

    return load_unsigned


# Plain loads of unsigned integers at any address, as int64.
load_u8 = _load_unsigned(8)
load_u32 = _load_unsigned(32)
load_u64 = _load_unsigned(64)


@intrinsic
def load_ms_as_ns(typing: Any, address: Any) -> Any:
    """The 32-bit float of milliseconds at ``address`` in whole ns."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        double = ir.DoubleType()
        bits = builder.load_atomic(_pointer(builder, values[0], _status), "acquire", 4)
        ns = builder.fmul(builder.fpext(builder.bitcast(bits, ir.FloatType()), double), double(1e6))
        half = builder.select(builder.fcmp_ordered("<", ns, double(0)), double(-0.5), double(0.5))
        return builder.fptosi(builder.fadd(ns, half), _word)

    return _i64(_i64), generate


@intrinsic
def bit_length(typing: Any, value: Any) -> Any:
    """Number of bits of ``value``, taken as unsigned."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.sub(_word(64), builder.ctlz(values[0], ir.IntType(1)(0)))

    return _i64(_i64), generate


@intrinsic
def clock_ns(typing: Any, clock_gettime: Any) -> Any:
    """CLOCK_MONOTONIC in ns, read with the clock_gettime at this address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        time = cgutils.alloca_once(builder, _timespec)
        kind = ir.FunctionType(_status, [_status, _timespec.as_pointer()])
        builder.call(_pointer(builder, values[0], kind), [_status(CLOCK_MONOTONIC), time])
        seconds, rest = (builder.load(cgutils.gep_inbounds(builder, time, 0, i)) for i in range(2))
        return builder.add(builder.mul(seconds, _word(SECOND)), rest)

    return _i64(_i64), generate


@intrinsic
def sleep_until(typing: Any, clock_nanosleep: Any, time_ns: Any) -> Any:
    """Sleeps until CLOCK_MONOTONIC is ``time_ns`` with the clock_nanosleep at this address; a signal may end it."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        time = cgutils.alloca_once(builder, _timespec)
        for i, part in enumerate((builder.sdiv, builder.srem)):
            builder.store(part(values[1], _word(SECOND)), cgutils.gep_inbounds(builder, time, 0, i))
        pointer = _timespec.as_pointer()
        kind = ir.FunctionType(_status, [_status, _status, pointer, pointer])
        function = _pointer(builder, values[0], kind)
        result = builder.call(function, [_status(CLOCK_MONOTONIC), _status(TIMER_ABSTIME), time, pointer(None)])
        return builder.sext(result, _word)

    return _i64(_i64, _i64), generate


def _symbol(name: str) -> Callable[[], int]:
    @intrinsic
    def symbol(typing: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            kind = ir.FunctionType(_status, [])
            return builder.ptrtoint(cgutils.get_or_insert_function(builder.module, kind, name), _word)

        return _i64(), generate

    return symbol


# By symbol name: an address would be wrong in another process that loads the cached code.
clock_gettime = _symbol("clock_gettime")
clock_nanosleep = _symbol("clock_nanosleep")


def _poll(address: int, value: int, timeout_ns: int, step_ns: int) -> int:
    # Polls with sleeps: a waiting thread must not occupy a core that a measured thread needs.
    limit = clock_ns(clock_gettime()) + timeout_ns
    while load(address) < value:
        now = clock_ns(clock_gettime())
        if now >= limit:
            return 1
        sleep_until(clock_nanosleep(), min(now + step_ns, limit))
    return 0


_poll = compiled()(_poll)
POLL_STEP_NS = 20_000


def _store(address: int, value: int) -> int:
    return store(address, value)


def _add(address: int, value: int) -> int:
    add(address, value)
    return 0


def _wait(address: int, value: int, timeout_ns: int) -> int:
    return _poll(address, value, timeout_ns, POLL_STEP_NS)


def _sleep(ns: int) -> int:
    limit = clock_ns(clock_gettime()) + ns
    while clock_ns(clock_gettime()) < limit:
        sleep_until(clock_nanosleep(), limit)
    return 0


def _work(iterations: int) -> int:
    # A generator of full period returns to its seed only after 2**64 steps, so the compiler cannot remove the loop.
    seed = 88_172_645_463_325_252
    x = seed
    for _ in range(iterations):
        x = x * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407
    return 1 if x == seed and iterations > 0 else 0


def _spin(ns: int) -> int:
    limit = clock_ns(clock_gettime()) + ns
    while clock_ns(clock_gettime()) < limit:
        pass
    return 0


_spin = compiled()(_spin)


def _lock(word: int, timeout_ns: int) -> int:
    limit = clock_ns(clock_gettime()) + timeout_ns
    while compare_exchange(word, 0, 1) != 0:
        now = clock_ns(clock_gettime())
        if now >= limit:
            return 1
        sleep_until(clock_nanosleep(), min(now + POLL_STEP_NS, limit))
    return 0


_lock = compiled()(_lock)


def _spin_for(ns: int) -> int:
    return _spin(ns)


def _lock_word(word: int, timeout_ns: int) -> int:
    return _lock(word, timeout_ns)


def _busy(data: int) -> int:
    _spin(load(data + 16))
    add(load(data), 1)
    return 0


def _mutex(data: int) -> int:
    word = load(data)
    if _lock(word, load(data + 16)) == 0:
        store(word, 0)
    else:
        add(load(data + 8), 1)
    return 0


def _nothing() -> int:
    return 0


def _query_until_ready(query: int, handle: int, step_ns: int, timeout_ns: int) -> int:
    limit = clock_ns(clock_gettime()) + timeout_ns
    while True:
        status = invoke(query, handle, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) & 0xFFFFFFFF
        if status != NOT_READY:
            return status
        now = clock_ns(clock_gettime())
        if now >= limit:
            return NOT_READY
        if step_ns > 0:
            sleep_until(clock_nanosleep(), min(now + step_ns, limit))


def _gate(data: int) -> int:
    word, forced, timeout_ns = load(data), load(data + 8), load(data + 16)
    limit = clock_ns(clock_gettime()) + timeout_ns
    while load(word) == 0:
        now = clock_ns(clock_gettime())
        if now >= limit:
            add(forced, 1)
            store(word, 1)
            break
        sleep_until(clock_nanosleep(), min(now + POLL_STEP_NS, limit))
    return 0


_HELPERS: dict[str, tuple[Callable[..., int], int]] = {
    "store": (_store, 2),
    "add": (_add, 2),
    "wait": (_wait, 3),
    "sleep": (_sleep, 1),
    "work": (_work, 1),
    "nothing": (_nothing, 0),
    "poll": (_query_until_ready, 4),
    "spin": (_spin_for, 1),
    "lock": (_lock_word, 2),
    "gate": (_gate, 1),
    "mutex": (_mutex, 1),
    "busy": (_busy, 1),
}


@cache
def _helper(name: str) -> Any:
    function, arguments = _HELPERS[name]
    return _compile(function, numba.cfunc, _i64(*[_i64] * arguments))


def address(name: str) -> int:
    """The address of a helper. Raises KeyError for an unknown name."""
    return int(_helper(name).address)


@cache
def libc_address(name: str) -> int:
    """The address of a function of the C library. Raises KeyError for an unknown name."""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except AttributeError:
        raise KeyError(name) from None
    return ctypes.cast(function, ctypes.c_void_p).value or 0
