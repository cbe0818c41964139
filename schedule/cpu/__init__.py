"""Processors: sketches and knobs of a nest, cost prior, lowering."""
