"""Records: what the timeline, traces and watched programs know of CUPTI and of the records that it makes.

Belongs here: where libcupti is and how it is called, whether a timeline works, and what it lost. It may import native,
model and below; it knows no engine.
"""
