"""Stands before sklearn for interpreters that tests start: see `tests.interpreter`."""

raise ImportError("hidden from this test: importing it takes seconds")
