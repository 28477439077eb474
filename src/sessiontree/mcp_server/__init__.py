"""MCP server that gives agents access to past sessions: a few queries with small results, marked as untrusted.

    limits     size limits and sanitizing
    decisions  recent decisions in a project
    queries    the queries, as functions that return plain values
    tools      the queries as MCP tools (needs `sessiontree[mcp]`)
    server     the stdio server

Nothing here writes to a session. Only sessions of the library are read: those in the agents' folders, or in folders
that the user passed with --root.
"""
