"""Many machines that measure for many tuners, by Ray."""
