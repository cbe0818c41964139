"""C source: from loop trees to readable C11."""
