"""Sessions of one agent as sessions of another: the outline of a conversation, its tools, the report, the files."""
