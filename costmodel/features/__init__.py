"""Features of a program that a model reads: of loops, buffers and memory accesses."""
