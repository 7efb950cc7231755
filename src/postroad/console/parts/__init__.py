"""Building blocks of pages."""
