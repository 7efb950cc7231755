"""A small room with every kind of file, for tests of the migrator."""
