"""Branch anywhere; each branch has its own context, and nothing is lost when you leave one."""

import sessiontree

session = sessiontree.create(cwd=".", in_memory=True)
question = session.append("user", "Sort this list.")
session.append("assistant", [{"type": "text", "text": "Quicksort?"}])

other = session.branch(at=question.id)
other.append("assistant", [{"type": "text", "text": "Merge sort!"}])

assert session.path_ids()[0] == question.id
assert len(session.leaves()) == 2
assert session.common_ancestor(session.leaf, other.leaf) == question.id

session.label(question.id, "start")
session.move(other.leaf)  # durable: the session opens at this entry from now on
print(session.context().messages[-1])
