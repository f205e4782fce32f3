"""Screen of the processes that use the GPUs, from which one is attached.

Imports stallprobes, report and tui.common; never another screen.
"""
