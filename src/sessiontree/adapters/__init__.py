"""Adapters that store the sessions of other agent frameworks with sessiontree, one module per framework."""
