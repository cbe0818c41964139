"""Search strategies, each of them an implementation of `strategy.py`."""
