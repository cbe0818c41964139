"""Direct code: from loop trees to machine code of x86-64 with AVX2 and FMA, without LLVM."""
