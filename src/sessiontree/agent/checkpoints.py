"""A log of file changes by tools, and rewinding them.

Before a tool changes a file, its content is put into the blob store and a `file_snapshot` entry is appended: `files` is
the state before, `after` the state that the tool leaves. The entries are a log in file order across all branches,
because files change in time, not along a tree. The state at an entry is the current one with every later change
reverted, newest first. It does not matter how often the conversation was rewound or switched in between.

A rewind is a change like any other and is recorded as one, so it can be undone. A file that differs from the last state
in the log was changed by the user or another program. That is a conflict: the file is overwritten only if the caller
names it, and its content is stored first.

The entries come from a session file that anyone may have written. No path in them is followed out of the workspace, or
through a link.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from functools import cached_property
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.agent.async_bridge import in_thread, uncancelled
from sessiontree.agent.client_history import ClientHistory
from sessiontree.agent.file_changes import ChangeDetector, WorktreeStates
from sessiontree.agent.text_files import render_diff
from sessiontree.agent.tools.base import Plan
from sessiontree.agent.workspace import Workspace, is_within
from sessiontree.core.entries import MessageEntry
from sessiontree.core.jsonio import Value
from sessiontree.core.messages import User
from sessiontree.errors import DamagedError, NotFoundError, PathError, SessionTreeError
from sessiontree.git.restore_files import restore_state
from sessiontree.git.snapshot import ABSENT, CachedBlobs, FileState, is_same_state, load_content, read_state
from sessiontree.session.session import Branch, Session
from sessiontree.stores.contract import BlobStore
from sessiontree.stores.safe_files import read_path, read_umask, remove_empty_folder

RewindScope: TypeAlias = Literal["conversation", "files", "both"]
REWIND = "rewind"
_ENTRY_TYPES = frozenset({"file_snapshot", "sessiontree:file_snapshot"})
"""The type of a log entry, in native files and in other dialects."""


class RewindRecord(Value, frozen=True):
    """How a rewind moved the conversation, for its undo."""

    from_leaf: str | None = None
    to_leaf: str | None = None
    moved: bool = False
    """Whether the conversation was also rewound."""
    undoes: int | None = None
    """The node of the entry whose rewind this one undid."""


class ChangeRecord(Value, frozen=True):
    """A log entry: what one call did to files."""

    files: dict[str, FileState] = msgspec.field(default_factory=dict)
    """States before. Paths inside the project are relative to it."""
    after: dict[str, FileState] = msgspec.field(default_factory=dict)
    folders: tuple[str, ...] = ()
    """Folders that were created."""
    left_out: dict[str, str] = msgspec.field(default_factory=dict)
    """Changes whose old content is not stored, each with the reason."""
    root: str = ""
    tool: str = ""
    call: str = ""
    rewinding: RewindRecord | None = None


class RewindChange(Struct, frozen=True):
    """What a rewind will do to one path."""

    path: str
    shown: str
    now: FileState | None
    """The current state; None for a folder or special file."""
    then: FileState
    diff: str
    conflict: str | None = None
    """Why it is skipped unless the caller names the path: the user changed it, or it is outside the workspace."""

    @property
    def kind(self) -> Literal["create", "delete", "change"]:
        if not self.then.mode:
            return "delete"
        return "change" if self.now is None or self.now.mode else "create"


class RewindPlan(Struct, frozen=True):
    """What a rewind would do."""

    entry: str | None
    leaf: str | None
    """The current entry after the rewind."""
    text: Any = None
    """The content of the user message that was rewound to, for editing; None for other entries."""
    changes: tuple[RewindChange, ...] = ()
    folders: tuple[str, ...] = ()
    """Folders created since, which are removed if empty."""
    lost: tuple[str, ...] = ()
    """Changes that cannot be reverted, each with the reason."""

    @property
    def conflicts(self) -> tuple[RewindChange, ...]:
        return tuple(change for change in self.changes if change.conflict)

    @property
    def diff(self) -> str:
        """The diff of all files. Untrusted text: front ends must escape it."""
        return "".join(change.diff for change in self.changes)


class Rewound(Struct, frozen=True):
    """What a rewind did."""

    restored: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """Paths with a conflict that the caller did not name."""
    failed: tuple[str, ...] = ()
    """Changes that failed, each with the reason."""
    leaf: str | None = None


class Checkpoints:
    """The log of file changes of one session."""

    def __init__(self, session: Session, workspace: Workspace, blobs: BlobStore, *, watch: bool = True) -> None:
        """`watch`: compare git's list of changed files before and after commands; without it, they are not covered."""
        self._session, self._workspace, self._store, self._watch = session, workspace, blobs, watch

    # Each run has a log, and most runs change nothing: its parts are created when they are first needed.

    @cached_property
    def _blobs(self) -> CachedBlobs:
        return CachedBlobs(self._store)

    @cached_property
    def _history(self) -> ClientHistory:
        return ClientHistory(self._session, self._workspace)

    @cached_property
    def _detector(self) -> ChangeDetector | None:
        return ChangeDetector(self._workspace, self._blobs) if self._watch else None

    # Recording

    @contextlib.asynccontextmanager
    async def around(self, tool: str, plan: Plan, call: str = "", branch: Branch | None = None) -> AsyncIterator[None]:
        """Record what a call does to files. Old contents are durable before the body runs."""
        if plan.writes:
            await uncancelled(asyncio.to_thread(lambda: self._append(self._planned(plan, tool, call), branch)))
            yield
            return
        if self._detector is None:
            yield
            return
        before = await asyncio.to_thread(self._detector.read)
        try:
            yield
        except BaseException:  # also a cancellation: an interrupted command may have changed files
            with contextlib.suppress(SessionTreeError):  # how the call ended matters more than a failure to record it
                await self._record_detected(self._detector, before, tool, call, branch)
            raise
        await self._record_detected(self._detector, before, tool, call, branch)

    async def _record_detected(
        self, detector: ChangeDetector, before: WorktreeStates, tool: str, call: str, branch: Branch | None
    ) -> None:
        found = await asyncio.shield(asyncio.to_thread(detector.changed_since, before))
        if found.files or found.left_out:
            files, after = self._keyed(found.files), self._keyed(found.after)
            record = ChangeRecord(files, after, (), found.left_out, self._workspace.root, tool, call)
            await uncancelled(in_thread(self._append, record, branch))

    def record(self, before: Mapping[str, FileState], tool: str, call: str = "", branch: Branch | None = None) -> None:
        """Record changes that were already made; `before` has the old states, from `store`."""
        after = {path: read_state(path, self._blobs.put) or ABSENT for path in before}
        changed = {path: state for path, state in before.items() if not is_same_state(state, after[path])}
        if changed:
            files, then = self._keyed(changed), self._keyed({path: after[path] for path in changed})
            self._append(ChangeRecord(files, then, root=self._workspace.root, tool=tool, call=call), branch)

    def store(self, path: str) -> FileState:
        """Store the content of a file; `PathError` if it is a folder or special file."""
        state = read_state(path, self._blobs.put)
        if state is None:
            raise PathError(f"{path}: not a file")
        return state

    def _planned(self, plan: Plan, tool: str, call: str) -> ChangeRecord:
        files, after = {}, {}
        folders: list[str] = []
        for write in plan.writes:
            key = self._key(write.target.path)
            files[key] = self.store(write.target.path)
            mode = files[key].mode or f"{_new_file_mode():o}"
            after[key] = FileState(mode, self._blobs.put(write.data), len(write.data))
            folders += map(self._key, _missing_folders(write.target.path))
        return ChangeRecord(files, after, tuple(dict.fromkeys(folders)), {}, self._workspace.root, tool, call)

    def _append(self, record: ChangeRecord, branch: Branch | None) -> None:
        body = {"type": "file_snapshot", **msgspec.to_builtins(record)}
        (branch if branch is not None else self._session).append(body)

    def _key(self, path: str) -> str:
        root = self._workspace.root
        return os.path.relpath(path, root) if is_within(path, root) else path

    def _keyed(self, files: Mapping[str, FileState]) -> dict[str, FileState]:
        return {self._key(path): state for path, state in files.items()}

    # Planning

    def log(self, after: int = -1) -> Iterator[tuple[int, ChangeRecord]]:
        """The log entries after a node, with their nodes, in file order."""
        journal = self._session.journal
        wanted = [node for node in range(after + 1, len(journal)) if journal.types[node] in _ENTRY_TYPES]
        for node, fields in zip(wanted, journal.resolved_fields(wanted), strict=True):
            inner = fields.get("entry") if fields.get("type") == "sessiontree" else fields
            record = _parse(inner)
            if record is not None:
                yield node, record

    def plan(self, entry: str | None) -> RewindPlan:
        """Plan a rewind to an entry; to a user message, to just before it; to None, to the beginning."""
        leaf, text = entry, None
        if entry is not None:
            found = self._session.entry(entry)
            if isinstance(found, MessageEntry) and isinstance(found.message, User):
                leaf, text = self._session.parent(entry), found.message.content
        node = -1 if entry is None else self._session.node_of(entry)
        assert node is not None
        changes, folders, lost = self._revert_to(node)
        return RewindPlan(entry, leaf, text, changes, folders, lost)

    def _revert_to(self, node: int) -> tuple[tuple[RewindChange, ...], tuple[str, ...], tuple[str, ...]]:
        then: dict[str, FileState] = {}
        last: dict[str, tuple[FileState, FileState]] = {}
        folders: dict[str, None] = {}
        lost: list[str] = []
        for record in self._records(node):
            for path, state in record.files.items():
                then.setdefault(path, state)  # the first change after the node has the state at the node
                last[path] = (state, record.after.get(path, ABSENT))
            folders.update(dict.fromkeys(record.folders))
            lost += [f"{path}: {why}" for path, why in record.left_out.items()]
        changes = self._changes(then, last, lost)
        return changes, tuple(folders), tuple(dict.fromkeys(lost))

    def _records(self, node: int) -> list[ChangeRecord]:
        """The changes after a node by our own tools and, as far as it kept copies, by the session's client."""
        own = [(float(at), record) for at, record in self.log(node)]
        # What the client left is not recorded. So a file that differs from its copies is a conflict.
        theirs = [
            (change.position, ChangeRecord(change.files, change.files, left_out=change.lost))
            for change in self._history.changes(node)
        ]
        return [record for _, record in sorted([*own, *theirs], key=lambda pair: pair[0])]

    def _changes(
        self, then: Mapping[str, FileState], last: Mapping[str, tuple[FileState, FileState]], lost: list[str]
    ) -> tuple[RewindChange, ...]:
        """The paths whose state differs from `then`; what cannot be restored is added to `lost`."""
        changes = []
        for key, state in sorted(then.items()):
            path = os.path.normpath(os.path.join(self._workspace.root, key))
            try:
                now = read_state(path)
                if is_same_state(now, state):
                    continue
                copied = self._history.contents.get(state.sha256) if state.mode else None
                new = load_content(state, self._blobs) if copied is None else copied
                diff = self._diff(path, now, state, new)
            except (DamagedError, PathError, OSError, ValueError) as error:
                lost.append(f"{key}: {error}")
                continue
            changes.append(RewindChange(path, key, now, state, diff, self._conflict(path, now, last[key])))
        return tuple(changes)

    def _diff(self, path: str, now: FileState | None, then: FileState, new: bytes | None) -> str:
        found = read_path(path) if now is not None and now.mode else None
        key = self._key(path)
        diff = render_diff(key, None if found is None else found.data, new)
        if now is not None and now.mode and then.mode and now.mode != then.mode:
            diff = f"{key}: mode {now.mode} -> {then.mode}\n{diff}"
        return diff

    def _conflict(self, path: str, now: FileState | None, last: tuple[FileState, FileState]) -> str | None:
        """Why a path is not changed unless the caller names it. `last` has the states before and after its last change.

        Both count as known: a program that died between recording and writing leaves the state before.
        """
        real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        resolved = self._workspace.classify(real)
        if not resolved.is_inside:
            return "it is outside the project and the added folders"
        if real != path:
            return "a symbolic link leads to it"
        if resolved.is_guarded:
            return "a change there may run programs later"
        if now is None:
            return "it is now a folder or special file"
        if not any(is_same_state(now, known) for known in last):
            return "the user or another program has changed it since"
        return None

    # Rewinding

    def rewind(
        self,
        plan: RewindPlan,
        scope: RewindScope = "both",
        *,
        overwrite: Collection[str] = (),
        branch: Branch | None = None,
    ) -> Rewound:
        """Carry out a plan. Changes with a conflict are made only if their path is in `overwrite`.

        A file that changed since the plan was made is left alone and reported as failed.
        """
        at = branch if branch is not None else self._session.branch()
        rewinding = RewindRecord(at.leaf, plan.leaf, scope != "files")
        return self._carry_out(plan, scope, overwrite, branch, rewinding)

    def find_rewind(self) -> int | None:
        """The node of the last rewind that is not undone yet."""
        undone: set[int] = set()
        for node, record in reversed(list(self.log())):
            if record.rewinding is None or node in undone:
                continue
            if record.rewinding.undoes is not None:
                undone.add(record.rewinding.undoes)
                continue
            return node
        return None

    def _last_rewind(self) -> tuple[int, ChangeRecord, RewindRecord]:
        node = self.find_rewind()
        if node is None:
            raise NotFoundError("there is no rewind to undo")
        _, record = next(self.log(node - 1))
        assert record.rewinding is not None
        return node, record, record.rewinding

    def plan_undo(self) -> RewindPlan:
        """Plan the undo of the last rewind; `NotFoundError` if there is none."""
        node, record, rewinding = self._last_rewind()
        last = {path: (state, record.after.get(path, ABSENT)) for path, state in record.files.items()}
        for _, later in self.log(node):  # our own later changes are not conflicts
            for path in later.files.keys() & last.keys():
                last[path] = (later.files[path], later.after.get(path, ABSENT))
        lost: list[str] = []
        changes = self._changes(record.files, last, lost)
        leaf = rewinding.from_leaf
        return RewindPlan(leaf, leaf, None, changes, record.folders, tuple(lost))

    def undo(self, plan: RewindPlan, *, overwrite: Collection[str] = (), branch: Branch | None = None) -> Rewound:
        """Undo the last rewind as planned: files, and the conversation if it was also rewound."""
        node, _, undone = self._last_rewind()
        scope: RewindScope = "both" if undone.moved else "files"
        at = branch if branch is not None else self._session.branch()
        rewinding = RewindRecord(at.leaf, plan.leaf, undone.moved, node)
        return self._carry_out(plan, scope, overwrite, branch, rewinding)

    def _carry_out(
        self,
        plan: RewindPlan,
        scope: RewindScope,
        overwrite: Collection[str],
        branch: Branch | None,
        rewinding: RewindRecord,
    ) -> Rewound:
        chosen = [change for change in plan.changes if not change.conflict or _is_named(change, overwrite)]
        skipped = tuple(change.shown for change in plan.changes if change not in chosen)
        if scope == "conversation":
            chosen, skipped = [], ()
        chosen, failed = self._check_current(chosen)
        self._store_copies(chosen, plan.entry)
        if rewinding.moved:
            if branch is not None:
                branch.move(plan.leaf)
            else:
                self._session.move(plan.leaf)
        # Recorded before it is done: a process that dies in between leaves a rewind that can be undone or repeated.
        record = ChangeRecord(
            {self._key(change.path): change.now for change in chosen if change.now is not None},
            {self._key(change.path): change.then for change in chosen},
            tuple(dict.fromkeys(self._key(folder) for change in chosen for folder in _missing_folders(change.path))),
            root=self._workspace.root,
            tool=REWIND,
            rewinding=rewinding,
        )
        self._append(record, branch)
        restored, not_restored = self._restore(chosen)
        if scope != "conversation":
            for folder in sorted(plan.folders, key=len, reverse=True):  # inner folders first
                self._remove_folder(folder)
        leaf = branch.leaf if branch is not None else self._session.leaf
        return Rewound(tuple(restored), skipped, (*failed, *not_restored), leaf)

    def _store_copies(self, changes: Collection[RewindChange], entry: str | None) -> None:
        """Store the contents that only the client has: the rewind and its undo need them."""
        missing = [change.then.sha256 for change in changes if change.then.mode]
        if missing and not self._history.contents:
            node = None if entry is None else self._session.node_of(entry)
            self._history.changes(-1 if node is None else node)
        for name in missing:
            if name in self._history.contents:
                self._blobs.put(self._history.contents[name])

    def _check_current(self, changes: Collection[RewindChange]) -> tuple[list[RewindChange], list[str]]:
        """The changes whose files are still as planned, with their content stored; and messages for the others."""
        current: list[RewindChange] = []
        failed: list[str] = []
        for change in changes:
            try:
                if is_same_state(self.store(change.path), change.now):
                    current.append(change)
                    continue
                why = "not restored: it has changed since the plan was made"
            except (PathError, OSError) as error:
                why = str(error)
            failed.append(f"{change.shown}: {why}")
        return current, failed

    def _restore(self, changes: Collection[RewindChange]) -> tuple[list[str], list[str]]:
        restored: list[str] = []
        failed: list[str] = []
        # Deletions first: a file may be where a folder has to be created.
        for change in sorted(changes, key=lambda change: bool(change.then.mode)):
            try:
                restore_state(change.path, change.then, self._blobs)
                restored.append(change.shown)
            except (DamagedError, PathError, OSError) as error:
                failed.append(f"{change.shown}: {error}")
        return restored, failed

    def _remove_folder(self, key: str) -> None:
        path = os.path.normpath(os.path.join(self._workspace.root, key))
        if any(is_within(path, folder) and path != folder for folder in self._workspace.folders):
            remove_empty_folder(path)


def _parse(fields: Any) -> ChangeRecord | None:
    """Decode a log entry; None for snapshots of another kind, such as those of a worktree."""
    if not isinstance(fields, dict) or "root" not in fields:
        return None
    try:
        return msgspec.convert(fields, ChangeRecord)
    except msgspec.ValidationError:
        return None


def _is_named(change: RewindChange, overwrite: Collection[str]) -> bool:
    return change.path in overwrite or change.shown in overwrite


def _missing_folders(path: str) -> list[str]:
    """The folders that have to be created for a path, outermost first."""
    missing: list[str] = []
    folder = os.path.dirname(path)
    while not os.path.lexists(folder):
        missing.insert(0, folder)
        folder = os.path.dirname(folder)
    return missing


def _new_file_mode() -> int:
    return 0o100000 | (0o666 & ~read_umask())
