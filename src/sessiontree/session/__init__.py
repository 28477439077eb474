"""An open session: a store, a dialect and a tree, with methods to read, append, branch and fork."""
