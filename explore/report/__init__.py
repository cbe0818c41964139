"""Reports of a search: live, as a plot, as an HTML page."""
