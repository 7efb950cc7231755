"""Writes the reference pages of the documentation from the sources they describe.

`python -m tools.docs` writes them, `python -m tools.docs --check` complains about stale ones.
"""
