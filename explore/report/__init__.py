"""What a search tells: live, as a plot, as an HTML page."""
