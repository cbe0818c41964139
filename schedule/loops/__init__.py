"""What both lowerings share: subscripts, storage, and the assembly of a tree."""
