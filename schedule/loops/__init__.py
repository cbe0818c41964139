"""Common parts of both lowerings: subscripts, storage, and the assembly of a tree."""
