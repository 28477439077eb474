"""A working agent in 40 lines: reads, edits and runs commands in this folder, and asks before it changes anything.

python examples/agent.py anthropic:claude-opus-5 "What does this project do?"
"""

import asyncio
import sys

import sessiontree
from sessiontree import agent
from sessiontree.agent.approval import Question, Reply
from sessiontree.agent.events import Failed, TextDelta, ToolEnd, ToolStart
from sessiontree.agent.tools.base import load_tools
from sessiontree.models import open_model


class Terminal:
    """Asks the user on the terminal."""

    async def ask(self, question: Question) -> Reply:
        print(f"\n{question.preview!r}\n{'; '.join(question.reasons)}. Allow? [y/N] ", end="", flush=True)
        line = await asyncio.to_thread(sys.stdin.readline)
        return Reply("once") if line.strip().lower() == "y" else Reply("no", "the user denied it")


async def main(name: str, prompt: str) -> None:
    model = open_model(name)
    with sessiontree.create(large_content="inline") as session:
        async for event in agent.run(session, prompt, model=model, tools=load_tools(), approver=Terminal()):
            match event:
                case TextDelta():
                    print(event.text, end="", flush=True)
                case ToolStart(call=call):
                    print(f"\n> {call.name} {call.arguments!r}")
                case ToolEnd(output=output):
                    print(f"< {output.text[:200]!r}")
                case Failed():
                    print(f"\n{event.message}", file=sys.stderr)
    print(f"\n{session.id}")
    await model.close()


if len(sys.argv) == 3:
    asyncio.run(main(*sys.argv[1:]))
else:
    print(__doc__)
