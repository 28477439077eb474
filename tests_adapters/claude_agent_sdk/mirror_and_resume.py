"""Let Claude Code mirror a conversation into a store, and resume it from there with an empty configuration folder.

Arguments: the home of the store, a working folder, and the prompts. Prints the id of the session.
"""

from __future__ import annotations

import os
import sys

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

from sessiontree.adapters.claude_agent_sdk import SessionTreeStore


async def main(home: str, folder: str, *prompts: str) -> None:
    session: str | None = None
    for number, prompt in enumerate(prompts):
        config = os.path.join(folder, f"config-{number}")  # empty each time: the history is in the store alone
        os.makedirs(config)
        options = ClaudeAgentOptions(
            cwd=folder,
            session_store=SessionTreeStore(home),
            resume=session,
            env={**os.environ, "CLAUDE_CONFIG_DIR": config},
        )
        async for message in query(prompt=prompt, options=options):
            if isinstance(message, ResultMessage):
                session = message.session_id
    print(session)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
