"""Text and JSON renderings of trees, paths, contexts and listings. Pure functions without I/O."""
