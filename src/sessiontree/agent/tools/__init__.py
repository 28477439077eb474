"""Tools for models. Built-in tools are registered like those of other packages, by `sessiontree.tools` entry points."""
