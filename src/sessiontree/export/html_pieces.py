"""Records as HTML. All session text is escaped here."""

from __future__ import annotations

import re

from sessiontree.core.jsonio import render_indented_json
from sessiontree.export.record_builder import call_gist, first_words
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
from sessiontree.export.sanitize import blocks, safe

PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_PLAIN = re.compile(r"[A-Za-z0-9 .:,/_-]{0,60}")
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=]")
_LONG = 1_500
"""System prompts and summaries of at least this length are folded."""


def esc(text: str) -> str:
    """Escape a text between tags."""
    if _PLAIN.fullmatch(text):
        return text
    text = safe(text)
    if "&" in text:
        text = text.replace("&", "&amp;")
    if "<" in text:
        text = text.replace("<", "&lt;")
    return text.replace(">", "&gt;") if ">" in text else text


def attribute(text: str) -> str:
    """Escape a text inside a quoted attribute."""
    return esc(text).replace('"', "&quot;").replace("'", "&#39;")


def anchor(id: str) -> str:
    """The element id of an entry; different entry ids never collide."""
    if id.isascii() and id.replace("-", "").isalnum():
        return f"entry-{id}"
    return "entry-" + _NOT_IN_IDS.sub(lambda found: f".{ord(found[0]):x}.", id)


def stamp(time: str) -> str:
    """Format a timestamp for people."""
    return f"{time[:10]} {time[11:16]}" if len(time) > 15 and time[10] == "T" else time[:40]


def _time(time: str) -> str:
    if _PLAIN.fullmatch(time):
        return f'<time datetime="{time}">{stamp(time)}</time>'
    return f'<time datetime="{attribute(time)}">{esc(stamp(time))}</time>'


def render_record(record: Record) -> str:
    """One entry as an article."""
    out: list[str] = []
    name = anchor(record.id) if not record.mark else f"{anchor(record.id)}-{record.node}"
    replaced = " replaced" if record.mark else ""
    out.append(f'<article class="{record.who}{replaced}" id="{name}"><header><a href="#{name}">{esc(record.title)}</a>')
    if record.label:
        out.append(f'<span class="label">{esc(record.label)}</span>')
    for fact in record.facts:
        bad = ' class="bad"' if fact in ("failed", "error", "aborted", "length") else ""
        out.append(f"<span{bad}>{esc(fact)}</span>")
    if record.mark:
        out.append(f"<span>{esc(record.mark)}</span>")
    small = record.is_small
    if small:
        out.extend(f"<span>{_note(piece)}</span>" for piece in record.pieces if isinstance(piece, Note))
    if record.time:
        out.append(_time(record.time))
    out.append("</header>")
    if record.result is not None:
        _add_result(out, record.result)
    elif not small:
        for piece in record.pieces:
            _add_piece(out, piece, fold=record.who == "system")
    out.append("</article>\n")
    return "".join(out)


def _add_piece(out: list[str], piece: Piece, *, fold: bool = False) -> None:
    match piece:
        case TextPiece():
            if fold and len(piece.text) > _LONG:
                out.append(f"<details><summary>{esc(first_words(piece.text, 120))}</summary>")
                _add_text(out, piece.text)
                out.append("</details>")
            else:
                _add_text(out, piece.text)
        case Call():
            _add_call(out, piece)
        case ThinkingPiece(text=None):
            out.append('<p class="quiet">(encrypted thinking)</p>')
        case ThinkingPiece():
            gist, text = esc(first_words(piece.text or "", 100)), esc(piece.text or "")
            out.append(f'<details class="thinking"><summary>Thinking: {gist}</summary>')
            out.append(f'<div class="text">{text}</div></details>')
        case ImagePiece():
            out.append(_picture(piece))
        case Command():
            out.append(f"<pre>$ {esc(piece.command)}</pre>")
            failed = ' class="failed"' if piece.failed else ""
            if piece.output:
                out.append(f"<pre{failed}>{esc(piece.output)}</pre>")
            if piece.state:
                out.append(f'<p class="{"bad" if piece.failed else "quiet"}">{esc(piece.state)}</p>')
        case Data():
            value = esc(render_indented_json(piece.value))
            out.append(f"<details><summary>{esc(piece.title)}</summary><pre>{value}</pre></details>")
        case Note():
            out.append(f'<p class="{"bad" if piece.error else "quiet"}">{_note(piece)}</p>')


def _add_text(out: list[str], text: str) -> None:
    for block in blocks(text):
        if block.code:
            out.append(f"<pre><code>{esc(block.text)}</code></pre>")
        else:
            out.append(f'<div class="text">{esc(block.text)}</div>')


def _note(note: Note) -> str:
    if note.target is None:
        return esc(note.text)
    return f'{esc(note.text)} <a href="#{anchor(note.target)}">{esc(note.target[:40])}</a>'


def _picture(picture: ImagePiece) -> str:
    """An image of a type that cannot contain scripts; others are only mentioned."""
    size = f"{len(picture.data):,} characters"
    data = "".join(picture.data.split()) if picture.mime in PICTURES else ""
    if not data or _NOT_BASE64.search(data):
        return f'<p class="quiet">(image, {esc(picture.mime)}, {size}: not shown)</p>'
    return f'<img alt="image, {picture.mime}" loading="lazy" src="data:{picture.mime};base64,{data}">'


def _add_call(out: list[str], call: Call) -> None:
    result = call.result
    state = "no result" if result is None else ""
    if result is not None and result.error:
        state = '<span class="bad">failed</span>'
    about = esc(call_gist(call))
    out.append(f"<details{_id(result)}><summary><b>{esc(call.name)}</b> <code>{about}</code> {state}</summary>")
    if call.arguments:
        out.append("<dl>")
        for name, value in call.arguments.items():
            text = value if isinstance(value, str) else render_indented_json(value)
            out.append(f"<dt>{esc(str(name))}</dt><dd><pre>{esc(text)}</pre></dd>")
        out.append("</dl>")
    if result is not None:
        label = f' <span class="label">{esc(result.label)}</span>' if result.label else ""
        out.append(f'<p class="quiet">result{label} {_time(result.time)}</p>')
        _add_result(out, result)
    out.append("</details>")


def _id(result: ResultPiece | None) -> str:
    return "" if result is None else f' id="{anchor(result.id)}"'


def _add_result(out: list[str], result: ResultPiece) -> None:
    """Tool output is shown verbatim: it is not Markdown."""
    failed = ' class="failed"' if result.error else ""
    if not result.pieces:
        out.append('<p class="quiet">(empty)</p>')
    for piece in result.pieces:
        if isinstance(piece, TextPiece):
            out.append(f"<pre{failed}>{esc(piece.text)}</pre>")
        else:
            _add_piece(out, piece)
