"""The screens: the monitor, and what lies over it for a moment."""
