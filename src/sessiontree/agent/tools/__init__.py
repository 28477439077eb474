"""What a model can call. Ours come in by the same door as those of other packages: `sessiontree.tools` entry points."""
