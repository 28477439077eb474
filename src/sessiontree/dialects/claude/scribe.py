"""Writing a transcript that the client resumes in full: items in shared words -> lines.

An answer is one line for each of its blocks, a result hangs on the line of its call, a compaction is a boundary and a
summary. Entries that the client has no line for are asides: lines of our own type, which it passes over. What a line
has no place for rides along on it, worked out by telling the line and looking at what is missing (`differences`).

The results of one response are held back until all are there or something else comes: where some are missing, they
hang on the last line of the response and not each on its own, since the client forgets calls beside the path that
have no result. In a file that is continued nothing can be held back, so there a result hangs on its own call only if
no call behind that one is still open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sessiontree.dialects.base import Lines
from sessiontree.dialects.claude import composing, told
from sessiontree.dialects.claude.blocks import (
    text_of,
    told_content,
    tool_word,
    written_reason,
    written_usage,
)
from sessiontree.dialects.claude.composing import Composed
from sessiontree.dialects.claude.differences import AFTER, PART, PLAIN, rider_for
from sessiontree.dialects.claude.history import START
from sessiontree.dialects.claude.relinks import NIL
from sessiontree.dialects.claude.restoring import (
    but,
    is_same_line,
    is_same_result,
    rests_of,
    says_block,
    shard_message,
    summary_content,
)
from sessiontree.dialects.claude.sheets import Call, Placed, Sheet, boundary_facts, calls_on
from sessiontree.dialects.claude.standing import Behind, Standing
from sessiontree.dialects.claude.told import MADE_RESPONSE, NAME, request_of
from sessiontree.dialects.claude.wire import SYNTHETIC, Fields, object_in, string_in
from sessiontree.dialects.riders import RIDER, rider
from sessiontree.dialects.scribe import Item, Note, Start, Written
from sessiontree.entries import Config
from sessiontree.values import render_json

UNKNOWN_MODEL = "unknown"
_LONGEST_PROMPT = 200
_CONTINUED = "This session is being continued"
_NO_LINE = "Claude Code has no line for them"


class _Held(Struct):
    """The response whose results may still come, and the lines that wait for them."""

    response: str
    open: set[str]
    """The lines of the calls that have no result yet."""
    lines: list[Fields]


class ClaudeScribe:
    """Writes one transcript."""

    def __init__(self, start: Start, lines: Lines | None = None) -> None:
        self._start = start
        self._lines = lines
        self._sheet = Sheet(start, lines)
        self._standing = Standing(lines)
        self._held: _Held | None = None
        self._responses: set[str] = set()
        self._calls: set[str] = set()
        self._last: str | None = None
        self._after: str | None = None
        """The aside before what is being written, see `Standing.aside_before`."""
        self._title = start.title

    # The contract

    def begin(self) -> Sequence[bytes]:
        config = self._start.config
        if config is None or config == Config():
            return ()
        entry = {"type": "config", "config": config}
        return [render_json(self._sheet.aside(entry, self._start.timestamp, **{START: True}))]

    def add(self, item: Item, parent: str | None) -> Written:
        self._after = self._standing.aside_before(parent)
        return self._add(item, None if parent is None else str(parent))

    def _add(self, item: Item, parent: str | None) -> Written:
        match item.kind:
            case "message":
                return self._message(item, parent, object_in(item.fields, "message"))
            case "custom_message":
                return self._meta(item, parent, item.fields.get("content"))
            case "branch_summary":
                text = composing.branch_text(string_in(item.fields, "summary") or "")
                return self._meta(item, parent, text, summary_content(item))
            case "compaction" | "reset_boundary":
                return self._boundary(item, parent)
            case "custom" if (again := self._line_again(item, parent)) is not None:
                return again
            case "leaf" if self._lines is not None:
                target = string_in(item.fields, "targetId")
                pin = self._sheet.note("last-prompt", leafUuid=target or NIL, explicit=True)
                return Written(parent, [render_json(pin)])
            case "session_info":
                return self._session_info(item, parent)
            case _:
                return self._aside(item, parent)

    def end(self, leaf: str | None) -> Sequence[bytes]:
        lines = self._released()
        self._after = self._standing.aside_before(leaf)
        leaf = None if leaf is None else str(leaf)
        prompt = self._standing.last_prompt(leaf)
        if leaf is not None and self._standing.needs_boundary(leaf, is_result=False):
            lines += self._parted(Item("", {}, "the end"), leaf)
            leaf = self._last = lines[-1]["uuid"]
            self._say_after(lines[-1])
        if self._title:
            lines.append(self._sheet.note("custom-title", customTitle=self._title))
        if self._last is not None:
            said = {"lastPrompt": prompt[:_LONGEST_PROMPT]} if prompt else {}
            explicit = {"explicit": True} if leaf != self._last else {}
            lines.append(self._sheet.note("last-prompt", **said, leafUuid=leaf or NIL, **explicit))
        return [render_json(line) for line in lines]

    # Messages

    def _message(self, item: Item, parent: str | None, message: Fields) -> Written:
        match message.get("role"):
            case "user":
                return self._user(item, parent, message)
            case "assistant":
                return self._answer(item, parent, message)
            case "toolResult":
                return self._result(item, parent, message)
            case "bashExecution" if message.get("excludeFromContext") is not True:
                return self._command(item, parent, message)
            case "custom":
                return self._meta(item, parent, message.get("content"))
            case role:
                return self._aside(item, parent, f"{role} messages" if isinstance(role, str) else "messages of no role")

    def _user(self, item: Item, parent: str | None, message: Fields) -> Written:
        content, composed = self._spoken(message.get("content"))
        (rest,) = rests_of(item, 1)
        (id,) = self._sheet.uuids(item, 1)
        line = self._told_again(item, id, parent, rest)
        if line is None:
            line = self._user_line(item, id, parent, content, rest)
            if self._looks_like_a_command(content):
                line[RIDER] = {PLAIN: True}
        self._ride(item, line, told.told_spoken(line, self._base), composed.left_out)
        prompt = text_of(content)
        return self._placed(item, parent, [line], composed.notes, prompt=prompt)

    def _spoken(self, content: Any) -> tuple[Any, Composed]:
        if isinstance(content, str):
            return content, Composed()
        composed = composing.composed_spoken(content)
        return composed.blocks, composed

    def _user_line(self, item: Item, id: str, parent: str | None, content: Any, rest: Fields) -> Fields:
        if "content" in rest and told_content(rest["content"]) == told_content(content):
            content = rest["content"]
        said = {"message": {"role": "user", "content": content}}
        return self._sheet.line("user", id, parent, self._sheet.time(item), said, rest)

    def _looks_like_a_command(self, content: Any) -> bool:
        return isinstance(content, str) and content.startswith(("<bash-input>", "<bash-stdout>"))

    def _told_again(self, item: Item, id: str, parent: str | None, rest: Fields) -> Fields | None:
        """The line of the client's that an item was told from, if it still says the same."""
        kind = rest.get("type")
        said: Fields = {}
        if kind == "system" and rest.get("subtype") == "local_command":
            said = {"subtype": "local_command", "content": object_in(item.fields, "message").get("content")}
        elif kind == "attachment" and isinstance(rest.get("attachment"), dict):
            said = {"attachment": rest["attachment"]}
        if not said:
            return None
        before = self._sheet.base
        line = self._sheet.line(str(kind), id, parent, self._sheet.time(item), said, rest)
        again = told.told_spoken(line, self._base)
        if again.kind == item.kind and _content(again) == _content(item):
            return line
        self._sheet.base = before
        return None

    def _answer(self, item: Item, parent: str | None, message: Fields) -> Written:
        composed = composing.composed_answer(message, self._name_call)
        is_failed = message.get("stopReason") in ("error", "aborted")
        if not composed.blocks and composed.left_out and not is_failed:
            # An answer of nothing would be sent as words that nobody said.
            written = self._aside(item, parent, "answers of nothing but unsigned thinking")
            return Written(written.id, written.lines, [*composed.notes, *written.notes])
        is_note = not composed.blocks and is_failed
        blocks: list[list[Fields]] = [[block] for block in composed.blocks] or [[]]
        if is_note:
            text = string_in(message, "errorMessage") or f"The request ended: {message.get('stopReason')}"
            blocks = [[{"type": "text", "text": text}]]
        uuids = self._sheet.uuids(item, len(blocks), last=True)
        rests = rests_of(item, len(blocks))
        common = self._common(item, message, composed)
        if is_note:
            common["model"] = SYNTHETIC
        lines: list[Fields] = []
        time, before = self._sheet.time(item), parent
        for at, (id, shard, rest) in enumerate(zip(uuids, blocks, rests, strict=True)):
            if "content" in rest and composed.places and says_block(rest["content"], message, composed.places[at]):
                shard = rest["content"]
            said = {"message": shard_message(common, shard, rest, message)}
            rest = rest if message.get("stopReason") == "error" else but(rest, "isApiErrorMessage", "error")
            line = self._sheet.line("assistant", id, before, time, said, rest)
            line.setdefault("requestId", request_of(common["id"]))
            line["apiBlockIndex"] = at
            if is_note:
                line["isApiErrorMessage"] = True
            lines.append(line)
            before = id
        self._ride(item, lines[-1], told.told_response(lines, self._base), composed.left_out)
        calls = calls_on(lines, message, composed.places)
        written = self._placed(item, parent, lines, composed.notes, calls=calls)
        if calls and self._lines is None:
            self._held = _Held(uuids[-1], {call.line for each in calls.values() for call in each}, [])
        return written

    def _common(self, item: Item, message: Fields, composed: Composed) -> Fields:
        """What all shards of a response say alike."""
        response = string_in(message, "responseId") or ""
        if not response.startswith("msg_") or tool_word(response) != response or response in self._responses:
            name = item.id or response or str(len(self._responses))
            response = MADE_RESPONSE + self._sheet.made(f"response {name}").replace("-", "")
        self._responses.add(response)
        calls = any(block["type"] == "tool_use" for block in composed.blocks)
        return {
            "id": response,
            "type": "message",
            "role": "assistant",
            "model": string_in(message, "model") or UNKNOWN_MODEL,
            "content": [],
            "stop_reason": written_reason(message, calls),
            "stop_sequence": None,
            "usage": written_usage(message.get("usage")),
        }

    def _name_call(self, block: Fields) -> str:
        name = wanted = tool_word(string_in(block, "id") or "")
        number = 2
        while name in self._calls:
            name, number = f"{wanted}_{number}", number + 1
        self._calls.add(name)
        return name

    def _result(self, item: Item, parent: str | None, message: Fields) -> Written:
        id = string_in(message, "toolCallId") or ""
        found = self._standing.find_call(id, parent)
        if found is None:
            # The client drops it and says that there was no content. It rides along on a line that says nothing.
            line = self._aside_line(item, parent, {"type": "custom", "customType": f"{NAME}.result"})
            line[RIDER] = rider(item, string_in(line, "id") or "", whole=True)
            notes = [Note("aside", "results without a call", "Claude Code does not send them")]
            return self._written_aside(line, parent, notes)
        composed = composing.composed_spoken(message.get("content"))
        (rest,) = rests_of(item, 1)
        (uuid,) = self._sheet.uuids(item, 1)
        block: Fields = {
            "tool_use_id": found.call.id,
            "type": "tool_result",
            "content": composing.result_content(composed),
        }
        if message.get("isError") is True:
            block["is_error"] = True
        content = [block]
        if is_same_result(rest.get("content"), block):
            content = rest["content"]
        is_apart = found.is_near and self._standing.needs_boundary(parent, is_result=True)
        held = self._held if self._held is not None and found.is_near and not is_apart else None
        lines = [] if held is not None else self._released()
        hangs_on = found.call.line if held is not None else found.hangs_on
        if is_apart and parent is not None:
            lines.append(self._own_boundary(item, parent))
            hangs_on = lines[-1]["uuid"]
        said = {"message": {"role": "user", "content": content}}
        line = self._sheet.line("user", uuid, hangs_on, self._sheet.time(item), said, rest)
        line.setdefault("toolUseResult", text_of(composed.blocks))
        line["sourceToolAssistantUUID"] = found.call.line
        names = {found.call.id: found.call.name}
        self._ride(item, line, told.told_results(line, self._base, names)[0], composed.left_out)
        self._say_after(line)
        self._last = uuid
        self._standing.add(item, uuid, Placed(parent, (uuid,), uuid, {}, found.response, found.call.line, is_apart))
        if held is None:
            return Written(uuid, [render_json(each) for each in [*lines, line]], composed.notes)
        held.lines.append(line)
        held.open.discard(found.call.line)
        done = [] if held.open else self._released()
        return Written(uuid, [render_json(each) for each in done], composed.notes)

    def _released(self) -> list[Fields]:
        """The results that were held back. If some are still missing, all hang on the last line of the response."""
        held, self._held = self._held, None
        if held is None:
            return []
        for line in held.lines if held.open else ():
            if line["type"] != RIDER:
                line["parentUuid"] = held.response
        return held.lines

    def _command(self, item: Item, parent: str | None, message: Fields) -> Written:
        entered, printed = composing.command_texts(message)
        uuids = self._sheet.uuids(item, 2)
        rests = rests_of(item, 2)
        first = self._user_line(item, uuids[0], parent, entered, but(rests[0], "content"))
        second = self._user_line(item, uuids[1], uuids[0], printed, but(rests[1], "content"))
        stored = rests[1].get("content")
        if isinstance(stored, str):
            again = {**second, "message": {"role": "user", "content": stored}}
            one, other = (told.told_command(first, line, self._base) for line in (second, again))
            if (
                one is not None
                and other is not None
                and _message(other) | {"timestamp": 0} == _message(one) | {"timestamp": 0}
            ):
                second = again
        second[RIDER] = {PART: True}
        said = told.told_command(first, second, self._base)
        self._ride(item, first, said or told.told_user(first, self._base))
        return self._placed(item, parent, [first, second])

    # Summaries and what speaks in the user's place

    def _meta(self, item: Item, parent: str | None, content: Any, stored: Any = None) -> Written:
        said, composed = (stored, Composed()) if stored is not None else self._spoken(content)
        rest = rests_of(item, 1)[0]
        (id,) = self._sheet.uuids(replace(item, also=()), 1)
        line = self._told_again(item, id, parent, rest) if item.kind == "custom_message" else None
        if line is None:
            line = self._user_line(item, id, parent, said, but(rest, "type", "attachment", "rendered", "renderedRole"))
            line["isMeta"] = True
        self._ride(item, line, told.told_spoken(line, self._base))
        return self._placed(item, parent, [line], composed.notes)

    def _boundary(self, item: Item, parent: str | None) -> Written:
        summary = string_in(item.fields, "summary") or ""
        first_kept = string_in(item.fields, "firstKeptEntryId")
        lines = self._released()
        kept = self._standing.kept(first_kept, parent) if first_kept else []
        rests = rests_of(item, 2 if summary else 1)
        is_own = NAME in object_in(item.fields, RIDER)
        count = 1 + bool(summary) + (bool(kept) or not summary)
        uuids = self._sheet.uuids(item, count)
        time = self._sheet.time(item)
        anchor = uuids[1] if summary else uuids[0]
        about = boundary_facts(item.fields, is_own, kept, anchor)
        before = parent
        if parent is not None and self._standing.needs_boundary(parent, is_result=False):
            lines += self._parted(item, parent)
            before = lines[-1]["uuid"]
        boundary = self._boundary_line(uuids[0], before, time, about, rests[0])
        written = [boundary]
        behind: Fields | None = None
        if summary:
            text = summary if is_own or summary.startswith(_CONTINUED) else composing.summary_text(summary)
            said = {"message": {"role": "user", "content": text}}
            marks = {"isVisibleInTranscriptOnly": True, "isCompactSummary": True}
            behind = self._sheet.line("user", uuids[1], uuids[0], time, {**said, **marks}, rests[-1])
            written.append(behind)
        if count > len(written):
            # What was kept stands between the summary and the line that follows it, so there has to be one; and a
            # boundary with nothing behind it compacts nothing.
            written.append(self._silent_line(uuids[-1], anchor, time))
        self._ride(item, boundary, told.told_compaction(boundary, behind, self._base))
        notes = []
        if item.kind == "reset_boundary":
            notes.append(Note("mapped", "resets of the context", "written as compactions without a summary"))
        placed = self._placed(item, parent, written, notes, kept=tuple(kept))
        self._standing.capture(kept)
        return Written(placed.id, [*map(render_json, lines), *placed.lines], notes)

    def _boundary_line(self, id: str, before: str | None, time: str, about: Fields, rest: Fields) -> Fields:
        said = {
            "logicalParentUuid": before,
            "subtype": "compact_boundary",
            "content": "Conversation compacted",
            "isMeta": False,
            "level": "info",
            "compactMetadata": about,
        }
        return self._sheet.line("system", id, None, time, said, rest)

    def _silent_line(self, id: str, parent: str, time: str) -> Fields:
        """A line of the chain that is not sent, for others to hang on."""
        said = {"subtype": "informational", "content": "Conversation compacted", "isMeta": False, "level": "info"}
        return {**self._sheet.line("system", id, parent, time, said, {}), RIDER: {PART: True}}

    def _parted(self, item: Item, parent: str) -> list[Fields]:
        """A boundary for what follows a line that others follow too, and a line to hang on."""
        boundary = self._own_boundary(item, parent)
        (end,) = self._sheet.uuids(Item("", {}, f"behind {boundary['uuid']}"), 1)
        return [boundary, self._silent_line(end, boundary["uuid"], boundary["timestamp"])]

    def _own_boundary(self, item: Item, parent: str) -> Fields:
        """A boundary that keeps exactly what leads to an item, for one that would be read with lines of others.

        What a compaction on another branch kept follows its summary, also for those who come to it from elsewhere; and
        all results of a response belong to each way on from it. A later boundary that lists its lines undoes both.
        """
        kept = self._standing.context_lines(parent)
        self._standing.capture(kept)
        (id,) = self._sheet.uuids(Item("", {}, f"before {item.id}" if item.id else ""), 1)
        about = boundary_facts({}, False, kept, id)
        return {**self._boundary_line(id, parent, self._sheet.time(item), about, {}), RIDER: {PART: True}}

    # Beside the chain

    def _session_info(self, item: Item, parent: str | None) -> Written:
        name = " ".join((string_in(item.fields, "name") or "").split())
        titles = [
            self._sheet.note("custom-title", customTitle=name),
            self._sheet.note("agent-name", agentName=name),
        ]
        self._title = name or self._title
        if not item.id and name:  # nothing but a name: the client's own lines say it
            return Written(parent, [render_json(line) for line in titles])
        written = self._aside(item, parent)
        notes = [] if name else written.notes
        return Written(written.id, [*written.lines, *(render_json(line) for line in titles if name)], notes)

    def _line_again(self, item: Item, parent: str | None) -> Written | None:
        """A line that the model does not see, as the client wrote it; None for what was no such line."""
        data = object_in(item.fields, "data")
        kind = data.get("type")
        is_boundary = data.get("subtype") == "compact_boundary"
        if item.fields.get("customType") != f"{NAME}.{kind}" or kind not in ("attachment", "system", "user"):
            return None
        said = {"message": data["message"]} if "message" in data else {}
        said |= {name: data[name] for name in ("subtype", "content") if name in data}
        before = self._sheet.base
        line = self._sheet.line(str(kind), "", None, "", said, data)
        again = told.told_spoken(line, self._base)
        if is_boundary or again.kind != "custom" or not is_same_line(object_in(again.fields, "data"), data):
            self._sheet.base = before
            return None
        (id,) = self._sheet.uuids(item, 1)
        self._sheet.base = before
        line = self._sheet.line(str(kind), id, parent, self._sheet.time(item), said, data)
        self._ride(item, line, told.told_spoken(line, self._base))
        return self._placed(item, parent, [line])

    def _aside(self, item: Item, parent: str | None, what: str = "") -> Written:
        """An entry that the client has no line for, beside the chain."""
        inside = {name: value for name, value in item.fields.items() if name != "type"}
        entry = {"type": item.kind, **inside}
        target = string_in(item.fields, "targetId")
        line = self._aside_line(item, parent, entry)
        if target is not None and (known := self._standing.main_of(target)) != target:
            entry["targetId"] = known
            line[RIDER] = {"fields": {"targetId": target}}
        return self._written_aside(line, parent, [Note("aside", what or f"{item.kind} entries", _NO_LINE)])

    def _aside_line(self, item: Item, parent: str | None, entry: Fields) -> Fields:
        line = self._sheet.aside(entry, self._sheet.time(item), id=self._sheet.aside_id(item), parent=parent)
        if self._after:
            line[AFTER] = self._after
        self._standing.add_aside(item, line["id"], parent)
        return line

    def _written_aside(self, line: Fields, parent: str | None, notes: Sequence[Note]) -> Written:
        id = None if parent is None else Behind(parent, line["id"])
        if self._held is not None and self._held.lines:
            self._held.lines.append(line)
            return Written(id, (), notes)
        return Written(id, [render_json(line)], notes)

    def _say_after(self, line: Fields) -> None:
        if self._after is not None:
            line[RIDER] = {**line.get(RIDER, {}), AFTER: self._after}

    # Shared

    @property
    def _base(self) -> told.Base:
        return self._sheet.base or told.Base()

    def _ride(self, item: Item, line: Fields, said: Item, left_out: Sequence[int] = ()) -> None:
        """Put what the lines of an item do not say of it on one of them."""
        if not item.id:  # it has never been elsewhere: what its lines say of the client is right
            said = replace(said, fields=but(said.fields, RIDER), id="")
        found = {**line.get(RIDER, {}), **rider_for(item, said, left_out)}
        if found:
            line[RIDER] = found

    def _placed(
        self,
        item: Item,
        parent: str | None,
        lines: Sequence[Fields],
        notes: Sequence[Note] = (),
        *,
        calls: dict[str, list[Call]] | None = None,
        prompt: str = "",
        kept: tuple[str, ...] | None = None,
    ) -> Written:
        uuids = tuple(line["uuid"] for line in lines)
        main = uuids[-1] if calls is not None else uuids[0]
        before = self._released()
        if parent is None and kept is None and self._has_chain():
            # So says the client that the user went back to before the first prompt. Otherwise it is a torn history.
            before.append(self._sheet.note("last-prompt", leafUuid=NIL, explicit=True))
        is_apart = self._standing.needs_boundary(parent, is_result=False) and kept is None
        if is_apart and parent is not None:
            before.append(self._own_boundary(item, parent))
            lines[0]["parentUuid"] = before[-1]["uuid"]
        self._say_after(lines[0])
        self._last = uuids[-1]
        placed = Placed(parent, uuids, main, calls or {}, is_apart=is_apart, prompt=prompt, kept=kept)
        self._standing.add(item, uuids[-1], placed)
        return Written(uuids[-1], [render_json(line) for line in [*before, *lines]], notes)

    def _has_chain(self) -> bool:
        return self._last is not None or self._standing.has_chain


def _message(item: Item) -> Fields:
    return object_in(item.fields, "message")


def _content(item: Item) -> Any:
    return _message(item).get("content") if item.kind == "message" else item.fields.get("content")
