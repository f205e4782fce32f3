"""Where a screen gets its observations: a live engine or a recording."""
