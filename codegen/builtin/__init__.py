"""The built-in code generator: machine code of x86-64 from loop trees, without LLVM."""
