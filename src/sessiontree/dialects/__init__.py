"""One package per session format. `contract` has the protocol they implement, `defaults` a base class."""

DEFAULT_DIALECT = "native"
"""The dialect of new sessions. They belong to no client: sessiontree reads and writes them itself."""

CLAUDE_AGENT_SDK_DIALECT = "claude"
"""The dialect of the transcripts that the Claude Agent SDK mirrors into a store."""
