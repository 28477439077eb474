"""`python -m sessiontree`."""

from sessiontree.cli import enter

enter()
