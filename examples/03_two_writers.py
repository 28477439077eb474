"""Two writers on one session: each keeps its own branch, and is notified of the other's entries."""

import tempfile
from pathlib import Path

import sessiontree

path = Path(tempfile.mkdtemp()) / "shared.jsonl"
mine = sessiontree.create(cwd=".", path=path)
mine.append("user", "start")

theirs = sessiontree.open(path)
mine.on_entry(lambda entry: print("the other writer added", entry.id))

theirs.append("user", "from the other window")
mine.append("user", "from this window")

(added,) = mine.refresh()
assert added in mine
assert len(mine.leaves()) == 2
assert mine.problems == []
