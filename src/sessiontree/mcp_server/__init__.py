"""Past work for agents: a few questions about all sessions, with small answers that are marked as untrusted.

    bounds     how large an answer may be, and how text is made harmless
    decisions  what was decided lately in a project
    answers    the questions, as functions that give plain values
    tools      the same as tools of an MCP server (needs `sessiontree[mcp]`)
    server     serving them on stdin and stdout

Nothing here writes to a session, and nothing is read but sessions that the library knows: those in the folders of the
agents, or in those that the user named with --root.
"""
