"""Convert sessions from one agent's format to another's: walk the tree, map tools, report losses, write files."""
