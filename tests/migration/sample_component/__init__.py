"""A small component with every kind of file, for tests of the migrator."""
