"""Common parts of commands: arguments, options, tables, comparisons with peers."""
