"""The pure core: lines, entries, tree, path and context. No module here does I/O."""
