"""A session as GitHub Markdown: messages unchanged, tool output and thinking folded.

Messages are Markdown themselves and stay Markdown, but must not affect the rest of the document. HTML, images and
unusual links become text; headings are escaped. Every fence is rewritten, at the margin and longer than any fence
inside. So every renderer agrees on what is code, and a message cannot leave a block open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sessiontree.core.jsonio import render_indented_json
from sessiontree.export.escape import esc, stamp
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
from sessiontree.export.sanitize import blocks, safe
from sessiontree.export.source import Source
from sessiontree.views.text import plural

_FOLDED_LINES = 12
_FOLDED_CHARACTERS = 1_200
_TICKS = re.compile(r"`+")
_SPECIAL = re.compile(r"([\\`*_\[\]#!|~$])")


def render_markdown(source: Source) -> Iterator[str]:
    """Render the document in pieces."""
    facts = source.facts()
    yield f"# {inline(first_words(facts.title or f'Session {facts.id}', 300))}\n\n"
    rows = [
        ("session", facts.id),
        ("format", f"{facts.dialect}, version {facts.version}"),
        ("folder", facts.folder),
        ("git branch", facts.git_branch or ""),
        ("created", stamp(facts.created)),
        ("forked from", facts.forked_from),
        ("branches", str(facts.branches)),
    ]
    yield "".join(f"- {name}: {inline(value)}\n" for name, value in rows if value) + "\n"
    for number, strand in enumerate(source.strands):
        if number:
            yield _branch_heading(source, number)
        for record in source.records(strand):
            yield render_record(record)
    yield from _section("Outside of the conversation", source.outside())
    yield from _end(source)


def _branch_heading(source: Source, number: int) -> str:
    strand = source.outline.strands[number]
    first = source.first_record(strand)
    origin = "the beginning" if strand.fork is None else source.session.journal.tree.ids[strand.fork]
    return f"---\n\n## Branch from {inline(origin)}: {inline(gist(first) if first else '')}\n\n"


def _section(title: str, records: Iterator[Record]) -> Iterator[str]:
    for number, record in enumerate(records):
        yield ("" if number else f"---\n\n## {title}\n\n") + render_record(record)


def render_record(record: Record) -> str:
    """One entry: a heading with a body, or a single line."""
    label = f"🏷 {inline(record.label)}" if record.label else ""
    facts = [*map(inline, record.facts), label, inline(stamp(record.time)), f"`{code_word(record.id)}`", record.mark]
    details = " · ".join(filter(None, facts))
    if record.is_small:
        notes = " ".join(_note(piece) for piece in record.pieces if isinstance(piece, Note))
        return f"_{inline(record.title)}_: {notes} · {details}\n\n"
    body = _render_result(record.result) if record.result is not None else "".join(map(_piece, record.pieces))
    return f"### {inline(record.title)}\n\n<sub>{details}</sub>\n\n{body}"


def _piece(piece: Piece) -> str:
    match piece:
        case TextPiece():
            return "".join(_block(block.text, block.code, block.language) for block in blocks(safe(piece.text)))
        case ThinkingPiece(text=None):
            return "_(encrypted thinking)_\n\n"
        case ThinkingPiece():
            return folded("Thinking", prose(safe(piece.text or "")) + "\n\n")
        case ImagePiece():
            return f"_(image, {inline(piece.mime)}, {len(piece.data):,} characters, omitted)_\n\n"
        case Command():
            state = f"_{inline(piece.state)}_\n\n" if piece.state else ""
            return fenced(f"$ {piece.command}", "console") + (output(piece.output) if piece.output else "") + state
        case Data():
            return folded(piece.title, fenced(render_indented_json(piece.value), "json"))
        case Note():
            return f"{'**Error:** ' if piece.error else ''}_{_note(piece)}_\n\n"
        case Call():
            return _call(piece)


def _block(text: str, is_code: bool, language: str) -> str:
    if not is_code:
        return prose(text) + "\n\n"
    return fenced(text, re.sub(r"[^A-Za-z0-9_+#.-]", "", language.split(" ")[0])[:30])


def _note(note: Note) -> str:
    return inline(note.text) + (f" `{code_word(note.target)}`" if note.target else "")


def _call(call: Call) -> str:
    about = call_gist(call)
    state = "" if call.result is not None else " (no result)"
    if call.result is not None and call.result.error:
        state = " (failed)"
    lines = [f"**{inline(call.name)}**{f' `{code_word(about)}`' if about else ''}{state}\n\n"]
    if call.arguments and (len(call.arguments) > 1 or about not in call.arguments.values()):
        lines.append(folded("Arguments", "".join(_argument(name, value) for name, value in call.arguments.items())))
    if call.result is not None:
        lines.append(_render_result(call.result))
    return "".join(lines)


def _argument(name: str, value: object) -> str:
    if isinstance(value, str):
        return f"{inline(str(name))}:\n\n{fenced(value)}"
    return f"{inline(str(name))}:\n\n{fenced(render_indented_json(value), 'json')}"


def _render_result(result: ResultPiece) -> str:
    label = f"🏷 {inline(result.label)}\n\n" if result.label else ""
    if not result.pieces:
        return label + "_(empty result)_\n\n"
    parts = [output(piece.text) if isinstance(piece, TextPiece) else _piece(piece) for piece in result.pieces]
    return label + "".join(parts)


def _end(source: Source) -> Iterator[str]:
    """The end of the document, rendered after all entries."""
    problems, fragments = source.problems(), source.fragments()
    if problems:
        yield "---\n\n## Problems in the file\n\n"
        for problem in problems:
            position = f"line {problem.line}, bytes {problem.start}-{problem.end}"
            yield f"- {problem.kind}, {position}: {inline(problem.action)}\n"
        yield "\n"
    if fragments:
        yield "## Bytes outside of any entry\n\n"
    for fragment in fragments:
        yield f"{inline(fragment.kind)}, line {fragment.line}, bytes {fragment.start}-{fragment.end}:\n\n"
        yield output(fragment.raw.decode("utf-8", "replace"))
    used = source.used()
    scope = "" if source.branch == "all" else " (this path)"
    cost = f", cost ${used.cost:,.4f}" if used.cost else ""
    yield f"---\n\nUsed{scope}: {plural(used.requests, 'request')}, {used.input:,} tokens in, {used.output:,} out, "
    yield f"{used.cached:,} cached{cost}\n"
    for kind, name, path in source.related_files():
        yield f"\n- {inline(kind)}: {inline(name)} {inline(path)}\n"
    if source.redactor is not None:
        yield f"\nSecrets: {source.redactor.report}.\n"


# Escaping


def inline(text: str) -> str:
    """Text on one line with all Markdown escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(safe(text).split())).replace("&", "&amp;").replace("<", "&lt;")


