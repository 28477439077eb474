"""The prompt history: every prompt a user typed, with its folder, project, session and time.

It is `history.sqlite` in the home folder. This is not a cache: prompts typed in other agents, or in deleted sessions,
are stored nowhere else. So it is readable by its user only, nothing in it is ever deleted, and a log has every prompt
a second time. A damaged file is moved aside and repaired from both (see `prompt_db`).

Adding a prompt never touches the database (see `prompt_spool`); the next search imports spooled prompts. Every prompt
is a row. The same prompt at the same moment is one row, from any source and after any number of imports. Repeats are
folded only when they are shown, so that the order of imports does not matter. Words are looked up one by one and the
rows are combined here, so that no query can be a syntax error in FTS5.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from sessiontree import paths
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.errors import SessionTreeError, StoreError
from sessiontree.library.cache import transaction
from sessiontree.library.sqlite_connection import NoLocksError
from sessiontree.library.sqlite_damage import DATABASE_ERRORS, is_damage
from sessiontree.search import prompt_spool
from sessiontree.search.prompt_db import check, check_values, connect, insert_prompt, prepare, repair
from sessiontree.search.prompt_import import ReadPosition, SourcePrompts, history_files, read_history_file, read_session
from sessiontree.search.prompt_spool import LoggedPrompt, SpooledPrompt, append_to_log, normalize_prompt
from sessiontree.search.query import And, Choice, Expression, Not, Or, Phrase, Query, Regex, Word
from sessiontree.search.query_parser import parse
from sessiontree.search.tokenizer import Unit, units

if TYPE_CHECKING:
    from sessiontree.library.home_image import HomeImage
    from sessiontree.library.library import Library
    from sessiontree.library.scanner import Progress
    from sessiontree.library.summary import Summary

T = TypeVar("T")

FILE = "history.sqlite"
_SAME_MOMENT = 60_000
"""Milliseconds within which two sources report the same prompt of one session."""
_GRADES = 4
"""Scores are rounded to quarters of the best one; within a grade, the newest comes first."""
_MATCHED = "SELECT id, time FROM prompts"
_AMONG = "id IN (SELECT value FROM json_each(?))"
_SHOWN = "SELECT prompt, cwd, project, session, agent, time FROM prompts"


class Prompt(Struct, frozen=True):
    """A prompt that was found."""

    prompt: str
    cwd: str
    project: str
    """Top folder of the repository that the folder belongs to; else the folder itself."""
    session: str
    agent: str
    time: int | None
    """Milliseconds since 1970; None if the source has no time."""
    times: int = 1
    """How often it was typed in a row."""


class Imported(Struct, frozen=True):
    """How many prompts an import added, and from how many files."""

    added: int = 0
    sources: int = 0
    """Files that were new or had changed."""
    unreadable: int = 0
    """Records in them that could not be decoded."""


class PromptHistory:
    """The history in a home folder. Not thread-safe; several processes may use it at once.

    With the address of a repository as its home, it has the prompts of the sessions there and is stored there. Those
    sessions have their prompts, so nothing else is kept about them, and no file of this machine has them.
    """

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        chosen = paths.home() if home is None else os.fspath(home)
        self._image = _find_image(chosen)
        self.home = chosen if self._image is not None else os.path.abspath(chosen)
        self.path = f"{self.home}/{FILE}" if self._image is not None else os.path.join(self.home, FILE)
        self.notes: list[str] = []
        """Messages to the user: what was damaged or ignored."""
        self.was_damaged = False
        """Whether a damaged file was repaired; `import_from` adds the prompts of all sessions once more."""
        self._database: sqlite3.Connection | None = None
        self._projects: dict[str, str] = {}

    def close(self) -> None:
        if self._database is not None:
            if self._image is not None:
                self._image.save(self._database)
            self._database.close()
            self._database = None

    def __enter__(self) -> PromptHistory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Adding

    def add(
        self,
        prompt: str,
        *,
        cwd: str | os.PathLike[str] = "",
        session: str = "",
        time: int | None = None,
        agent: str = DEFAULT_DIALECT,
    ) -> None:
        """Add a prompt. Never waits for another process; raises `WriteError` if it cannot be written."""
        if self._image is not None:
            return  # the session has it
        where = os.fspath(cwd)
        prompt_spool.remember(self.home, prompt, cwd=where, session=session, time=time, agent=agent)

    def import_from(self, library: Library, progress: Progress | None = None) -> Imported:
        """Import the history files of other agents and the prompts of all sessions of a library.

        Only files that are new or have changed are read; of a session, only added lines. The next import continues an
        interrupted one. Sources are never written to.
        """
        self._attempt(check)
        self._drain_spool()
        done = Imported()
        # Sessions first: forks copy times to the millisecond, while history files have slightly different times.
        is_of_home = self._image is not None
        sessions = sorted(
            (
                summary
                for summary in library.sessions()
                if not library.is_volatile(summary) and library.is_stored(summary) == is_of_home
            ),
            key=lambda summary: (summary.created or summary.modified, summary.recency),
        )
        for number, summary in enumerate(sessions, 1):

            def read_prompts(known: ReadPosition, summary: Summary = summary) -> tuple[SourcePrompts, ReadPosition]:
                return read_session(summary, known)

            stamp = None if summary.is_line_file else (summary.size, summary.modified)
            done = self._import(summary.ref, read_prompts, done, stamp)
            if progress is not None:
                progress(number, len(sessions))
        for agent, path in () if is_of_home else history_files(library.roots):

            def read_history(
                known: ReadPosition, agent: str = agent, path: str = path
            ) -> tuple[SourcePrompts, ReadPosition]:
                return read_history_file(agent, path), known

            done = self._import(path, read_history, done)
        return done

    def _import(
        self,
        path: str,
        read: Callable[[ReadPosition], tuple[SourcePrompts, ReadPosition]],
        done: Imported,
        stamp: tuple[int, int] | None = None,
    ) -> Imported:
        """Import one source if it changed; stores its prompts and the read position in one transaction.

        `stamp` is size and time of a source that is not a file.
        """
        try:
            if stamp is None:
                stat = os.stat(path)
                stamp = (stat.st_size, stat.st_mtime_ns)
            known = self._attempt(lambda database: _known_source(database, path))
            if known is not None and known[:2] == stamp:
                return done
            found, position = read(ReadPosition(*known[2:]) if known is not None else ReadPosition())
        except OSError as error:
            self.notes.append(f"{path}: {error.strerror or error}; skipped")
            return Imported(done.added, done.sources, done.unreadable + 1)
        except SessionTreeError as error:
            self.notes.append(f"{error}; skipped")
            return Imported(done.added, done.sources, done.unreadable + 1)
        row = (path, *stamp, position.end, position.edge)

        def work(database: sqlite3.Connection) -> int:
            with transaction(database):
                added = self._insert(database, found.prompts)
                database.execute("INSERT OR REPLACE INTO sources VALUES(?, ?, ?, ?, ?)", row)
            return added

        added = self._attempt(work)
        return Imported(done.added + added, done.sources + 1, done.unreadable + found.unreadable)

    def _drain_spool(self) -> None:
        """Import spooled prompts."""
        if self._image is not None:
            return

        def keep(typed: Sequence[SpooledPrompt]) -> None:
            def work(database: sqlite3.Connection) -> None:
                with transaction(database):
                    self._insert(database, typed)

            self._attempt(work)

        try:
            torn = prompt_spool.take(self.home, keep)
        except StoreError as error:  # they stay in the spool for the next search
            self.notes.append(f"{error}; the newest prompts are not shown")
            return
        if torn:
            self.notes.append(f"{self.home}: incomplete lines: {torn}, see history-torn-*.jsonl")

    def _insert(self, database: sqlite3.Connection, prompts: Sequence[SpooledPrompt]) -> int:
        """Insert prompts that are new, and log them. The caller commits."""
        added: list[LoggedPrompt] = []
        for prompt in prompts:
            if not _is_known(database, prompt):
                project = self._project_of(prompt.cwd)
                logged = LoggedPrompt(
                    prompt.prompt,
                    prompt.cwd,
                    prompt.session,
                    prompt.agent,
                    prompt.time,
                    prompt.source,
                    project,
                    prompt.key,
                )
                if insert_prompt(database, logged):
                    added.append(logged)
        if added and self._image is None:
            append_to_log(self.home, added)
        return len(added)

    def _project_of(self, cwd: str) -> str:
        from sessiontree.git.repository import find_repository

        if cwd not in self._projects:
            self._projects[cwd] = cwd
            if os.path.isabs(cwd) and os.path.isdir(cwd):
                repository = find_repository(os.path.realpath(cwd))
                self._projects[cwd] = normalize_prompt(repository.root) if repository is not None else cwd
        return self._projects[cwd]

    # Searching

    def search(
        self,
        query: str | Query = "",
        *,
        here: str | os.PathLike[str] | None = None,
        session: str | None = None,
        limit: int = 50,
    ) -> list[Prompt]:
        """Find prompts, best match first, then the newest; without words, newest first.

        `here` is a folder: only prompts of its project. `session` is an id or a prefix of one. The filters `agent:`,
        `project:`, `since:` and `before:` apply.
        """
        self._drain_spool()
        parsed = parse(query) if isinstance(query, str) else query
        self.notes += parsed.notes
        where = _without_regexes(parsed.where)
        if where != parsed.where:
            self.notes.append("the history is searched by words: re:/…/ was ignored")

        def work(database: sqlite3.Connection) -> list[Prompt]:
            condition, values = self._condition(database, parsed, here, session)
            if where is None:
                newest = database.execute(f"{_SHOWN} WHERE {condition} ORDER BY time DESC, id DESC", values)
                return _fold_repeats(newest, limit)
            scores = self._scores(database, where)
            matching = database.execute(
                f"{_MATCHED} WHERE {condition} AND {_AMONG}",
                (*values, json.dumps(list(scores))),
            ).fetchall()
            for _, time in matching:
                check_values((), time)
            best = max(scores.values(), default=0.0)
            matching.sort(key=lambda row: (_grade(scores[row[0]], best), row[1] or 0, row[0]), reverse=True)
            rows = (database.execute(f"{_SHOWN} WHERE id = ?", (id,)).fetchone() for id, _ in matching)
            return _deduplicated(rows, limit)

        return self._attempt(work)

    def __len__(self) -> int:
        """Number of prompts, including repeats."""
        self._drain_spool()
        count: int = self._attempt(lambda database: database.execute("SELECT count(*) FROM prompts").fetchone()[0])
        return count

    def _condition(
        self,
        database: sqlite3.Connection,
        query: Query,
        here: str | os.PathLike[str] | None,
        session: str | None,
    ) -> tuple[str, tuple[str | int, ...]]:
        """SQL conditions of the filters. Values are always bound, never part of the SQL text."""
        filters = query.filters
        parts = ["1"]
        values: list[str | int] = []
        if session:
            begin = normalize_prompt(session)
            parts.append("substr(session, 1, length(?)) = ?")
            values += [begin, begin]
        if filters.since is not None:
            parts.append("time >= ?")
            values.append(filters.since)
        if filters.before is not None:
            parts.append("time < ?")
            values.append(filters.before)
        if filters.agent.wanted:
            parts.append("agent IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(filters.agent.wanted))
        if filters.agent.unwanted:
            parts.append("agent NOT IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(filters.agent.unwanted))
        if here is not None or filters.project:
            parts.append("cwd IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(self._folders(database, filters.project, here)))
        others = {
            "role": filters.role,
            "tool": filters.tool,
            "file": filters.file,
            "model": filters.model,
            "in": filters.kinds,
            "is": filters.error is not None or filters.abandoned is not None,
            "branch": filters.branch != "all",
        }
        ignored = [f"{name}:" for name, value in others.items() if value]
        if ignored:
            self.notes.append(f"the history holds only prompts: {', '.join(ignored)} ignored")
        return " AND ".join(parts), tuple(values)

    def _folders(self, database: sqlite3.Connection, choice: Choice, here: str | os.PathLike[str] | None) -> list[str]:
        """Folders of a project: that of `here`, narrowed by the filter."""
        from sessiontree.library.projects import Projects

        rows = database.execute("SELECT cwd, project, max(time) FROM prompts GROUP BY cwd, project").fetchall()
        for *texts, time in rows:
            check_values(texts, time)
        if here is not None:
            projects = Projects(self.home)
            project = projects.of(os.path.abspath(os.fspath(here)))
            rows = [row for row in rows if projects.belongs_to(row[0], row[2] or 0, project)]
        return [cwd for cwd, name, _ in rows if _is_chosen(choice, f"{cwd}\n{name}".casefold())]

    def _scores(self, database: sqlite3.Connection, where: Expression) -> dict[int, float]:
        """Ids of the rows that match an expression, with their scores."""
        match where:
            case And(parts):
                wanted = [self._scores(database, part) for part in parts if not isinstance(part, Not)]
                unwanted = [self._scores(database, part.of) for part in parts if isinstance(part, Not)]
                kept = set(wanted[0]).intersection(*wanted[1:]) if wanted else set(_everything(database))
                kept.difference_update(*unwanted)
                return {id: sum(scores.get(id, 0.0) for scores in wanted) for id in kept}
            case Or(parts):
                found: dict[int, float] = {}
                for part in parts:
                    for id, score in self._scores(database, part).items():
                        found[id] = found.get(id, 0.0) + score
                return found
            case Not(of):
                gone = self._scores(database, of)
                return {id: 0.0 for id in _everything(database) if id not in gone}
            case Word(text, prefix):
                return _matches(database, text, prefix=prefix)
            case Phrase(text) | Regex(text):  # regular expressions have been removed before
                return _matches(database, text)

    # Database

    def _attempt(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function; if the database turns out to be damaged, repair it and run the function again."""
        for _ in range(2):
            try:
                return work(self._open())
            except DATABASE_ERRORS as error:
                if self._image is not None and self._database is not None:  # all of it is in the sessions
                    self._database.close()
                    self._database = prepare(sqlite3.connect(":memory:", isolation_level=None), self.path)
                    continue
                self.close()
                if isinstance(error, NoLocksError):
                    raise StoreError(str(error)) from error
                if not is_damage(error, self.path):
                    raise StoreError(f"{self.path}: {error}; try again when nothing else uses it") from error
                repaired = repair(self.path)
                if repaired is not None:
                    aside, prompts = repaired
                    self.was_damaged = True
                    self.notes.append(f"{self.path}: {error}; moved to {aside}, prompts recovered: {prompts}")
        raise StoreError(f"{self.path}: the new file is also damaged; check the disk")

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            image = self._image
            self._database = connect(self.path) if image is None else prepare(image.open(), self.path)
        return self._database


