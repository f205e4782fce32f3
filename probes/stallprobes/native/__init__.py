"""The C core: the probes' loop, CUPTI's records and the timeline's collector, the injected library, and their layouts.

``layouts`` declares what C and Python share; ``common``, ``cupti``, ``core`` and ``inject`` are C, which ``building``
compiles when the package is built; ``library`` loads the result. It may import errors only."""
