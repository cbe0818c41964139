"""Facts of compiled code before it runs: bytes, the stack, spills, the innermost loop."""
