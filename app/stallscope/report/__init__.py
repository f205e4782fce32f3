"""Reports for people: text tables and the HTML page, and the wording that text, page and screen share.

Imports stallprobes and its own modules; the command line and the screens import it.
"""
