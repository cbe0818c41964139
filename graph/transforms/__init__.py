"""Rewrites of a network: layouts, and steps that are better done as one."""
