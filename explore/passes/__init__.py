"""Search for pass lists: random lists, what of them matters, and what serves many kernels."""