def _find_image(home: str) -> HomeImage | None:
    """The history that a repository keeps itself; None for a folder."""
    if ":" not in home:
        return None
    from sessiontree.library.home_image import HomeImage
    from sessiontree.stores.repositories import is_address, open_repository

    if not is_address(home):
        return None
    repository = open_repository(home)
    return None if repository.is_volatile else HomeImage(repository.documents, "history")


def _known_source(database: sqlite3.Connection, path: str) -> tuple[int, int, int, str] | None:
    row: tuple[int, int, int, str] | None = database.execute(
        "SELECT size, modified, end, edge FROM sources WHERE path = ?", (path,)
    ).fetchone()
    return row


def _is_known(database: sqlite3.Connection, prompt: SpooledPrompt) -> bool:
    """Whether another source has this prompt: the same folder or session, at about the same time.

    A source without times matches any time.
    """
    if prompt.time is None:
        sql = "SELECT 1 FROM prompts WHERE cwd = ? AND prompt = ? AND source != ? LIMIT 1"
        return database.execute(sql, (prompt.cwd, prompt.prompt, prompt.source)).fetchone() is not None
    sql = (
        "SELECT 1 FROM prompts WHERE time BETWEEN ? AND ? AND source != ? AND prompt = ? "
        "AND (cwd = ? OR (session = ? AND session != '')) LIMIT 1"
    )
    around = (prompt.time - _SAME_MOMENT, prompt.time + _SAME_MOMENT)
    return (
        database.execute(sql, (*around, prompt.source, prompt.prompt, prompt.cwd, prompt.session)).fetchone()
        is not None
    )


