"""Which functions are watched, and where their arguments lie, held against NVIDIA's headers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from factories.cupti_headers import header, headers
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts import watch_file as layout
from stallprobes.native.layouts.cupti import OBJECT_THREAD, CallbackData, CuptiCode, RecordKind
from stallprobes.native.layouts.driver_calls import ABSENT, CallFamily, family_of, plain_name, shapes

STUBS = Path(__file__).parents[2] / "data" / "cupti"
EIGHT_BYTES = {
    "size_t", "CUdeviceptr", "CUstream", "CUevent", "CUcontext", "CUfunction", "CUmodule", "CUgraph", "CUgraphExec",
    "CUarray", "CUmemoryPool", "CUhostFn", "CUstreamCallback", "CUmemGenericAllocationHandle", "cuuint64_t",
    "unsigned long long",
}  # fmt: skip
# CUmemLocation, two words of four bytes.
SIZES = {"unsigned char": (1, 1), "unsigned short": (2, 2), "CUmemLocation": (8, 4)}


def offsets(parameters: str) -> list[tuple[str, int]]:
    """Name and offset of each member of a structure of parameters."""
    found, at = [], 0
    for member in filter(None, (" ".join(part.split()) for part in parameters.split(";"))):
        match = re.fullmatch(r"(?:const )?(.*?)\s*(\**)(\w+)", member)
        assert match is not None, member
        size, alignment = SIZES.get(match[1], (4, 4))
        if match[2] or match[1] in EIGHT_BYTES:
            size = alignment = 8
        at = -(-at // alignment) * alignment
        found.append((match[3], at))
        at += size
    return found


def test_the_watched_calls_are_those_that_can_block() -> None:
    names = re.findall(r"CUPTI_DRIVER_TRACE_CBID_(cu[A-Z]\w*)", header("cupti_driver_cbid.h"))
    watched = {name: family for name in names if (family := family_of(name)) is not None}
    # Beyond the limit of the file, functions would not be recorded.
    assert 250 < len(watched) < layout.APIS - 100
    asks = re.compile(
        r"Get(?!MappedBuffer|MappedMipmapped|Function|Global|Kernel|Module|Managed|Unified|Info|MemHandle|EventHandle)"
    )
    assert [name for name in watched if asks.search(name)] == []
    for name, family in (
        ("cuLaunchKernel_ptsz", CallFamily.LAUNCH),
        ("cuMemcpyDtoHAsync_v2", CallFamily.COPY),
        ("cuMemAllocHost_v2", CallFamily.HOST_MEMORY),
        ("cuMemFree_v2", CallFamily.ALLOCATION),
        ("cuStreamSynchronize", CallFamily.WAIT),
        ("cuLibraryLoadData", CallFamily.MODULE),
        ("cuGraphInstantiateWithFlags", CallFamily.GRAPH),
        ("cuGraphLaunch", CallFamily.LAUNCH),
    ):
        assert watched.get(name, family) is family
    for name in (
        "cuCtxGetDevice",
        "cuCtxGetCurrent",
        "cuCtxPushCurrent_v2",
        "cuPointerGetAttribute",
        "cuGetProcAddress",
    ):
        assert family_of(name) is None


def test_names_fit_the_file() -> None:
    names = re.findall(r"CUPTI_DRIVER_TRACE_CBID_(cu\w*)", header("cupti_driver_cbid.h"))
    field = dtype_of(layout.Api).fields
    assert field is not None
    assert max(len(name) for name in names if family_of(name)) < field["name"][0].itemsize


def test_the_arguments_lie_where_the_header_says() -> None:
    text = header("generated_cuda_meta.h")
    structures = dict(re.findall(r"typedef struct (\w+)_params_st \{(.*?)\}", text, re.DOTALL))
    checked = 0
    for shape in shapes():
        if shape.name not in structures:
            continue
        places = offsets(structures[shape.name])
        named = {name.lower(): at for name, at in places}
        at_stream = [at for name, at in named.items() if name in ("hstream", "stream")]
        assert ([shape.stream] if shape.stream != ABSENT else []) == at_stream, shape.name
        at_config = [at for name, at in named.items() if name == "config"]
        assert ([shape.config] if shape.config != ABSENT else []) == at_config, shape.name
        for offset, words in (
            (shape.bytes, ("byte", "size", "count", "n", "width", "length")),
            (shape.rows, ("height",)),
            (shape.source, ("src",)),
            (shape.target, ("dst",)),
        ):
            names = [name.lower() for name, at in places if at == offset]
            assert offset == ABSENT or any(name.startswith(words) for name in names), (shape, places)
        checked += 1
    assert checked > 60
    # The variants for the per-thread default stream have the same parameters.
    for name, parameters in structures.items():
        if plain_name(name) != name:
            plain = structures[plain_name(name)]
            assert [at for _, at in offsets(parameters)] == [at for _, at in offsets(plain)], name


def test_callback_data_and_constants_are_as_the_header_says(tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    members = {
        "site": "callbackSite", "function": "functionName", "parameters": "functionParams",
        "result": "functionReturnValue", "symbol": "symbolName", "context": "context", "context_number": "contextUid",
        "shared": "correlationData", "correlation": "correlationId",
    }  # fmt: skip
    found = [
        f"offsetof(CUpti_CallbackData, {member}) == {getattr(CallbackData, field).offset}"
        for field, member in members.items()
    ]
    kinds = {"KERNEL": "CONCURRENT_KERNEL", "COPY": "MEMCPY", "DRIVER_CALL": "DRIVER", "PEER_COPY": "MEMCPY2"}
    found += [
        f"CUPTI_ACTIVITY_KIND_{kinds.get(kind.name, kind.name)} == {int(kind)}"
        for kind in RecordKind
        # Older headers do not have it.
        if kind is not RecordKind.CONTEXT_SWITCH
    ]
    found += [
        f"CUPTI_ACTIVITY_OBJECT_THREAD == {OBJECT_THREAD}", "CUPTI_API_ENTER == 0", "CUPTI_CB_DOMAIN_DRIVER_API == 1",
        f"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED == {int(CuptiCode.TAKEN)}",
        f"CUPTI_ERROR_MAX_LIMIT_REACHED == {int(CuptiCode.NO_MORE_RECORDS)}",
        f"CUPTI_ERROR_NOT_COMPATIBLE == {int(CuptiCode.NOT_COMPATIBLE)}",
        f"CUPTI_ERROR_NOT_INITIALIZED == {int(CuptiCode.NOT_INITIALIZED)}",
    ]  # fmt: skip
    asserts = "".join(f'_Static_assert({each}, "{each}");\n' for each in found)
    source = tmp_path / "places.c"
    source.write_text(f"#include <stddef.h>\n#include <cupti_activity.h>\n#include <cupti_callbacks.h>\n{asserts}")
    done = subprocess.run(
        [compiler, "-std=gnu11", f"-I{STUBS}", f"-isystem{headers()}", "-fsyntax-only", str(source)],
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
