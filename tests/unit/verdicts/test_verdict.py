"""A verdict as data: its sentence, and what its module loads."""

from __future__ import annotations

import subprocess
import sys

from factories.verdicts import verdict

LOADED = "import sys, {module}; sys.exit(any(name.startswith('stallprobes.catalog') for name in sys.modules))"


def test_the_sentence_has_the_host_the_head_and_the_cause() -> None:
    found = verdict().changed(head="Launch: p50 ×10.", cause="A lock.")
    assert found.sentence == "Launch: p50 ×10. A lock."
    assert found.changed(cause="").sentence == "Launch: p50 ×10."
    assert found.changed(host="node-a").sentence == "On node-a: Launch: p50 ×10. A lock."


def test_the_reader_of_checks_does_not_load_the_catalogue() -> None:
    for module in ("stallprobes.verdicts.verdict", "stallprobes.matrix.document"):
        assert subprocess.run([sys.executable, "-c", LOADED.format(module=module)], check=False).returncode == 0
