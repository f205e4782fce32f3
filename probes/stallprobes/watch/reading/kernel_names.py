"""Names of kernels as their source has them, by the demangler of the C++ library where there is one."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from functools import lru_cache

from stallprobes.watch.reading.untrusted_parser import UntrustedParser, shared_parser

# Pattern of mangled names (C++ ABI) that are demangled.
_MANGLED = re.compile(r"_Z[A-Za-z0-9_.$]{1,1000}")
# Largest number of characters that are shown of a mangled name if the parser could not demangle it within its limits.
LONGEST_MANGLED = 200
# Largest number of characters of all kernel names that are kept; with more, the oldest half of the names is dropped.
_MAX_KEPT = 1 << 24
# Text of the demangler for an unnamed namespace. The text is replaced before parameters are removed. Reason: the
# parentheses in the text look like parameters.
_ANONYMOUS = "(anonymous namespace)"
# Pattern of the return type before a function's name, in a name without template arguments and parameters.
_RETURN_TYPE = re.compile(r"^[\w:<>*&\s]+ (?=[\w:~]+$)")

# Pattern of words in the template arguments of a kernel that say what the kernel computes: functors and operations of
# PyTorch, CUB and Eigen, PyTorch's functions that launch a kernel, and kernels of CUTLASS.
_TELLING = re.compile(
    r"\b(\w*[Ff]unctor\w*|\w+Ops?|\w+_op|\w+_kernel_(?:cuda|impl)\w*|\w+CUDAKernelImpl|cutlass_\w+)\b"
)
# Words that match _TELLING and only adapt or wrap what is computed.
_WRAPPERS = frozenset(
    {
        "BinaryFunctor", "UnaryFunctor", "AUnaryFunctor", "BUnaryFunctor", "UnaryOpFunctor", "ReduceOp", "TensorOp",
        "gpu_kernel_impl", "gpu_kernel_impl_nocast",
    }
)  # fmt: skip
# Largest number of template arguments in the label of a kernel.
_MOST_ARGUMENTS = 2
# Largest numbers of characters in the label of a kernel, and at the begin and the end of a label that is cut.
_LONGEST_LABEL, _LABEL_BEGIN, _LABEL_END = 64, 40, 23


class _DemangledNames:
    """Demangled names that are kept, and the parser for others. Threads may share it."""

    def __init__(self) -> None:
        self.parser: UntrustedParser | None = None
        self._kept: dict[str, str] = {}
        self._length = 0
        self._lock = threading.Lock()

    def of(self, names: Iterable[str]) -> dict[str, str]:
        """The demangled form of each name."""
        texts: dict[str, str] = {}
        unknown: dict[str, None] = {}
        kept = self._kept
        for name in names:
            text = kept.get(name)
            if text is not None:
                texts[name] = text
            elif _MANGLED.fullmatch(name):
                unknown[name] = None
            else:
                texts[name] = name
        if unknown:
            texts |= self._asked(list(unknown))
        return texts

    def use(self, parser: UntrustedParser | None) -> None:
        """Ask ``parser`` from now on, also for what is kept; None: the shared one."""
        with self._lock:
            self.parser, self._kept, self._length = parser, {}, 0

    def _asked(self, names: list[str]) -> dict[str, str]:
        with self._lock:
            readable = (self.parser or shared_parser()).demangled(names)
            texts = {name: readable[name] if name in readable else _shown(name) for name in names}
            self._length += sum(len(name) + len(text) for name, text in texts.items())
            self._kept |= texts
            if self._length > _MAX_KEPT:
                self._kept = dict(list(self._kept.items())[len(self._kept) // 2 :])
                self._length = sum(len(name) + len(text) for name, text in self._kept.items())
        return texts


# The demangled names of this process.
_names = _DemangledNames()


def use(parser: UntrustedParser | None) -> None:
    """Let ``parser`` demangle names from now on; None: the shared one."""
    _names.use(parser)


def present_parser() -> UntrustedParser:
    """The parser that demangles names."""
    return _names.parser or shared_parser()


def demangled(name: str) -> str:
    """``name`` as in the source: ``void add<float>(float*, int)``. Unchanged if it is not mangled or not valid.

    Where its demangled form exceeds the limits, the begin of the mangled one.
    """
    return _names.of((name,))[name]


def demangle_all(names: Iterable[str]) -> Mapping[str, str]:
    """The demangled form of each name, as ``demangled`` has it: one request for many."""
    return _names.of(names)


@lru_cache(maxsize=4096)
def short_name(name: str) -> str:
    """A demangled ``name`` without return type, template arguments and parameters: ``at::native::reduce_kernel``."""
    text = name.replace(_ANONYMOUS, "{anonymous}")
    kept, depth = [], 0
    for letter in text:
        if letter in "<(":
            if letter == "(" and depth == 0:
                break
            depth += 1
        elif letter in ">)":
            depth = max(depth - 1, 0)
        elif depth == 0:
            kept.append(letter)
    short = _RETURN_TYPE.sub("", "".join(kept)).strip().replace("{anonymous}::", "")
    return short or name


@lru_cache(maxsize=4096)
def kernel_label(name: str) -> str:
    """A demangled name of a kernel that a person recognises: ``vectorized_elementwise_kernel<MulFunctor>``.

    It has no namespaces, return type and parameters; of the template arguments it has what says what is computed.
    """
    short = short_name(name).rpartition("::")[2]
    arguments = name.partition("<")[2]
    telling = [word for word in _TELLING.findall(arguments) if word not in _WRAPPERS and word != short]
    kept = list(dict.fromkeys(telling))[:_MOST_ARGUMENTS]
    label = f"{short}<{', '.join(kept)}>" if kept else short
    return label if len(label) <= _LONGEST_LABEL else f"{label[:_LABEL_BEGIN]}…{label[-_LABEL_END:]}"


def _shown(mangled: str) -> str:
    return mangled if len(mangled) <= LONGEST_MANGLED else f"{mangled[:LONGEST_MANGLED]}…"
