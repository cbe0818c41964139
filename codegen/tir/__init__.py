"""Emission for processors: loop trees as TIR, and TVM's compiler."""