def _everything(database: sqlite3.Connection) -> Iterator[int]:
    return (row[0] for row in database.execute("SELECT id FROM prompts"))


def _matches(database: sqlite3.Connection, text: str, *, prefix: bool = False) -> dict[int, float]:
    """Rows with a word or phrase, with their scores."""
    wanted = units(text)
    if not wanted:  # only punctuation, which is not indexed
        like = "".join(f"\\{sign}" if sign in "%_\\" else sign for sign in text)
        rows = database.execute("SELECT id FROM prompts WHERE prompt LIKE ? ESCAPE '\\'", (f"%{like}%",))
        return {row[0]: 1.0 for row in rows}
    last = wanted[-1].terms()
    if prefix and not last[-1].endswith("*"):
        last[-1] += "*"
    terms = [term for unit in wanted[:-1] for term in unit.terms()] + last
    expression = " AND ".join(f'"{term[:-1]}" *' if term.endswith("*") else f'"{term}"' for term in terms)
    if len(wanted) == 1 and wanted[0].is_exact:
        found = database.execute("SELECT rowid, rank FROM found WHERE found MATCH ?", (expression,))
        return {id: -rank for id, rank in found}
    # The index has no positions: adjacency is checked in the text itself.
    close = database.execute(
        "SELECT found.rowid, found.rank, prompts.prompt FROM found JOIN prompts ON prompts.id = found.rowid "
        "WHERE found MATCH ?",
        (expression,),
    )
    return {id: -rank for id, rank, prompt in close if _are_adjacent(wanted, units(prompt), prefix=prefix)}


