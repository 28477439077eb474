"""Export a session as Markdown, one HTML page, plain text, JSON, its own raw lines, spans or a trajectory.

`export` yields the document in pieces, so that it never has to fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from sessiontree.core.jsonio import escape_controls
from sessiontree.errors import UsageError
from sessiontree.export.source import BranchSelection, Source
from sessiontree.secrets.redact import Redactor
from sessiontree.session.session import Session

Format = Literal["md", "html", "json", "jsonl", "text", "otel", "atif"]
FORMATS: tuple[Format, ...] = get_args(Format)
LINEAR: frozenset[Format] = frozenset({"otel", "atif"})
"""Formats whose documents have one branch."""
BRANCHES: tuple[BranchSelection, ...] = get_args(BranchSelection)

__all__ = ["BRANCHES", "FORMATS", "LINEAR", "BranchSelection", "Format", "Redactor", "export"]


def export(
    session: Session, format: Format = "md", *, branch: BranchSelection = "active", redactor: Redactor | None = None
) -> Iterator[bytes]:
    """Export the active path or all branches of a session. Damage is rendered, never raised.

    The redactor's counts are complete once the last piece has been yielded.
    """
    if branch == "all" and format in LINEAR:
        raise UsageError(f"{format} has one branch per document; switch to another branch and export that separately")
    source = Source(session, branch, redactor)
    match format:
        case "html":
            from sessiontree.export.html import render_html

            return _encoded(render_html(source))
        case "md":
            from sessiontree.export.markdown import render_markdown

            return _encoded(render_markdown(source))
        case "text":
            from sessiontree.export.text import render_text

            return _encoded(render_text(source))
        case "json":
            from sessiontree.export.raw import render_object

            return map(escape_controls, render_object(source))
        case "jsonl":
            from sessiontree.export.raw import render_lines

            return render_lines(source)
        case "otel":
            from sessiontree.export.otel import render_otel

            return map(escape_controls, render_otel(source))
        case "atif":
            from sessiontree.export.atif import render_atif

            return map(escape_controls, render_atif(source))


def _encoded(texts: Iterator[str], size: int = 64 * 1024) -> Iterator[bytes]:
    """Encode as UTF-8, joining small pieces."""
    waiting: list[str] = []
    length = 0
    for text in texts:
        waiting.append(text)
        length += len(text)
        if length >= size:
            yield "".join(waiting).encode("utf-8", "replace")
            waiting, length = [], 0
    yield "".join(waiting).encode("utf-8", "replace")
