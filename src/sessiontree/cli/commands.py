"""All commands with their summaries, grouped as the help shows them.

Summaries are here and not in the commands' modules, so that the root help and shell completion import none of those.
"""

from __future__ import annotations

GROUPS: dict[str, dict[str, str]] = {
    "Browse": {
        "ui": "browse all sessions in the terminal",
        "serve": "show all sessions in a browser",
        "list": "list sessions",
        "open": "show a session's details and last messages",
        "show": "print a session as text",
        "tree": "draw the branches of a session",
        "info": "show facts about a session",
        "branches": "list the branches of a session",
        "diff": "compare two branches",
        "context": "show the messages a model receives",
        "stats": "show token usage, cost and tool calls",
    },
    "Resume and branch": {
        "continue": "find the session to continue",
        "resume": "resume a session in its agent, or in another one",
        "branch": "switch to another entry; the next message starts a branch there",
        "fork": "copy a branch into a new session",
        "merge": "merge another branch into this one",
        "pick": "copy selected entries to another branch",
        "compact": "replace older messages with a summary",
        "label": "label an entry",
        "new": "create a session",
        "append": "append a message or an entry",
    },
    "Find": {
        "search": "search the messages of all sessions",
        "history": "search the prompts you typed",
    },
    "Share": {
        "export": "export a session as Markdown, HTML, text or JSON",
        "convert": "convert a session to another agent's format",
        "backup": "copy all sessions to a folder",
        "sync": "synchronize sessions with a folder, both ways",
        "push": "copy sessions to another home, such as a database",
        "pull": "copy sessions from another home",
    },
    "Organize": {
        "rename": "rename a session",
        "tag": "add tags to a session",
        "pin": "protect a session from `clean`",
        "clean": "archive old sessions",
        "restore": "restore from the archive",
        "keep": "copy sessions to the archive",
        "prune": "move a branch to the archive",
        "shrink": "make a huge session file smaller",
        "mv": "update sessions after their project moved",
        "worktree": "save and restore a session's git worktree",
    },
    "Repair": {
        "doctor": "check sessions for problems",
        "repair": "repair a damaged session",
        "migrate": "upgrade an old file to the current version",
        "store": "create, upgrade, verify and clean up a database of sessions",
    },
    "Agent": {
        "chat": "chat with a model that works in this folder",
        "explore": "run several branches in parallel, compare them, keep the best",
        "acp": "serve all sessions to an editor over ACP",
        "mcp": "serve past sessions to agents over MCP",
    },
    "Set up": {
        "config": "show and change settings",
        "completion": "print the completion script for a shell",
        "help": "show this help, or a command's",
    },
}

SUMMARIES = {name: summary for group in GROUPS.values() for name, summary in group.items()}
COMMANDS = tuple(SUMMARIES)

# What people type who know git or a shell.
ALIASES = {
    "ls": "list",
    "log": "show",
    "cat": "show",
    "view": "show",
    "find": "search",
    "grep": "search",
    "graph": "tree",
    "status": "info",
    "checkout": "branch",
    "switch": "branch",
    "cherry-pick": "pick",
    "init": "new",
    "create": "new",
    "start": "new",
    "move": "mv",
    "rm": "clean",
    "delete": "clean",
    "archive": "clean",
    "undo": "restore",
    "fsck": "doctor",
    "check": "doctor",
    "fix": "repair",
    "upgrade": "migrate",
    "settings": "config",
    "usage": "stats",
    "import": "convert",
}