def _are_adjacent(wanted: Sequence[Unit], found_units: Sequence[Unit], *, prefix: bool) -> bool:
    """Whether words are adjacent in a text. Runs without spaces (CJK) may continue at either end."""
    last = len(wanted) - 1

    def fits(at: int, number: int) -> bool:
        unit, found = wanted[number], found_units[at + number]
        if unit.is_cjk != found.is_cjk:
            return False
        if unit.is_cjk and 0 == number == last:
            return unit.text in found.text
        if unit.is_cjk and number == 0:
            return found.text.endswith(unit.text)
        if number == last and (unit.is_cjk or prefix):
            return found.text.startswith(unit.text)
        return unit.text == found.text

    starts = range(len(found_units) - last)
    return any(all(fits(at, number) for number in range(len(wanted))) for at in starts)


def _grade(score: float, best: float) -> int:
    return int(_GRADES * score / best) if best > 0 else 0


def _without_regexes(where: Expression | None) -> Expression | None:
    """An expression without its regular expressions; None if nothing is left."""
    match where:
        case None | Regex():
            return None
        case Not(of):
            inner = _without_regexes(of)
            return None if inner is None else Not(inner)
        case And(parts) | Or(parts):
            kept = [part for part in map(_without_regexes, parts) if part is not None]
            return type(where)(tuple(kept)) if kept else None
        case _:
            return where


