"""Bilinear algorithms: Winograd's for short convolutions, Strassen's for matrix products."""
