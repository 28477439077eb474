"""Write a session, open it again, and get the messages that a model receives."""

import tempfile

import sessiontree

home = tempfile.mkdtemp()

session = sessiontree.create(cwd=".", home=home)
session.append("user", "What does this repository do?")
session.append(role="assistant", content=[{"type": "text", "text": "It keeps sessions."}], model="m", provider="p")
session.close()

again = sessiontree.open(session.id, home=home)
context = again.context()
assert [message.role for message in context.messages] == ["user", "assistant"]
assert context.state.models == {"default": "p/m"}
print(again.location)