def _is_chosen(choice: Choice, text: str) -> bool:
    if any(value.casefold() in text for value in choice.unwanted):
        return False
    return not choice.wanted or any(value.casefold() in text for value in choice.wanted)


def _fold_repeats(rows: Iterator[tuple[str, str, str, str, str, int | None]], limit: int) -> list[Prompt]:
    """Fold rows, newest first: a row that repeats the next newer one of the same folder only counts."""
    shown: list[Prompt] = []
    newest: dict[str, int] = {}
    for row in rows:
        *texts, time = row
        check_values(texts, time)
        prompt, cwd = row[0], row[1]
        at = newest.get(cwd)
        if at is not None and shown[at].prompt == prompt:
            shown[at] = replace(shown[at], times=shown[at].times + 1)
        elif len(shown) < limit:
            newest[cwd] = len(shown)
            shown.append(Prompt(*row))
        else:
            break
    return shown


def _deduplicated(rows: Iterator[tuple[str, str, str, str, str, int | None]], limit: int) -> list[Prompt]:
    """Keep the first row of each prompt in a folder."""
    shown: dict[tuple[str, str], Prompt] = {}
    for row in rows:
        *texts, time = row
        check_values(texts, time)
        known = shown.get(row[:2])
        if known is not None:
            shown[row[:2]] = replace(known, times=known.times + 1)
        elif len(shown) < limit:
            shown[row[:2]] = Prompt(*row)
        else:
            break
    return list(shown.values())
