"""Winograd's algorithms for short convolutions (Lavin and Gray 2016)."""
