"""The table of operators: each one a few lines of the notation. `call.py` has the contract."""
