"""GPUs as devices: their code, drivers, memory and calls."""
