"""One callable of libraries on the processor and on a GPU: the choice of a device at the call."""
