"""The command line: one file a command or group of commands, and what they share."""