def code_word(text: str) -> str:
    """Text on one line, for use between backticks."""
    return " ".join(safe(text).split()).replace("`", "'") or "-"


def fenced(text: str, language: str = "text") -> str:
    """A code block, whatever the text contains."""
    text = safe(text)
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.removesuffix(chr(10))}\n{fence}\n\n"


def output(text: str) -> str:
    """Output of a program, folded if it is long."""
    lines = text.count("\n") + 1
    if lines <= _FOLDED_LINES and len(text) <= _FOLDED_CHARACTERS:
        return fenced(text)
    return folded(f"Output, {lines:,} {'line' if lines == 1 else 'lines'}", fenced(text))


def folded(title: str, body: str) -> str:
    """A collapsed section. `body` is Markdown that ends with an empty line."""
    return f"<details><summary>{esc(first_words(title, 120))}</summary>\n\n{body}</details>\n\n"


_CODE_SPAN = re.compile(r"((?<!`)(?:`[^`\n]{1,400}`|``[^`\n]{1,400}``)(?!`))")
_LIVE = re.compile(r"[<&]|!\[|\]\(")
_PUNCTUATION = re.compile(r"[^\w\s./:,=-]")
_ENTITY = re.compile(r"&(?=#?[A-Za-z0-9]{1,32};)")
_HEADING = re.compile(
    r"^([ \t>]*(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]+)?)(#{1,6}(?=[ \t]|$)|=+[ \t]*$|-{2,}[ \t]*$)", re.MULTILINE
)
_LINK = re.compile(r"\](?=\((?!https?://|#))")
_FENCE_LEFT = re.compile(r"(?<!`)`{3,}|(?<!~)~{3,}")


def prose(text: str) -> str:
    """A message's own Markdown, contained."""
    if "`" not in text:
        return _neutral(text)
    parts = _CODE_SPAN.split(text)
    return "".join(_code_span(part) if at % 2 else _neutral(part) for at, part in enumerate(parts))


def _code_span(span: str) -> str:
    """Inline code. Markup in it becomes entities, in case a renderer does not recognize the code."""
    if not _LIVE.search(span):
        return span
    code = _PUNCTUATION.sub(lambda found: f"&#{ord(found[0])};", span.strip("`"))
    return f"<code>{code}</code>"


def _neutral(text: str) -> str:
    text = _ENTITY.sub("&amp;", text).replace("<", "&lt;").replace("![", "!\\[")
    text = _LINK.sub(r"]\\", text).replace("]:", "]\\:")  # no definition of a link, wherever one may begin
    text = _HEADING.sub(r"\1\\\2", text)
    return _FENCE_LEFT.sub(r"\\\g<0>", text)
