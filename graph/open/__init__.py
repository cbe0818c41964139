"""Networks whose sizes are known only at the call."""
