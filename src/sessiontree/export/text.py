"""A session as plain text for a terminal or a pager, with all control characters replaced."""

from __future__ import annotations

from collections.abc import Iterator

from sessiontree.core.jsonio import render_indented_json
from sessiontree.export.escape import stamp
from sessiontree.export.record_builder import call_gist, first_words, gist
from sessiontree.export.records import (
    Call,
    Command,
    Data,
    ImagePiece,
    Note,
    Piece,
    Record,
    ResultPiece,
    TextPiece,
    ThinkingPiece,
)
from sessiontree.export.sanitize import safe
from sessiontree.export.source import Source
from sessiontree.views.text import TAB, plural

_RULE = "── "
_INDENT = "   "


def render_text(source: Source) -> Iterator[str]:
    """Render the text in pieces."""
    facts = source.facts()
    yield f"{_line(facts.title or f'Session {facts.id}')}\n"
    facts_line = [facts.id, f"{facts.dialect}, version {facts.version}", facts.folder, stamp(facts.created)]
    yield f"{_line(' · '.join(filter(None, facts_line)))}\n\n"
    for number, strand in enumerate(source.strands):
        if number:
            yield _branch_heading(source, number)
        for record in source.records(strand):
            yield render_record(record)
    for record in source.outside():
        yield render_record(record, "outside of the conversation")
    yield from _end(source)


def _branch_heading(source: Source, number: int) -> str:
    strand = source.outline.strands[number]
    first = source.first_record(strand)
    origin = "the beginning" if strand.fork is None else source.session.journal.tree.ids[strand.fork]
    title = f"Branch from {_line(origin)}: {_line(gist(first) if first else '')}"
    return f"{'═' * 72}\n{title}\n{'═' * 72}\n\n"


def render_record(record: Record, remark: str = "") -> str:
    label = f"[{record.label}]" if record.label else ""
    parts = [record.title, record.id, stamp(record.time), *record.facts, label, record.mark, remark]
    headline = _RULE + " · ".join(_line(part) for part in parts if part)
    body = _render_result(record.result) if record.result is not None else "".join(map(_piece, record.pieces))
    return f"{headline}\n{body}\n"


def _piece(piece: Piece) -> str:
    match piece:
        case TextPiece():
            return _indented(piece.text)
        case ThinkingPiece(text=None):
            return _indented("(encrypted thinking)")
        case ThinkingPiece():
            return _indented(f"(thinking) {piece.text}")
        case ImagePiece():
            return _indented(f"(image, {piece.mime}, {len(piece.data):,} characters)")
        case Command():
            state = f"\n({piece.state})" if piece.state else ""
            return _indented(f"$ {piece.command}\n{piece.output}{state}")
        case Data():
            return _indented(f"({piece.title}) {render_indented_json(piece.value)}")
        case Note():
            return _indented(f"{'error: ' if piece.error else ''}{piece.text} {piece.target or ''}".rstrip())
        case Call():
            return _call(piece)


def _call(call: Call) -> str:
    about = call_gist(call)
    if len(call.arguments) == 1 and about in call.arguments.values():
        lines = [_indented(f"→ {call.name} {about}")]
    else:
        lines = [_indented(f"→ {call.name} {render_indented_json(call.arguments)}")]
    if call.result is None:
        return lines[0] + _indented("(no result)")
    return lines[0] + _render_result(call.result)


def _render_result(result: ResultPiece) -> str:
    label = f" [{result.label}]" if result.label else ""
    head = _indented(f"← {'failed' if result.error else 'result'} · {result.id}{label}")
    return head + "".join(_indented(_piece_text(piece), 2) for piece in result.pieces)


def _piece_text(piece: Piece) -> str:
    return piece.text if isinstance(piece, TextPiece) else _piece(piece).strip()


def _end(source: Source) -> Iterator[str]:
    for problem in source.problems():
        position = f"line {problem.line}, bytes {problem.start}-{problem.end}"
        yield f"problem: {problem.kind}, {position}: {_line(problem.action)}\n"
    for fragment in source.fragments():
        yield f"{_RULE}{_line(fragment.kind)} · line {fragment.line} · bytes {fragment.start}-{fragment.end}\n"
        yield _indented(fragment.raw.decode("utf-8", "replace")) + "\n"
    used = source.used()
    scope = "" if source.branch == "all" else " (this path)"
    yield f"used{scope}: {plural(used.requests, 'request')}, {used.input:,} in, {used.output:,} out, "
    yield f"{used.cached:,} cached, cost {used.cost:.4f}\n"
    for kind, name, path in source.related_files():
        yield f"{_line(kind)}: {_line(name)} {_line(path)}\n"
    if source.redactor is not None:
        yield f"{source.redactor.report}\n"


def _line(text: str) -> str:
    return first_words(safe(text), 400)


def _indented(text: str, times: int = 1) -> str:
    """Sanitized, indented lines."""
    margin = _INDENT * times
    lines = safe(text).replace("\t", TAB).removesuffix("\n").split("\n")
    return "".join(f"{margin}{line}".rstrip() + "\n" for line in lines)
