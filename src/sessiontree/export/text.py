"""A session as plain text for a terminal or a pager. Nothing in it can do anything to either."""

from __future__ import annotations

from collections.abc import Iterator

from sessiontree.core.jsonio import render_indented_json
from sessiontree.export.html_pieces import stamp
from sessiontree.export.record_builder import call_gist, first_words, gist
from sessiontree.export.records import Answer, Call, Command, Data, Note, Picture, Piece, Record, Thought, Words
from sessiontree.export.sanitize import safe
from sessiontree.export.source import Source
from sessiontree.views.text import TAB

_RULE = "── "
_INDENT = "   "


def render_text(source: Source) -> Iterator[str]:
    """The text, piece by piece."""
    facts = source.facts()
    yield f"{_line(facts.title or f'Session {facts.id}')}\n"
    said = [facts.id, f"{facts.dialect}, version {facts.version}", facts.folder, stamp(facts.created)]
    yield f"{_line(' · '.join(filter(None, said)))}\n\n"
    for number, strand in enumerate(source.strands):
        if number:
            yield _branch_heading(source, number)
        for record in source.records(strand):
            yield render_record(record)
    for record in source.loose():
        yield render_record(record, "beside the conversation")
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
    body = _answer(record.answer) if record.answer is not None else "".join(map(_piece, record.pieces))
    return f"{headline}\n{body}\n"


def _piece(piece: Piece) -> str:
    match piece:
        case Words():
            return _set_in(piece.text)
        case Thought(text=None):
            return _set_in("(thinking that only its provider can read)")
        case Thought():
            return _set_in(f"(thinking) {piece.text}")
        case Picture():
            return _set_in(f"(picture, {piece.mime}, {len(piece.data):,} characters)")
        case Command():
            state = f"\n({piece.state})" if piece.state else ""
            return _set_in(f"$ {piece.command}\n{piece.output}{state}")
        case Data():
            return _set_in(f"({piece.title}) {render_indented_json(piece.value)}")
        case Note():
            return _set_in(f"{'error: ' if piece.error else ''}{piece.text} {piece.target or ''}".rstrip())
        case Call():
            return _call(piece)


def _call(call: Call) -> str:
    about = call_gist(call)
    if len(call.arguments) == 1 and about in call.arguments.values():
        lines = [_set_in(f"→ {call.name} {about}")]
    else:
        lines = [_set_in(f"→ {call.name} {render_indented_json(call.arguments)}")]
    if call.answer is None:
        return lines[0] + _set_in("(no result)")
    return lines[0] + _answer(call.answer)


def _answer(answer: Answer) -> str:
    label = f" [{answer.label}]" if answer.label else ""
    head = _set_in(f"← {'failed' if answer.error else 'result'} · {answer.id}{label}")
    return head + "".join(_set_in(_piece_text(piece), 2) for piece in answer.pieces)


def _piece_text(piece: Piece) -> str:
    return piece.text if isinstance(piece, Words) else _piece(piece).strip()


def _end(source: Source) -> Iterator[str]:
    for problem in source.problems():
        place = f"line {problem.line}, bytes {problem.start}-{problem.end}"
        yield f"problem: {problem.kind}, {place}: {_line(problem.action)}\n"
    for fragment in source.fragments():
        yield f"{_RULE}{_line(fragment.kind)} · line {fragment.line} · bytes {fragment.start}-{fragment.end}\n"
        yield _set_in(fragment.raw.decode("utf-8", "replace")) + "\n"
    used = source.used()
    scope = "" if source.branch == "all" else " (this path)"
    yield f"used{scope}: {used.requests:,} requests, {used.input:,} in, {used.output:,} out, {used.cached:,} cached"
    yield f", cost {used.cost:.4f}\n"
    for kind, name, place in source.beside():
        yield f"{_line(kind)}: {_line(name)} {_line(place)}\n"
    if source.redactor is not None:
        yield f"{source.redactor.report}\n"


def _line(text: str) -> str:
    return first_words(safe(text), 400)


def _set_in(text: str, times: int = 1) -> str:
    """Clean lines, set in."""
    margin = _INDENT * times
    lines = safe(text).replace("\t", TAB).removesuffix("\n").split("\n")
    return "".join(f"{margin}{line}".rstrip() + "\n" for line in lines)
