"""One open session: a store, a dialect and a tree, with reading, appending, branching and forking."""
