"""Libraries of open sizes: programs for all values of dims, one of which a call runs."""
