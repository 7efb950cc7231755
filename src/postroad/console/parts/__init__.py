"""Pieces that pages are made of."""
