"""The demo: the monitor goes through the patterns by itself, with a caption for each step and a table at the end."""
