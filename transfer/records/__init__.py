"""The record store: everything ever measured, and how it is looked up."""
