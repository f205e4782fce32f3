"""What the libraries are compiled from, and the record that a build leaves beside them. Standard library only."""

from __future__ import annotations

import hashlib
from pathlib import Path

# Folder of the C sources.
NATIVE = Path(__file__).parent
# Folder of the built libraries.
LIBRARIES = NATIVE / "lib"
# File in the folder of the built libraries that describes the build: a digest of the sources, the compilers, and a
# digest of each library.
RECORD = "build.json"
# File names of the core library, the injected library, and the attacher.
CORE, INJECTED, ATTACHER = "stallscope-core.so", "stallscope-inject.so", "stallscope-attach"

# Patterns of the files below NATIVE whose names and contents are in the digest of the sources.
_PATTERNS = ("common/*.h", "cupti/*.[ch]", "core/*.[ch]", "inject/*.[ch]", "attach/*.[ch]", "layouts/*.py")


def sources(native: Path = NATIVE) -> list[Path]:
    """The files from which the libraries are compiled, in a fixed order."""
    return sorted(path for pattern in _PATTERNS for path in native.glob(pattern))


def digest_of_sources(native: Path = NATIVE) -> str:
    """A digest of the names and texts of the sources. Raises OSError."""
    digest = hashlib.sha256()
    for path in sources(native):
        digest.update(f"{path.relative_to(native)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def digest_of_file(path: Path) -> str:
    """A digest of the file's bytes. Raises OSError."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
