"""The sanitizers of a C compiler, and what they need of the environment."""

from __future__ import annotations

import subprocess
from pathlib import Path

SANITIZERS = {
    "thread": ("-fsanitize=thread",),
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
}
# With -O2 the address sanitizer compiles three times as long, and checks no access that the optimizer removes.
UNOPTIMIZED = ("-O0", "-g", "-fno-omit-frame-pointer")
OPTIONS = {
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=99:atexit_sleep_ms=0:die_after_fork=0",
    "ASAN_OPTIONS": "exitcode=99:verify_asan_link_order=0",
    "UBSAN_OPTIONS": "halt_on_error=1:exitcode=99",
}


def works(compiler: str, flags: tuple[str, ...], folder: Path) -> bool:
    """Whether the compiler has the sanitizer, and the kernel lets a program with it run."""
    source, program = folder / "empty.c", folder / "empty"
    source.write_text("int main(void) { return 0; }\n")
    built = subprocess.run([compiler, *flags, str(source), "-o", str(program)], capture_output=True)
    return built.returncode == 0 and subprocess.run([str(program)], capture_output=True).returncode == 0
