"""Pure data types and algorithms: lines, entries, tree, path, context. No module here does I/O."""
