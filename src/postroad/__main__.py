"""`python -m postroad` is the command `postroad`."""

from postroad.cli import run

run()
