"""Compiled libraries: loaded, called, linked, exported."""
