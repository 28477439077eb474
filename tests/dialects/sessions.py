"""Builders for encoder tests: canonical entries, encoded by a dialect and decoded again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from sessiontree.dialects.canonical import CanonicalEntry, LossNote, SessionMeta
from sessiontree.dialects.contract import AS_CLIENT, Dialect, is_metadata_id
from sessiontree.dialects.native.dialect import NATIVE
from sessiontree.dialects.omp import OMP
from sessiontree.dialects.pi import PI
from sessiontree.repair import examine
from sessiontree.session.journal import Journal
from sessiontree.session.open import open_store
from sessiontree.session.session import Session
from sessiontree.stores.memory import MemoryStore
from tests.builders import NOWHERE, TIME

DIALECTS: dict[str, Dialect] = {"pi": PI, "native": NATIVE, "omp": OMP}
META = SessionMeta(id="019c0000-0000-7000-8000-00000000000b", timestamp="2026-02-16T10:00:00.000Z", cwd="/tmp")

EntryWithParent = tuple[CanonicalEntry, str | None]
"""An entry and the id of its parent."""


def new_entry(kind: str, id: str, /, aliases: tuple[str, ...] = (), **fields: Any) -> CanonicalEntry:
    return CanonicalEntry(kind, fields, id, TIME, aliases)


def message(id: str, role: str = "user", content: Any = "hello", **fields: Any) -> CanonicalEntry:
    return new_entry("message", id, message={"role": role, "content": content, **fields})


def chained(*entries: CanonicalEntry) -> list[EntryWithParent]:
    """Entries that follow each other."""
    return [(each, entries[at - 1].id if at else None) for at, each in enumerate(entries)]


class EncodedSession:
    """A session that a dialect encoded."""

    def __init__(
        self,
        dialect: str,
        decoded: Sequence[EntryWithParent],
        leaf: str | None = None,
        start: SessionMeta = META,
        *,
        is_current: bool = True,
    ) -> None:
        self.name, self.dialect = dialect, DIALECTS[dialect]
        encoder = self.dialect.encoder(start)
        self.lines = list(encoder.prologue())
        self.head = len(self.lines)
        self.notes: list[LossNote] = []
        self.ids: dict[str | None, str | None] = {None: None}
        last: str | None = None
        for each, parent in decoded:
            written = encoder.encode(each, self.ids.get(parent, parent))
            self.lines += written.lines
            self.notes += written.notes
            last = self.ids[each.id] = written.id
        self.body = len(self.lines)
        self.leaf = self.ids[leaf] if leaf is not None or not is_current else last
        self.lines += encoder.epilogue(self.leaf)
        self.data = b"".join(line + b"\n" for line in self.lines)

    @property
    def closing(self) -> list[bytes]:
        """The lines after the last entry."""
        return self.lines[self.body :]

    def journal(self) -> Journal:
        journal = Journal(MemoryStore(self.data), self.dialect)
        journal.refresh()
        return journal

    def session(self) -> Session:
        return open_store(MemoryStore(self.data), root=NOWHERE, dialect=self.name)

    def decoded(self) -> list[EntryWithParent]:
        """Every entry that was read back, with its parent."""
        return decoded(self.journal())

    def findings(self) -> set[str]:
        """The findings of doctor. Lone surrogates are ignored: the entries contain them."""
        return {finding.rule.id for finding in examine(self.session())} - {"lone-surrogate"}


def decoded(journal: Journal) -> list[EntryWithParent]:
    tree, dialect = journal.tree, journal.dialect
    nodes = [node for node, id in enumerate(tree.ids) if not is_metadata_id(id)]
    found = []
    entries: dict[str, str] = {}  # further lines of an entry -> the entry
    at = 0
    for each in dialect.decode(journal, nodes):
        node = nodes[at]
        parent = tree.parent(node)
        id = None if parent is None else tree.ids[parent]
        parts = [alias for alias in each.aliases if alias in tree.ids[node + 1 : node + 1 + len(each.aliases)]]
        entries.update(dict.fromkeys(parts, tree.ids[node]))
        at += 1 + len(parts)
        own = tuple(alias for alias in each.aliases if alias not in parts)
        found.append((replace(each, aliases=own), None if id is None else entries.get(id, id)))
    assert at == len(nodes)
    return found


def context_at(journal: Journal, leaf: str | None) -> tuple[Any, Any]:
    """Messages and state at an entry."""
    node = None if leaf is None else journal.tree.node_of[leaf]
    context = journal.dialect.build_context(journal, node, AS_CLIENT)
    return context.messages, context.state


def context_of(journal: Journal) -> tuple[Any, Any]:
    """Messages and state at the leaf that the client finds."""
    node = journal.dialect.find_leaf(journal, AS_CLIENT)
    context = journal.dialect.build_context(journal, node, AS_CLIENT)
    return context.messages, context.state


# Any conversation


def _paired(text: str) -> str:
    """A text as JSON decodes it: two adjacent surrogates become one character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


