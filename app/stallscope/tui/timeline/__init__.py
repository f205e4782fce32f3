"""The timeline: host calls, GPU work and the contexts on the graphics engine, on one time axis."""
