"""LLVM's own passes and switches: from TVM's LLVM IR to an object file, in a child process."""
