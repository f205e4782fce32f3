"""Random programs whose truth is known, and what ``watch`` says of them.

``program.c`` runs a schedule and writes down its own clocks; ``model_cuda.c`` and ``model_cupti.c`` are the GPU beside
which it runs without one. ``schedules`` makes schedules by seed, ``replay`` and ``truth`` say what bounds them,
``reading`` is what is read of a report, ``programs`` builds and watches, ``bench_truth.py`` prints the tables.
"""
