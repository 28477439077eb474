"""The program of `make demo`: draw a small session with branches, and print two of its contexts.

Everything happens in a scratch home folder that is left for you to try the commands on.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping

import sessiontree
from sessiontree.core.messages import message_text
from sessiontree.paths import short_id
from sessiontree.views.text import one_line
from sessiontree.views.tree_drawing import draw_tree
from sessiontree.views.tree_rows import TreeRows


def write_session(home: str) -> sessiontree.Session:
    """Write a question, an answer, an abandoned branch, and the branch that was continued."""
    session = sessiontree.create(cwd=os.getcwd(), home=home)
    session.rename("json flag")
    session.append("user", "Add a --json flag to the parser, then run the tests.")
    call = {"type": "toolCall", "id": "call_1", "name": "read", "arguments": {"path": "parser.py"}}
    answer(session, "I'll read the parser first.", call)
    session.append(
        role="toolResult",
        toolCallId="call_1",
        toolName="read",
        content=[{"type": "text", "text": "import argparse\n\nparser = argparse.ArgumentParser()\n"}],
        isError=False,
    )
    fork_point = answer(session, "It uses argparse. Shall I keep it?")
    session.label(fork_point, "which library?")

    session.append("user", "Try click instead.")
    answer(session, "With click the whole file changes; 3 tests fail.")

    session.move(fork_point)
    session.append("user", "请保留 argparse。")
    answer(session, "Done: one line added, all tests pass. 完成了。")
    return session


def answer(session: sessiontree.Session, text: str, *calls: Mapping[str, object]) -> str:
    """Append an assistant message; returns its id."""
    return session.append(
        role="assistant",
        content=[{"type": "text", "text": text}, *calls],
        provider="anthropic",
        model="claude-sonnet",
        stopReason="toolUse" if calls else "stop",
        usage={"input": 120, "output": 30, "cacheRead": 80, "cost": {"total": 0.0012}},
    ).id


def show_context(session: sessiontree.Session, leaf: str) -> None:
    for message in session.context(leaf).messages:
        print(f"  {message.role:11} {one_line(message_text(message))}")


def main() -> None:
    home = tempfile.mkdtemp(prefix="sessiontree-demo-")
    session = write_session(home)
    session.flush()
    width = min(shutil.get_terminal_size((100, 24)).columns, 110)

    print(f'The tree of session "{session.name}":\n')
    for row in draw_tree(TreeRows(session, folds=False), width):
        print(row)
    detour, taken = session.leaves()
    print("\nThe messages a model receives on the abandoned branch:\n")
    show_context(session, detour)
    print("\nAnd on the current branch:\n")
    show_context(session, taken)

    short = short_id(home, session.id)
    command = os.path.join(os.path.dirname(sys.executable), "sessiontree")
    command = os.path.relpath(command) if os.path.exists(command) else "sessiontree"
    print(
        f"""
Try next:

  export SESSIONTREE_HOME={home}
  {command} show {short}
  {command} append {short} user "Now document the flag."
  {command} branch {short} "which library?"
  {command} tree {short}
  {command} context {short} --as anthropic
"""
    )


if __name__ == "__main__":
    main()
