"""The native form: Pi v3's shape plus our own types, marked by `"sessiontree"` in the header.

What differs from Pi: bookkeeping (labels, names, usage, settings) never moves the leaf, and moving the leaf is an entry
of its own, so where a session stands is in the file.
"""

from __future__ import annotations

from sessiontree.context import Rules
from sessiontree.dialects.base import Lines, Reading
from sessiontree.dialects.pi import PiShape, iter_head_records
from sessiontree.entries import Header
from sessiontree.values import render_json

FORMAT = 1
"""The number of the native additions to the shape; grows when an addition changes what older readers would do."""

BOOKKEEPING = frozenset({"label", "session_info", "usage", "config", "custom", "model_usage", "title_change"})


class Native(PiShape):
    name = "native"
    rules = Rules(resets=True, explicit_model_wins=True, default_thinking="off")
    bookkeeping = BOOKKEEPING
    folders = ("/sessiontree/sessions/",)

    def recognise(self, head: bytes) -> int:
        header = next(filter(self.is_header, iter_head_records(head)), None)
        if header is not None and "sessiontree" in header:
            return 100
        return 1 if is_torn_start(head) else 0

    def find_leaf(self, lines: Lines, reading: Reading) -> int | None:
        types, tree = lines.types, lines.tree
        for node in range(len(types) - 1, -1, -1):
            if types[node] == "leaf":
                if not tree.is_orphan(node):  # a move to an entry that is lost says nothing
                    return tree.parent(node)
            elif types[node] not in BOOKKEEPING:
                return node
        return None

    def render_header(self, header: Header) -> bytes:
        return super().render_header(header)[:-1] + b',"sessiontree":' + render_json(FORMAT) + b"}"


def is_torn_start(head: bytes) -> bool:
    """Nothing at all, or the beginning of a first line that was cut: a session that had no time to become one."""
    if b"\n" in head:
        return False
    line = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    beginning = b'{"type":"'
    return line.startswith(beginning) if len(line) > len(beginning) else beginning.startswith(line)


NATIVE = Native()
