"""Git worktrees of lanes. They start as a copy of the project, including uncommitted files.

    <home>/explore/<session>/<run>/<number>         the folder of a lane
    <home>/explore/<session>/<run>/<number>.json    its record, written when the folder is complete
    <home>/explore/<session>/<run>/<number>.check   its work, while a check runs in it
    refs/sessiontree/explore/<run>/base             the project when the run began
    refs/sessiontree/explore/<run>/<number>         the work of a lane, once it is saved
    refs/sessiontree/explore/<run>/before           the project before files of lanes were last applied to it

Invariants:

* A folder is removed only after its work is a commit that one of our refs keeps. The user's branches, index and stash
  are never touched.
* A worktree that a session's record names is used only if this session could have created it: nothing is run or
  removed in a folder because a file from elsewhere names it.
* A check judges the work of a lane and is not part of it: changes it makes in the folder are undone.
* Ignored files, submodules and nested repositories are not in a worktree.
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
from sessiontree.explore.records import Worktree
from sessiontree.git import command, trees
from sessiontree.git.objects import find_object, write_commit
from sessiontree.git.trees import FileChange, FileConflict
from sessiontree.git.worktree import find_common_folder, find_head, find_root, list_worktrees
from sessiontree.paths import real_folder
from sessiontree.stores.atomic_files import make_folder, write_temporary

T = TypeVar("T")

REFS = "refs/sessiontree/explore"
_RUN = re.compile(r"[0-9a-f]{8}\Z")
_OBJECT = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})\Z")
MAX_BYTES = 500_000_000
"""The most uncommitted bytes that a worktree may start with."""
_ATTEMPTS = 5
"""Attempts to remove a folder in which an ending process still writes."""


class Applied(Value, frozen=True, omit_defaults=False):
    """Changes made in the project, or the conflicts that prevented them."""

    files: tuple[FileChange, ...] = ()
    clashes: tuple[FileConflict, ...] = ()
    """If there are any, nothing was written."""
    stay: tuple[Worktree, ...] = ()
    """Worktrees whose changes could not be taken out of the project."""


class _Project(msgspec.Struct, frozen=True):
    """The repository of a folder."""

    top: str
    prefix: str
    """The folder relative to the top."""
    repository: str
    head: str


class LaneWorktrees:
    """The worktrees of one session's explorations."""

    def __init__(self, home: str, session_id: str, folder: str) -> None:
        if not is_session_id(session_id):  # from a file that may come from elsewhere, and part of a path
            raise UsageError(f"{session_id!r} is not a valid session id, so it cannot have worktrees")
        self._root = os.path.join(os.path.realpath(home), "explore", session_id)
        self._folder = real_folder(folder)
        # Lanes may be created in several threads at once; only one of them changes the repository at a time.
        self._lock = threading.Lock()

    # The project

    def why_not(self) -> str | None:
        """Why worktrees of this project cannot be created; None if they can."""
        try:
            self._find_project()
        except UsageError as error:
            return str(error)
        return None

    def _find_project(self) -> _Project:
        if not os.path.isdir(self._folder):
            raise NotFoundError(f"{self._folder}: no such folder")
        return self._read_project()

    @property
    def _existing_folder(self) -> str:
        """The folder of the project, or its nearest existing parent: applied changes may have removed it."""
        folder = self._folder
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        return folder

    def _read_project(self) -> _Project:
        folder = self._existing_folder
        top = find_root(folder)
        if not top:
            raise UsageError(
                f"{folder}: not in a git repository, so lanes cannot have worktrees; create one with `git init` and a "
                "commit, or let all lanes share the folder with --no-worktrees"
            )
        head = find_head(folder)
        if not head:
            raise UsageError(
                f"{top}: the repository has no commit, and worktrees need one; create it with "
                "`git commit --allow-empty -m start`, or let all lanes share the folder with --no-worktrees"
            )
        if command.has_filters(top):
            # They are not run: anyone may have written them. Without them, merging would store filtered content.
            raise UsageError(
                f"{top}: the settings of this repository define filters, which are not run; move them to your own "
                "settings (`git config --global filter...`), or let all lanes share the folder with --no-worktrees"
            )
        top = os.path.realpath(top)
        prefix = os.path.relpath(self._folder, top)
        if prefix != os.curdir and command.query(top, "check-ignore", "--", prefix):
            raise UsageError(
                f"{folder}: ignored by the repository {top}, so a worktree would be empty; make it a repository with "
                "`git init`, or let all lanes share the folder with --no-worktrees"
            )
        return _Project(top, prefix, find_common_folder(folder), head)

    def begin(self, run: str) -> None:
        """Save the project as it is; refuse one that is too large."""
        project = self._find_project()
        with self._lock:
            self._base(run, project)

    def check(self, worktree: Worktree) -> None:
        """Raise unless this session could have created a worktree."""
        run, _, number = os.path.relpath(worktree.path, self._root).partition(os.sep)
        is_ours = (
            _RUN.match(run) is not None
            and number.isdecimal()
            and worktree.path == self._path(run, int(number))
            and worktree.ref == f"{REFS}/{run}/{number}"
            and _OBJECT.match(worktree.base) is not None
            and _OBJECT.match(worktree.head) is not None
        )
        if not is_ours:
            raise UsageError(
                f"{worktree.path}: the session names this worktree, but it is not one of this session's; "
                "nothing was done with it"
            )
        here = find_common_folder(self._existing_folder)
        if worktree.repository != here:
            raise UsageError(
                f"{worktree.path}: created from the repository {worktree.repository}, but the project {self._folder} "
                f"is in {here or 'none'}; nothing was done with it"
            )

    def _path(self, run: str, number: int) -> str:
        return os.path.join(self._root, run, str(number))

    # Creating

    def make(self, run: str, number: int, like: Worktree | None = None) -> Worktree:
        """Create a worktree of the project as it was when the run began, or with `like`, as that worktree is now.

        A folder that a dead process left there is saved and removed first.
        """
        project = self._find_project()
        with self._lock:
            base = self._base(run, project)
            tree = base if like is None else self._current_tree(like)
            worktree = Worktree(
                path=self._path(run, number),
                repository=project.repository,
                base=base,
                head=find_object(project.repository, f"{REFS}/{run}/base^1") or project.head,
                ref=f"{REFS}/{run}/{number}",
            )
            stayed = self.remove(worktree)
            if stayed is not None:
                raise StoreError(f"the worktree cannot be created: {stayed}")
            self._rename_old_ref(worktree)
            if like is not None:
                self._commit(worktree, tree)  # so that `restore` starts with the same files
            self._check_out(worktree, tree)
        return worktree

    def _rename_old_ref(self, worktree: Worktree) -> None:
        """Keep the work of an earlier worktree of the same number under another ref."""
        old = find_object(worktree.repository, worktree.ref)
        if old is not None:
            command.repository_output(worktree.repository, "update-ref", f"{worktree.ref}-{old[:12]}", old)
            command.repository_output(worktree.repository, "update-ref", "-d", worktree.ref, old)

    def _base(self, run: str, project: _Project) -> str:
        """The tree of the project when the run began. A ref protects it from garbage collection."""
        ref = f"{REFS}/{run}/base"
        found = find_object(project.repository, f"{ref}^{{tree}}")
        if found is not None:
            return found
        tree = trees.write_tree(project.top, project.head, max_bytes=MAX_BYTES)
        commit = write_commit(project.repository, tree, [project.head], f"The project when exploration {run} began")
        command.repository_output(project.repository, "update-ref", ref, commit)
        return tree

    def _check_out(self, worktree: Worktree, tree: str) -> None:
        self._clear(worktree)
        make_folder(os.path.dirname(worktree.path))
        # The files come from the tree, which also has the uncommitted ones, not from the commit.
        command.repository_output(
            worktree.repository, "worktree", "add", "--detach", "--no-checkout", worktree.path, worktree.head
        )
        command.output(worktree.path, "read-tree", "--reset", "-u", tree)
        file = _record_path(worktree.path)
        os.replace(write_temporary(file, [render_json(worktree)]), file)

    def _clear(self, worktree: Worktree) -> None:
        """Remove a worktree's folder, and git's registration of it."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_record_path(worktree.path))  # first: after a crash in between, the folder counts as incomplete
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_check_path(worktree.path))
        self._unregister(worktree)
        for _ in range(_ATTEMPTS):
            if not os.path.lexists(worktree.path):
                break
            shutil.rmtree(worktree.path, ignore_errors=True)
            time.sleep(0.05 if os.path.lexists(worktree.path) else 0)
        self._unregister(worktree)  # git forgets an incomplete worktree only without its folder

    def _unregister(self, worktree: Worktree) -> None:
        if worktree.path in _registered(worktree.repository):
            command.query(
                worktree.repository, f"--git-dir={worktree.repository}", "worktree", "remove", "-f", "-f", worktree.path
            )

    def _read_record(self, path: str) -> Worktree | None:
        """The record of a complete worktree."""
        try:
            with open(_record_path(path), "rb") as file:
                made = msgspec.json.decode(file.read(), type=Worktree)
        except (OSError, msgspec.DecodeError):
            return None
        return made if os.path.isdir(path) else None

    def is_complete(self, worktree: Worktree) -> bool:
        """Whether its folder is complete."""
        return self._read_record(worktree.path) is not None

    def has_remains(self, worktree: Worktree) -> bool:
        """Whether there is anything that `remove` would remove."""
        is_ours = worktree.path.startswith(self._root + os.sep)
        return is_ours and (os.path.lexists(worktree.path) or os.path.lexists(_record_path(worktree.path)))

    def folder(self, worktree: Worktree) -> str:
        """The folder in a worktree that corresponds to the project's."""
        self.check(worktree)
        if not self.is_complete(worktree):
            raise NotFoundError(f"{worktree.path}: this worktree was removed; its work is in {worktree.ref}")
        top = os.path.realpath(find_root(self._existing_folder))
        inside = os.path.normpath(os.path.join(worktree.path, os.path.relpath(self._folder, top)))
        try:
            os.makedirs(inside, exist_ok=True)  # it may have only ignored files, which worktrees do not have
        except OSError as error:
            raise StoreError(f"{inside}: not a folder in this worktree: {error}") from error
        return inside

    def restore(self, worktree: Worktree) -> None:
        """Create a missing or incomplete worktree again: as it was saved, or else as it began."""
        self.check(worktree)
        if self._read_record(worktree.path) is not None:
            if worktree.path in _registered(worktree.repository):
                lock = command.query(worktree.path, "rev-parse", "--path-format=absolute", "--git-path", "index.lock")
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(lock)  # of a git process that was killed with its lane
                self.end_check(worktree)
                return
            self.save(worktree)  # the folder exists, but git no longer knows it
            inner = self._inner_repositories(worktree)
            if inner:
                raise StoreError(
                    f"{worktree.path}: git no longer knows this worktree, and it contains the repository "
                    f"{', '.join(inner)}; move that elsewhere, then resume again"
                )
        with self._lock:
            self._check_out(worktree, self._saved_tree(worktree) or worktree.base)

    # The work of a lane

    def save(self, worktree: Worktree) -> str | None:
        """Commit the files of a worktree to its ref; returns None if they are unchanged."""
        self.check(worktree)
        tree = self._current_tree(worktree)
        self._save_tree(worktree, tree)
        return None if tree == worktree.base else find_object(worktree.repository, worktree.ref)

    def _save_tree(self, worktree: Worktree, tree: str) -> None:
        if tree != (self._saved_tree(worktree) or worktree.base):
            self._commit(worktree, tree)

    def _commit(self, worktree: Worktree, tree: str) -> None:
        """Commit a tree to a worktree's ref, with its old value and commits made in the folder as parents."""
        # As parents, because git would otherwise collect them as garbage.
        run, number = worktree.ref.split("/")[-2:]
        parents = [find_object(worktree.repository, f"{REFS}/{run}/base") or worktree.head]
        head = find_head(worktree.path) if self.is_complete(worktree) else None
        parents += [head] if head is not None and head != worktree.head else []
        before = find_object(worktree.repository, worktree.ref)
        parents += [before] if before is not None else []
        commit = write_commit(worktree.repository, tree, parents, f"The files of lane {number} of exploration {run}")
        command.repository_output(worktree.repository, "update-ref", worktree.ref, commit)

    def begin_check(self, worktree: Worktree) -> None:
        """Record the current tree as the work of a worktree, until `end_check`."""
        self.save(worktree)
        file = _check_path(worktree.path)
        os.replace(write_temporary(file, [self._current_tree(worktree).encode()]), file)

    def end_check(self, worktree: Worktree) -> None:
        """Undo the changes of a check, if one ran. They stay in the history of the ref."""
        self.check(worktree)
        work = self._work_before_check(worktree)
        if work is None:
            return
        left = self._folder_tree(worktree)
        if left != work:
            self._save_tree(worktree, left)
            trees.checkout_tree(worktree.path, worktree.repository, left, work)
            self._save_tree(worktree, work)
        os.unlink(_check_path(worktree.path))

    def _work_before_check(self, worktree: Worktree) -> str | None:
        """The work of a worktree in which a check runs, or ran when a process died."""
        try:
            with open(_check_path(worktree.path), encoding="ascii") as file:
                work = file.read()
        except (OSError, UnicodeDecodeError):
            return None
        return find_object(worktree.repository, f"{work}^{{tree}}") if _OBJECT.match(work) else None

    def _current_tree(self, worktree: Worktree) -> str:
        """The work of a worktree: its folder, or else the saved tree, or else the initial one."""
        if self._read_record(worktree.path) is None:
            return self._saved_tree(worktree) or worktree.base
        return self._work_before_check(worktree) or self._folder_tree(worktree)

    def _folder_tree(self, worktree: Worktree) -> str:
        return self._inspect(worktree, trees.write_tree)

    def _inner_repositories(self, worktree: Worktree) -> list[str]:
        return self._inspect(worktree, trees.find_nested_repositories)

    def _inspect(self, worktree: Worktree, look: Callable[[str, str, str | None], T]) -> T:
        """Run a git query on the folder of a worktree."""
        try:
            try:
                return look(worktree.path, worktree.base, self._unregistered(worktree))
            except StoreError:  # git's registration may be damaged; the files are readable without it
                return look(worktree.path, worktree.base, worktree.repository)
        except (StoreError, OSError) as error:
            raise StoreError(
                f"{worktree.path}: git cannot read this worktree; move what you need elsewhere and remove the folder "
                f"to get the last saved state ({' '.join(str(error).split())})"
            ) from error

    def _unregistered(self, worktree: Worktree) -> str | None:
        """The repository, if git cannot find it from the folder or does not list the worktree."""
        is_known = (
            worktree.path in _registered(worktree.repository)
            and find_common_folder(worktree.path) == worktree.repository
        )
        return None if is_known else worktree.repository

    def _saved_tree(self, worktree: Worktree) -> str | None:
        return find_object(worktree.repository, f"{worktree.ref}^{{tree}}")

    def remove(self, worktree: Worktree) -> str | None:
        """Save a worktree and remove its folder; returns the reason if it was kept."""
        self.check(worktree)
        if self._read_record(worktree.path) is not None:
            found = self._folder_tree(worktree)
            inner = self._inner_repositories(worktree)
            try:
                # All files first, even those that a check left: they stay in the history of the ref.
                self._save_tree(worktree, found)
                self._save_tree(worktree, self._work_before_check(worktree) or found)
            except StoreError as error:
                raise StoreError(
                    f"{worktree.path}: kept, because its work cannot be saved; fix that, then `explore resume` removes "
                    f"it ({' '.join(str(error).split())})"
                ) from error
            if inner:
                return f"{worktree.path} was kept: it contains the repository {', '.join(inner)}"
        self._clear(worktree)
        if os.path.lexists(worktree.path):
            raise StoreError(
                f"{worktree.path}: its work is saved, but the folder cannot be removed; remove it manually"
            )
        for folder in (os.path.dirname(worktree.path), self._root):
            with contextlib.suppress(OSError):  # not empty
                os.rmdir(folder)
        return None

    def diff(self, worktree: Worktree, *, stat: bool = False) -> str:
        """The changes since the beginning, as a diff for display."""
        self.check(worktree)
        return trees.diff_text(worktree.repository, worktree.base, self._current_tree(worktree), stat_only=stat)

    def patch(self, worktree: Worktree) -> bytes:
        """The changes since the beginning, as a patch for `git apply`, including binary files."""
        self.check(worktree)
        return trees.binary_patch(worktree.repository, worktree.base, self._current_tree(worktree))

    def files(self, worktree: Worktree) -> list[FileChange]:
        """The files changed since the beginning."""
        self.check(worktree)
        return trees.list_changes(worktree.repository, worktree.base, self._current_tree(worktree))

    # Applying to the project

    def apply(self, worktree: Worktree, onto: str | None = None) -> Applied:
        """Apply the work of a worktree to the project, unless it conflicts with the user's changes."""
        return self.apply_all([worktree], onto)

    def apply_all(
        self,
        worktrees: Sequence[Worktree],
        onto: str | None = None,
        *,
        instead_of: Sequence[Worktree] = (),
        dry_run: bool = False,
    ) -> Applied:
        """Apply the work of several worktrees to the project, or nothing if there is a conflict.

        The changes of `instead_of`, applied earlier, are taken out first, as far as they are unchanged and uncommitted.
        """
        for worktree in (*worktrees, *instead_of):
            self.check(worktree)
        project = self._read_project()
        top = os.path.realpath(find_root(onto)) if onto is not None else project.top
        ours = tree = trees.write_tree(top, project.head)
        stay = []
        for worktree in instead_of:
            without, conflicts = trees.merge_trees(
                worktree.repository, self._current_tree(worktree), tree, worktree.base
            )
            if conflicts or worktree.head != project.head:
                stay.append(worktree)
            else:
                tree = without
        for worktree in worktrees:
            tree, clashes = trees.merge_trees(worktree.repository, worktree.base, tree, self._current_tree(worktree))
            if clashes:
                return Applied(clashes=tuple(clashes))
        clashes = trees.find_obstacles(top, project.repository, ours, tree)
        if clashes:
            return Applied(clashes=tuple(clashes))
        if not dry_run and tree != ours:
            self._save_project((*worktrees, *instead_of)[0], ours, project)
            trees.checkout_tree(top, project.repository, ours, tree)
        files = trees.list_changes(project.repository, ours, tree)
        return Applied(tuple(file for file in files if not file.is_repository), stay=tuple(stay))

    def _save_project(self, worktree: Worktree, tree: str, project: _Project) -> None:
        """Save the files of the project to a ref before they are changed: a crash may leave some of them written."""
        run, _ = worktree.ref.split("/")[-2:]
        ref = f"{REFS}/{run}/before"
        last = find_object(project.repository, ref)
        parents = [project.head, *([last] if last is not None else [])]
        commit = write_commit(
            project.repository, tree, parents, f"The project before lanes of exploration {run} were applied"
        )
        command.repository_output(project.repository, "update-ref", ref, commit)

    # Orphans

    def find_orphans(self, known: Iterable[Worktree]) -> list[str]:
        """Folders without a lane's record: a process died before it could write one."""
        paths = {worktree.path for worktree in known}
        found = []
        with contextlib.suppress(OSError):
            for run in sorted(os.listdir(self._root)):
                for name in sorted(os.listdir(os.path.join(self._root, run))):
                    path = os.path.join(self._root, run, name)
                    if name.isdecimal() and path not in paths:
                        found.append(path)
        return found

    def remove_orphans(self, known: Iterable[Worktree], only: str | None = None) -> list[str]:
        """Save and remove the folders that `find_orphans` returns, of all runs or of one; returns their paths."""
        project = self._read_project()
        removed = []
        for path in self.find_orphans(known):
            run, number = path.split(os.sep)[-2:]
            if only is not None and run != only:
                continue
            base = find_object(project.repository, f"{REFS}/{run}/base^{{tree}}")
            if not _RUN.match(run) or base is None:
                continue  # belongs to another repository
            worktree = Worktree(path, project.repository, base, project.head, f"{REFS}/{run}/{number}")
            if self.remove(worktree) is None:
                removed.append(path)
        return removed


def _record_path(path: str) -> str:
    return f"{path}.json"


def _check_path(path: str) -> str:
    return f"{path}.check"


def _registered(repository: str) -> set[str]:
    """The worktrees of a repository that git knows."""
    return {worktree.path for worktree in list_worktrees(repository)}
