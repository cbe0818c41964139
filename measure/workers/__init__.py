"""Worker processes: messages, fork server, pool, and what a worker does."""
