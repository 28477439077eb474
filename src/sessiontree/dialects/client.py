"""The client of a dialect: what other packages know about the program that reads and writes its sessions.

A client is pure, as a dialect is: it gets lines, bytes or a read-only connection, and returns values. Each dialect
folder has a `client` module with a subclass of `Client`, imported on first use. It imports the rest of the folder where
a method needs it: a search needs the rules of texts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    import sqlite3

    from sessiontree.dialects.canonical import CanonicalEntry
    from sessiontree.dialects.contract import IndexedLines
    from sessiontree.dialects.texts import TextReader
    from sessiontree.dialects.tool_table import ToolTable


class PastPrompt(Struct, frozen=True):
    """A prompt in a client's history. The fields are unchecked values of the file."""

    text: object
    cwd: object = ""
    session: object = ""
    time: object = None
    """Milliseconds since 1970."""
    is_dated: bool = True
    """False if the client does not record times."""


class PromptFile(Struct, frozen=True):
    """A file with the prompts that a user typed, in the folder above the client's folder of sessions.

    Contract: `parse` raises no error, whatever the bytes are; a record that it cannot decode is a prompt without text.
    """

    name: str
    parse: Callable[[bytes], Iterable[PastPrompt]]


class PromptDatabase(Struct, frozen=True):
    """Like `PromptFile`, for an SQLite database. `query` may raise `sqlite3.DatabaseError`."""

    name: str
    query: Callable[[sqlite3.Connection], Iterable[PastPrompt]]


class FileBackups(Struct, frozen=True):
    """Files as they were at a prompt, or before an edit after it."""

    node: int
    """The node of the prompt; of a copy that was made later, of its own line."""
    files: dict[str, str | None]
    """Path as the client names it -> path of its copy; None if the file did not exist."""
    is_at_prompt: bool = False


class WorktreeNote(Struct, frozen=True):
    """The git worktree that a session entered, as its client recorded it."""

    path: str
    branch: str | None
    head: str | None
    repository: str | None


class Client:
    """Facts about a client. The defaults suit an unknown program."""

    name = "the client"
    """The client's name in messages."""

    # What the client does with entries

    compaction_strategy = "recent"
    """The name of the strategy (`compaction.strategies`) that the client uses itself."""

    applies_context_edits = False
    """Whether the client sends the replacement of a `context_edit` entry instead of the original content."""

    applies_resets = False
    """Whether the client's context starts empty after a `reset_boundary` entry."""

    encodes_resets = False
    """Whether the lines that an encoder writes for a `reset_boundary` entry make the client's context start empty."""

    drops_failed_turns = False
    """Whether a context of the client never has an answer that failed or was aborted, nor the results of its calls."""

    kinds_before_results: frozenset[str] = frozenset()
    """Kinds of entries after which the client still sends a result as the answer to its call before them."""

    sends_kept_summaries = False
    """Whether the client sends older summaries among the messages that a compaction keeps, and that it covers."""

    sends_thinking_as_text = False
    """Whether the client sends the thinking of another model as text. Then thinking with the mark `UNSENT_THINKING` is
    stored where the client does not look."""

    sent_custom_types: frozenset[str] = frozenset()
    """The types of `custom` entries whose data the client sends; other clients send none."""

    knows_all_roles = False
    """Whether an encoder takes messages of roles beyond those of a user, an assistant and a tool result."""

    hides_system_messages = True
    """Whether an encoder stores messages of the role `system` so that the client does not send them."""

    records_commands = False
    """Whether an encoder takes messages of the role `bashExecution`: commands that the user ran."""

    def inserts(self, role: str, text: str) -> bool:
        """Whether the client itself sends such a text in messages of a role, so that it is not part of a conversation:
        its reminders, or what it sends for a message without content."""
        return False

    extending_types: frozenset[str] = frozenset({"message"})
    """Types of entries that, as a child of the current entry, become the current one and change nothing else."""

    moving_types: frozenset[str] = frozenset()
    """Types of metadata lines that may change the current entry."""

    @property
    def trailing_types(self) -> frozenset[str]:
        """Types of lines without a message that the client takes for the current entry when they are last."""
        return frozenset()

    def never_sends(self, entry: CanonicalEntry) -> bool:
        """Whether the client itself marked an entry as excluded from the context."""
        return False

    @property
    def tools(self) -> ToolTable | None:
        """The client's tools, to understand its calls and to map them to those of another client."""
        return None

    @property
    def texts(self) -> TextReader | None:
        """Reads the texts of the client's lines for the search index; None to read them from the parsed entries."""
        return None

    # What can be left out of a session file

    @property
    def own_line_types(self) -> frozenset[str]:
        """Types of lines that differ between copies and are never merged, such as one overwritten in place."""
        return frozenset()

    snapshot_types: frozenset[str] = frozenset()
    """Types of snapshots of files, of which the last of several equal lines is enough."""

    loads_from_compaction = False
    """Whether the client loads only what follows the last compaction; then `find_kept_lines` is used."""

    def find_kept_lines(
        self, lines: IndexedLines, path: Sequence[int], models: Iterable[str | None]
    ) -> set[int] | None:
        """The lines that must stay when a session is truncated to a path; None if it does not start at a compaction.

        `models` are those of the answers on the path.
        """
        return None

    def find_redundant_lines(self, lines: IndexedLines) -> set[int]:
        """Progress reports that a later one replaces."""
        return set()

    # Files of the client

    allows_flat_root = True
    """Whether session files directly in a root stay there when their working folder changes."""

    records_terminals = False
    """Whether the folder `terminal-sessions` next to the sessions has a file with the last session of each terminal."""

    prompt_history: PromptFile | PromptDatabase | None = None
    """The history of prompts that the client keeps for all sessions."""

    def retention_days(self, location: str, read: Callable[[str], bytes | None]) -> int | None:
        """Days after its last change when the client deletes a session file; None if it never does.

        Contract: the same for all files of a folder. `read` returns the bytes of a file, or None if it does not exist.
        """
        return None

    # Worktrees and copies of files that the client records

    worktree_type = ""
    """The type of lines that record a worktree; empty without such lines."""

    def parse_worktree(self, fields: Mapping[str, Any]) -> WorktreeNote | None:
        """Decode such a line; None if the session left its worktree."""
        return None

    def file_history(self, lines: IndexedLines) -> list[FileBackups]:
        """The copies of files that the client made before it edited them, in file order."""
        return []

    def find_backups(self, lines: IndexedLines) -> dict[str, str]:
        """Edited file -> path of the newest copy that the client made of it before an edit."""
        return {}
