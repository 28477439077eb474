"""The working copies of lanes: git worktrees that begin with the project as it is, uncommitted files included.

    <home>/explore/<session>/<run>/<number>         the folder of a lane
    <home>/explore/<session>/<run>/<number>.json    what it is; written when it is whole
    <home>/explore/<session>/<run>/<number>.check   its work, while a check is run in it
    refs/sessiontree/explore/<run>/base             the project as it was when the run began
    refs/sessiontree/explore/<run>/<number>         the work of a lane, from the moment it is saved
    refs/sessiontree/explore/<run>/before           the project as it was when work of lanes was last brought into it

Rules of this file:

* A folder goes only after its work is a commit that a ref of ours holds. The user's branches, index and stash are left
  alone.
* What a record in a session says of a copy is believed only where it is what this session's copies would be: nothing is
  run or removed in a folder because a file from someone else names it.
* A check judges the work of a lane and is no part of it: what it leaves in the folder is put back.
* Ignored files, submodules and repositories within the repository are not in a copy.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from sessiontree.core.ids import is_session_id
from sessiontree.core.jsonio import Value, render_json
from sessiontree.errors import NotFoundError, StoreError, UsageError
from sessiontree.explore.records import Copy
from sessiontree.git import command, trees
from sessiontree.git.trees import FileChange, FileClash
from sessiontree.stores.atomic_files import make_folder, write_temporary

T = TypeVar("T")

REFS = "refs/sessiontree/explore"
_RUN = re.compile(r"[0-9a-f]{8}\Z")
_OBJECT = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})\Z")
MOST_BYTES = 500_000_000
"""Uncommitted bytes that a working copy begins with, at most."""
_TRIES = 5
"""How often a folder is removed in which a process that is ending still writes."""


class Applied(Value, frozen=True, omit_defaults=False):
    """What was put into the project, or why nothing was."""

    files: tuple[FileChange, ...] = ()
    clashes: tuple[FileClash, ...] = ()
    """Nothing was written if there are any."""
    stay: tuple[Copy, ...] = ()
    """Those whose work should have gone, and did not."""


class _Project(msgspec.Struct, frozen=True):
    """The repository that a folder lies in."""

    top: str
    prefix: str
    """The folder, seen from the top."""
    repository: str
    head: str


class Copies:
    """The working copies of one session's explorations."""

    def __init__(self, home: str, session_id: str, folder: str) -> None:
        if not is_session_id(session_id):  # it comes out of a file, and may be anything
            raise UsageError(f"{session_id!r} cannot be the id of a session, so it can have no working copies")
        self._root = os.path.join(os.path.realpath(home), "explore", session_id)
        self._folder = os.path.realpath(folder)
        self._lock = threading.Lock()

    # What it stands on

    def why_not(self) -> str | None:
        """Why no copies can be made of this project; None when they can."""
        try:
            self._look()
        except UsageError as error:
            return str(error)
        return None

    def _look(self) -> _Project:
        if not os.path.isdir(self._folder):
            raise NotFoundError(f"{self._folder}: there is no such folder")
        return self._look_around()

    @property
    def _place(self) -> str:
        """The folder of the project, or what is left above it: the work of a lane may have moved or removed it."""
        place = self._folder
        while not os.path.isdir(place):
            place = os.path.dirname(place)
        return place

    def _look_around(self) -> _Project:
        folder = self._place
        top = command.ask(folder, "rev-parse", "--show-toplevel")
        if not top:
            raise UsageError(
                f"{folder}: is in no git repository, so lanes cannot have working copies of their own; `git init` and "
                "a first commit make one, --no-worktrees lets all lanes work in the same folder"
            )
        head = command.ask(folder, "rev-parse", "--verify", "--quiet", "HEAD")
        if not head:
            raise UsageError(
                f"{top}: the repository has no commit yet, and a working copy needs one to stand on; "
                "`git commit --allow-empty -m start` makes it, --no-worktrees lets all lanes work in the same folder"
            )
        top = os.path.realpath(top)
        prefix = os.path.relpath(self._folder, top)
        if prefix != os.curdir and command.ask(top, "check-ignore", "--", prefix):
            raise UsageError(
                f"{folder}: the repository {top} ignores this folder, so a working copy would be empty; "
                "`git init` makes it a repository of its own, --no-worktrees lets all lanes work in the same folder"
            )
        return _Project(top, prefix, _common(folder), head)

    def begin(self, run: str) -> None:
        """Hold the project as it is; refuse it if it is too large for copies."""
        project = self._look()
        with self._lock:
            self._base(run, project)

    def check(self, copy: Copy) -> None:
        """Raise unless a copy is one that this object could have made."""
        run, _, number = os.path.relpath(copy.path, self._root).partition(os.sep)
        is_ours = (
            _RUN.match(run) is not None
            and number.isdecimal()
            and copy.path == self._path(run, int(number))
            and copy.ref == f"{REFS}/{run}/{number}"
            and _OBJECT.match(copy.base) is not None
            and _OBJECT.match(copy.head) is not None
        )
        if not is_ours:
            raise UsageError(
                f"{copy.path}: the session names this as a working copy, and it is none of this session's here; "
                "nothing was done with it"
            )
        here = _common(self._place)
        if copy.repository != here:
            raise UsageError(
                f"{copy.path}: was made from the repository {copy.repository}, and the project {self._folder} is in "
                f"{here or 'none'}; nothing was done with it"
            )

    def _path(self, run: str, number: int) -> str:
        return os.path.join(self._root, run, str(number))

    # Making and finding

    def make(self, run: str, number: int, like: Copy | None = None) -> Copy:
        """A working copy of the project as it was when the run began, or with `like` as that copy is now.

        What a process that died left at its place goes; if its work was begun, it is saved first.
        """
        project = self._look()
        with self._lock:
            base = self._base(run, project)
            tree = base if like is None else self._now(like)
            copy = Copy(
                path=self._path(run, number),
                repository=project.repository,
                base=base,
                head=trees.find_object(project.repository, f"{REFS}/{run}/base^1") or project.head,
                ref=f"{REFS}/{run}/{number}",
            )
            stayed = self.remove(copy)
            if stayed is not None:
                raise StoreError(f"no working copy could be made: {stayed}")
            self._set_aside(copy)
            if like is not None:
                self._commit(copy, tree)  # so that it can be made again as it began
            self._lay(copy, tree)
        return copy

    def _set_aside(self, copy: Copy) -> None:
        """What an earlier copy of the same number left stays, under another name."""
        old = trees.find_object(copy.repository, copy.ref)
        if old is not None:
            trees.in_repository(copy.repository, "update-ref", f"{copy.ref}-{old[:12]}", old)
            trees.in_repository(copy.repository, "update-ref", "-d", copy.ref, old)

    def _base(self, run: str, project: _Project) -> str:
        """The tree of the project when the run began. A ref holds it, or git would throw it away some day."""
        ref = f"{REFS}/{run}/base"
        found = trees.find_object(project.repository, f"{ref}^{{tree}}")
        if found is not None:
            return found
        tree = trees.tree_of(project.top, project.head, most=MOST_BYTES)
        commit = trees.commit(project.repository, tree, [project.head], f"The project when exploration {run} began")
        trees.in_repository(project.repository, "update-ref", ref, commit)
        return tree

    def _lay(self, copy: Copy, tree: str) -> None:
        self._clear(copy)
        make_folder(os.path.dirname(copy.path))
        trees.in_repository(copy.repository, "worktree", "add", "--detach", "--no-checkout", copy.path, copy.head)
        command.do(copy.path, "read-tree", "--reset", "-u", tree)
        mark = _mark(copy.path)
        os.replace(write_temporary(mark, [render_json(copy)]), mark)

    def _clear(self, copy: Copy) -> None:
        """Take away what is at the place of a copy, and what git remembers of it."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_mark(copy.path))  # first: whoever dies in the midst leaves a folder that is not whole any more
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_check_mark(copy.path))
        self._forget(copy)
        for _ in range(_TRIES):
            if not os.path.lexists(copy.path):
                break
            shutil.rmtree(copy.path, ignore_errors=True)
            time.sleep(0.05 if os.path.lexists(copy.path) else 0)
        self._forget(copy)  # of one that was half made, only now that its folder is gone

    def _forget(self, copy: Copy) -> None:
        if copy.path in _registered(copy.repository):
            command.ask(copy.repository, f"--git-dir={copy.repository}", "worktree", "remove", "-f", "-f", copy.path)

    def _made(self, path: str) -> Copy | None:
        """The copy at a place, if it was made to the end."""
        try:
            with open(_mark(path), "rb") as file:
                made = msgspec.json.decode(file.read(), type=Copy)
        except (OSError, msgspec.DecodeError):
            return None
        return made if os.path.isdir(path) else None

    def is_there(self, copy: Copy) -> bool:
        """Whether its folder is there, and whole."""
        return self._made(copy.path) is not None

    def is_left(self, copy: Copy) -> bool:
        """Whether anything of it is at a place of ours that `remove` would take away."""
        is_ours = copy.path.startswith(self._root + os.sep)
        return is_ours and (os.path.lexists(copy.path) or os.path.lexists(_mark(copy.path)))

    def folder(self, copy: Copy) -> str:
        """The folder in a copy that stands for the project's."""
        self.check(copy)
        if not self.is_there(copy):
            raise NotFoundError(f"{copy.path}: this working copy is not there any more; its work is in {copy.ref}")
        top = os.path.realpath(command.ask(self._place, "rev-parse", "--show-toplevel"))
        inside = os.path.normpath(os.path.join(copy.path, os.path.relpath(self._folder, top)))
        try:
            os.makedirs(inside, exist_ok=True)  # it may have held nothing but ignored files
        except OSError as error:
            raise StoreError(f"{inside}: the folder of the project is none in this working copy: {error}") from error
        return inside

    def restore(self, copy: Copy) -> None:
        """Have a copy there again that is gone or was not made to the end: as it was saved, else as it began."""
        self.check(copy)
        if self._made(copy.path) is not None:
            if copy.path in _registered(copy.repository):
                lock = command.ask(copy.path, "rev-parse", "--path-format=absolute", "--git-path", "index.lock")
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(lock)  # of a git that was killed with its lane
                self.end_check(copy)
                return
            self.save(copy)  # the folder is there, and git has forgotten it
            inner = self._inner(copy)
            if inner:
                raise StoreError(
                    f"{copy.path}: git no longer knows this worktree, and {', '.join(inner)} in it is a repository of "
                    "its own; move that elsewhere, then resume again"
                )
        with self._lock:
            self._lay(copy, self._saved_tree(copy) or copy.base)

    # Its work

    def save(self, copy: Copy) -> str | None:
        """Make a commit of the files of a copy, held by its ref; None when they are as in the beginning."""
        self.check(copy)
        tree = self._now(copy)
        self._hold(copy, tree)
        return None if tree == copy.base else trees.find_object(copy.repository, copy.ref)

    def _hold(self, copy: Copy, tree: str) -> None:
        if tree != (self._saved_tree(copy) or copy.base):
            self._commit(copy, tree)

    def _commit(self, copy: Copy, tree: str) -> None:
        """Let the ref of a copy hold a tree. Behind it is what it held before, and what was committed in the folder."""
        run, number = copy.ref.split("/")[-2:]
        parents = [trees.find_object(copy.repository, f"{REFS}/{run}/base") or copy.head]
        stands = command.ask(copy.path, "rev-parse", "--verify", "--quiet", "HEAD") if self.is_there(copy) else ""
        parents += [stands] if stands and stands != copy.head else []
        before = trees.find_object(copy.repository, copy.ref)
        parents += [before] if before is not None else []
        commit = trees.commit(copy.repository, tree, parents, f"The files of lane {number} of exploration {run}")
        trees.in_repository(copy.repository, "update-ref", copy.ref, commit)

    def begin_check(self, copy: Copy) -> None:
        """From now on until `end_check`, its work is what it is now, whatever becomes of its folder."""
        self.save(copy)
        mark = _check_mark(copy.path)
        os.replace(write_temporary(mark, [self._now(copy).encode()]), mark)

    def end_check(self, copy: Copy) -> None:
        """Put the folder back as it was before a check, if there was one. Its ref holds behind that what it left."""
        self.check(copy)
        work = self._checked(copy)
        if work is None:
            return
        left = self._in_folder(copy)
        if left != work:
            self._hold(copy, left)
            trees.put_tree(copy.path, copy.repository, left, work)
            self._hold(copy, work)
        os.unlink(_check_mark(copy.path))

    def _checked(self, copy: Copy) -> str | None:
        """The work of a copy in which a check is run, or was when a process died."""
        try:
            with open(_check_mark(copy.path), encoding="ascii") as file:
                work = file.read()
        except (OSError, UnicodeDecodeError):
            return None
        return trees.find_object(copy.repository, f"{work}^{{tree}}") if _OBJECT.match(work) else None

    def _now(self, copy: Copy) -> str:
        """The work in a copy as a tree: what is in its folder, else as saved, else as it began."""
        if self._made(copy.path) is None:
            return self._saved_tree(copy) or copy.base
        return self._checked(copy) or self._in_folder(copy)

    def _in_folder(self, copy: Copy) -> str:
        return self._looked_at(copy, trees.tree_of)

    def _inner(self, copy: Copy) -> list[str]:
        return self._looked_at(copy, trees.inner_repositories)

    def _looked_at(self, copy: Copy, look: Callable[[str, str, str | None], T]) -> T:
        """What there is to see in the folder of a copy."""
        try:
            try:
                return look(copy.path, copy.base, self._forgotten(copy))
            except StoreError:  # what git keeps of the worktree may be damaged; its files need none of that
                return look(copy.path, copy.base, copy.repository)
        except (StoreError, OSError) as error:
            raise StoreError(
                f"{copy.path}: git cannot read this working copy; take out what you need and remove the folder, then "
                f"the lane is as it was saved last ({' '.join(str(error).split())})"
            ) from error

    def _forgotten(self, copy: Copy) -> str | None:
        """The repository, if it has to be named because git, or the folder, has forgotten that it is its worktree."""
        is_known = copy.path in _registered(copy.repository) and _common(copy.path) == copy.repository
        return None if is_known else copy.repository

    def _saved_tree(self, copy: Copy) -> str | None:
        return trees.find_object(copy.repository, f"{copy.ref}^{{tree}}")

    def remove(self, copy: Copy) -> str | None:
        """Save a copy, and take its folder away. Why it stayed, if it did."""
        self.check(copy)
        if self._made(copy.path) is not None:
            there = self._in_folder(copy)
            inner = self._inner(copy)
            try:
                self._hold(copy, there)
                self._hold(copy, self._checked(copy) or there)
            except StoreError as error:
                raise StoreError(
                    f"{copy.path}: the folder stays, as its work cannot be saved; when that is mended, --resume takes "
                    f"it away ({' '.join(str(error).split())})"
                ) from error
            if inner:
                return f"{copy.path} stays: {', '.join(inner)} in it is a repository of its own"
        self._clear(copy)
        if os.path.lexists(copy.path):
            raise StoreError(f"{copy.path}: its work is saved, but the folder cannot be removed; remove it by hand")
        for folder in (os.path.dirname(copy.path), self._root):
            with contextlib.suppress(OSError):  # others are in it
                os.rmdir(folder)
        return None

    def diff(self, copy: Copy, *, stat: bool = False) -> str:
        """The difference between the beginning and now, as git tells it."""
        self.check(copy)
        return trees.diff_text(copy.repository, copy.base, self._now(copy), stat_only=stat)

    def patch(self, copy: Copy) -> bytes:
        """The same as git's own bytes, so that `git apply` makes the one out of the other, whatever files have."""
        self.check(copy)
        options = ("-r", "-M", "--patch", "--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv")
        return trees.in_repository(copy.repository, "diff-tree", *options, copy.base, self._now(copy))

    def files(self, copy: Copy) -> list[FileChange]:
        """The files that are not as in the beginning."""
        self.check(copy)
        return trees.changed_files(copy.repository, copy.base, self._now(copy))

    # Into the project

    def apply(self, copy: Copy, onto: str | None = None) -> Applied:
        """Bring the work of a copy into the project; nothing is written if it is at odds with what the user did."""
        return self.apply_all([copy], onto)

    def apply_all(
        self,
        copies: Sequence[Copy],
        onto: str | None = None,
        *,
        instead_of: Sequence[Copy] = (),
        dry_run: bool = False,
    ) -> Applied:
        """Bring the work of several copies into the project, one behind the other, or nothing at all.

        The work of others that was brought there before goes first, as far as it is there as it was, and uncommitted.
        """
        for copy in (*copies, *instead_of):
            self.check(copy)
        project = self._look_around()
        top = os.path.realpath(command.ask(onto, "rev-parse", "--show-toplevel")) if onto is not None else project.top
        ours = tree = trees.tree_of(top, project.head)
        stay = []
        for copy in instead_of:
            without, at_odds = trees.merge_trees(copy.repository, self._now(copy), tree, copy.base)
            if at_odds or copy.head != project.head:
                stay.append(copy)
            else:
                tree = without
        for copy in copies:
            tree, clashes = trees.merge_trees(copy.repository, copy.base, tree, self._now(copy))
            if clashes:
                return Applied(clashes=tuple(clashes))
        clashes = trees.find_obstacles(top, project.repository, ours, tree)
        if clashes:
            return Applied(clashes=tuple(clashes))
        if not dry_run and tree != ours:
            self._hold_project(copies[0], ours, project)
            trees.put_tree(top, project.repository, ours, tree)
        files = trees.changed_files(project.repository, ours, tree)
        return Applied(tuple(one for one in files if not one.is_repository), stay=tuple(stay))

    def _hold_project(self, copy: Copy, tree: str, project: _Project) -> None:
        """Let a ref hold the files of the project before they are changed, whatever happens while they are."""
        run, _ = copy.ref.split("/")[-2:]
        ref = f"{REFS}/{run}/before"
        last = trees.find_object(project.repository, ref)
        parents = [project.head, *([last] if last is not None else [])]
        commit = trees.commit(project.repository, tree, parents, f"The project before lanes of exploration {run} came")
        trees.in_repository(project.repository, "update-ref", ref, commit)

    # What nobody knows

    def orphans(self, known: Iterable[Copy]) -> list[str]:
        """The folders of copies that no record of a lane names: a process died before it could write one."""
        paths = {copy.path for copy in known}
        found = []
        with contextlib.suppress(OSError):
            for run in sorted(os.listdir(self._root)):
                for name in sorted(os.listdir(os.path.join(self._root, run))):
                    path = os.path.join(self._root, run, name)
                    if name.isdecimal() and path not in paths:
                        found.append(path)
        return found

    def clear_orphans(self, known: Iterable[Copy], only: str | None = None) -> list[str]:
        """Take those folders away, or only those of a run; what was changed in them is saved first. Which ones."""
        project = self._look_around()
        gone = []
        for path in self.orphans(known):
            run, number = path.split(os.sep)[-2:]
            if only is not None and run != only:
                continue
            base = trees.find_object(project.repository, f"{REFS}/{run}/base^{{tree}}")
            if not _RUN.match(run) or base is None:
                continue  # of another repository
            copy = Copy(path, project.repository, base, project.head, f"{REFS}/{run}/{number}")
            if self.remove(copy) is None:
                gone.append(path)
        return gone


def _common(folder: str) -> str:
    return (
        os.path.realpath(found)
        if (found := command.ask(folder, "rev-parse", "--path-format=absolute", "--git-common-dir"))
        else ""
    )


def _mark(path: str) -> str:
    return f"{path}.json"


def _check_mark(path: str) -> str:
    return f"{path}.check"


def _registered(repository: str) -> set[str]:
    """The folders that git knows as worktrees of a repository."""
    told = command.ask(repository, f"--git-dir={repository}", "worktree", "list", "--porcelain")
    return {line.removeprefix("worktree ") for line in told.splitlines() if line.startswith("worktree ")}