texts = st.one_of(
    st.sampled_from(["", "hello", "你好，世界", "👩‍🚀 done", "half \ud83d only", 'a "quoted"\nline\t\x00', "x" * 700]),
    st.text(st.characters(), max_size=12).map(_paired),
)
ids = st.one_of(
    st.text("0123456789abcdef", min_size=8, max_size=8),
    st.text(st.characters(), min_size=1, max_size=6).map(_paired).filter(lambda id: not id.startswith("@")),
)
_texts_only = st.lists(st.builds(lambda text: {"type": "text", "text": text}, texts), max_size=2)
_image = st.just({"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"})
_thinking = st.one_of(
    st.builds(lambda text: {"type": "thinking", "thinking": text, "thinkingSignature": "s"}, texts),
    st.just({"type": "redactedThinking", "data": "opaque"}),
)
_user = st.one_of(texts, st.lists(st.one_of(_image, _texts_only.map(lambda two: two[0] if two else {"type": "odd"}))))


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[EntryWithParent], str | None]:
    """Entries with their parents, and the current entry: branches, parallel calls, compactions, labels."""
    made: list[EntryWithParent] = []
    ends: list[str | None] = [None]
    parents: dict[str | None, str | None] = {}
    count = draw(st.integers(1, 12))

    def add(kind: str, parent: str | None, /, **fields: Any) -> str:
        id = draw(ids)
        if id in parents:
            id = f"{id}{len(parents)}"
        if kind == "leaf":
            fields["targetId"] = parent
        made.append(
            (CanonicalEntry(kind, fields, id, draw(st.sampled_from([TIME, "2026-02-16T10:00:02.000Z"]))), parent)
        )
        parents[id] = parent
        return id

    def path(id: str | None) -> list[str]:
        found = []
        while id is not None:
            found.append(id)
            id = parents[id]
        return found

    for number in range(count):
        parent = draw(st.one_of(st.just(ends[-1]), st.sampled_from(ends)))
        match draw(st.integers(0, 16)):
            case 0 | 1 | 2:
                end = add("message", parent, message={"role": "user", "content": draw(_user), "timestamp": number})
            case 3 | 4 | 5 | 6:
                calls = [
                    {"type": "toolCall", "id": f"c{number}-{at}", "name": "read", "arguments": {"path": draw(texts)}}
                    for at in range(draw(st.integers(0, 3)))
                ]
                content = [*draw(st.lists(_thinking, max_size=1)), *draw(_texts_only), *calls]
                end = add(
                    "message",
                    parent,
                    message={
                        "role": "assistant",
                        "provider": "p",
                        "model": "m",
                        "content": content,
                        "extra": [1, None],
                    },
                )
                for call in calls:
                    result = {"role": "toolResult", "toolCallId": call["id"], "toolName": "read", "isError": False}
                    end = add("message", end, message={**result, "content": draw(_texts_only)})
            case 7:
                kept = draw(st.sampled_from([None, *path(parent)]))
                end = add("compaction", parent, summary=draw(texts), firstKeptEntryId=kept, tokensBefore=5)
            case 8:
                end = add("branch_summary", parent, fromId="root", summary=draw(texts))
            case 9:
                end = add("label", parent, targetId=draw(st.sampled_from([*parents, "nowhere"])), label=draw(texts))
            case 10:
                role = draw(st.sampled_from([None, "default", "smol"]))
                pair = {"provider": draw(st.sampled_from(["p", "a/b"])), "modelId": draw(st.sampled_from(["m", "x/y"]))}
                end = add("model_change", parent, **pair, **({"role": role} if role else {}))
            case 11:
                end = add("custom_message", parent, customType="x", content=draw(_user), display=False)
            case 12:
                end = add("session_info", parent, name=draw(texts))
            case 13:
                end = add("usage", parent, kind="cache_warm", provider="p", model="m", usage={"input": 1})
            case 14:
                role = draw(st.sampled_from(["developer", "system", "custom"]))
                end = add("message", parent, message={"role": role, "content": draw(texts), "timestamp": 7})
            case 15:
                end = add("leaf", parent)
            case _:
                kind = draw(st.sampled_from(["mode_change", "custom", "config", "worktree", "unheard-of"]))
                end = add(kind, parent, mode="plan", customType="t", config={}, path="/w", unknown={"a": draw(texts)})
        ends.append(end)
    return made, draw(st.one_of(st.just(ends[-1]), st.sampled_from(ends)))
