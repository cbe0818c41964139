"""Alembic's scripts: how the tables of a store came about, one revision a file of `versions`.

A revision is named by a number, which is `schema.LAYOUT` for the newest. The first is 3: files of
the layouts before, of SQLite alone, are read and written anew by `earlier`.
"""
