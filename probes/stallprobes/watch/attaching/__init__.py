"""Attaching to a process that runs: whether it can be done, the injected library in it, awake or asleep.

It imports the options of watching and the native attacher, and of the reader only how private folders are made.
"""

from __future__ import annotations

from stallprobes.watch.attaching.attachment import Attachment, attach
from stallprobes.watch.attaching.places import folder_for
from stallprobes.watch.attaching.refusals import refusal

__all__ = ["Attachment", "attach", "folder_for", "refusal"]
