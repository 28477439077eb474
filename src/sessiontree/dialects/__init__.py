"""One package per session format. `contract` has the protocol they implement, `defaults` a base class."""

DEFAULT_DIALECT = "native"
"""The dialect of new sessions. They belong to no client: sessiontree reads and writes them itself."""
