"""The screen of a watched program: its calls live, what the slow ones waited for, and its output."""
