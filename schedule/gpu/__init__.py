"""GPUs: sketches and knobs of a kernel, tile sizes, lowering."""
