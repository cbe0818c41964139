"""What commands share: arguments, options, tables, comparisons with peers."""
