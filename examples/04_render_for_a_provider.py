"""Render a context as the message list that a provider accepts; a missing tool result becomes an error result."""

import sessiontree
from sessiontree.providers import render

session = sessiontree.create(cwd=".", in_memory=True)
session.append("user", "Run the tests.")
call = {"type": "toolCall", "id": "call_1", "name": "bash", "arguments": {"command": "make test"}}
session.append(role="assistant", content=[call], stopReason="toolUse")

rendered = render(session.context().messages, "anthropic")
question, answer, result = rendered.messages
assert answer["content"][0]["type"] == "tool_use"
assert result["content"][0]["is_error"] is True
print(rendered.notes)
