"""Trees, paths and contexts as plain values and text. No widgets, no printing, no files."""
