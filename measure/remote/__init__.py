"""Other machines as devices: a worker in C, spoken to over the streams of a command."""
