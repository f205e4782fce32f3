"""Attaching to a process that runs: whether it can be done, the injected library in it, awake or asleep.

It imports the options of watching and the native attacher, nothing of the reader. Nothing here changes a process before
``refusal`` has none.
"""

from __future__ import annotations

from stallprobes.watch.attaching.attachment import Attachment, attach
from stallprobes.watch.attaching.refusals import refusal

__all__ = ["Attachment", "attach", "refusal"]
