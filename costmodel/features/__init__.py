"""What a model reads of a program: features of loops, buffers and memory accesses."""
