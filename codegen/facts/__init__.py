"""What compiled code tells before it runs: bytes, the stack, spills, the innermost loop."""
