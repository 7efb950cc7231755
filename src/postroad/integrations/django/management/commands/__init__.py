"""Commands of the app, one in each module."""
