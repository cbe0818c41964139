"""Record stores in SQL databases: all that imports SQLAlchemy, loaded when a store is used."""
