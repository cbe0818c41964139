"""From loop tree to machine code: emission to TVM, targets, and the compiled library."""
