"""Messages of a session and events of a run as the protocol's updates (`session/update`).

Content of sessions is untrusted. Titles become one line, and control characters in texts become visible, except tabs
and line breaks: a client may be a terminal. Clients render texts as Markdown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from sessiontree.agent.approval import MODES, Question
from sessiontree.agent.events import (
    ApprovalAnswered,
    Compacting,
    Event,
    Persisted,
    Retry,
    TextDelta,
    ThinkingDelta,
    ToolEnd,
    ToolStart,
    ToolUpdate,
)
from sessiontree.agent.tool_output import MAX_CHARACTERS
from sessiontree.agent.tools.tool_table import TOOLS
from sessiontree.chat.event_printer import compaction_lines, describe_call
from sessiontree.conversion.tool_mapping import tool_tables
from sessiontree.core.entries import ApprovalMode, BranchSummary, Compaction, CustomMessage, Entry, MessageEntry
from sessiontree.core.jsonio import JsonObject, render_json
from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    BranchSummaryText,
    CompactionSummary,
    Content,
    CustomText,
    Image,
    Message,
    OtherMessage,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
    blocks_of,
    message_blocks,
    text_of,
)
from sessiontree.dialects.tool_intents import Agent, Bash, Edit, Glob, Grep, Intent, Ls, Read, Todo, Tree, Write
from sessiontree.session.session import Session
from sessiontree.views.text import clean, one_line

Update: TypeAlias = JsonObject

_PIECE = 16_000
"""Characters of a text in one update. Some clients read lines of at most 64 KB; longer texts take several updates."""
_MOST = 40_000
"""Characters of a tool's output, which cannot be sent in pieces; of a change, each side has at most `_PIECE`."""

_SUMMARY = "Summary of earlier messages:\n\n"
_KINDS: dict[type[Intent], str] = {
    Read: "read",
    Write: "edit",
    Edit: "edit",
    Bash: "execute",
    Grep: "search",
    Glob: "search",
    Ls: "search",
    Tree: "search",
    Todo: "think",
    Agent: "think",
}
_MODES: dict[ApprovalMode, tuple[str, str]] = {
    "plan": ("Plan", "Only read, and answer with a plan"),
    "default": ("Ask", "Ask before changes and commands"),
    "autoEdit": ("Edit automatically", "Edit files of the project without asking; ask before commands"),
    "yolo": ("Never ask", "Change anything and run any command without asking"),
}


def modes_of(current: ApprovalMode) -> JsonObject:
    """The approval modes, as session modes."""
    available = [{"id": mode, "name": _MODES[mode][0], "description": _MODES[mode][1]} for mode in MODES]
    return {"currentModeId": current, "availableModes": available}


# Content


def visible(text: str) -> str:
    """Make everything visible that a terminal would interpret; tabs are kept, because code contains them."""
    return "\t".join(clean(part) for part in text.split("\t")) if "\t" in text else clean(text)


def text_content(text: str) -> JsonObject:
    return {"type": "text", "text": visible(text)}


def image_content(image: Image) -> JsonObject:
    return {"type": "image", "data": image.data, "mimeType": one_line(image.mime_type)}


def shortened(text: str, most: int = _PIECE) -> str:
    """The beginning of a text, with the number of characters that are missing."""
    if len(text) <= most:
        return visible(text)
    return f"{visible(text[:most])}\n… {len(text) - most:,} more characters; `sessiontree show` prints them"


def text_chunks(kind: str, text: str, message: str | None = None) -> Iterator[Update]:
    """A text as parts of a message, none of them too long for a client."""
    for start in range(0, len(text), _PIECE):
        yield chunk(kind, text_content(text[start : start + _PIECE]), message)


def chunk(kind: str, content: JsonObject, message: str | None = None) -> Update:
    """A part of a message. Parts with the same `message` belong together."""
    update: Update = {"sessionUpdate": f"{kind}_chunk", "content": content}
    return update if message is None else {**update, "messageId": message}


def note_update(text: str, *, as_notice: bool) -> Update:
    """A message about the session to the user, outside of the conversation if the client can show that."""
    if as_notice:
        return {"sessionUpdate": "notice", "severity": "warning", "title": one_line(text)}
    return chunk("agent_message", text_content(f"Note: {text}\n\n"))


def _results(content: Content) -> list[JsonObject]:
    """The content of a result, as content of its call."""
    found: list[JsonObject] = []
    for block in blocks_of(content):
        if isinstance(block, Text) and block.text:
            found.append({"type": "content", "content": {"type": "text", "text": shortened(block.text, _MOST)}})
        elif isinstance(block, Image):
            found.append({"type": "content", "content": image_content(block)})
    return found


# Calls


class CallIds:
    """Unique ids of the calls of one session: some clients number those of each answer from 1."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._current: dict[str, str] = {}

    def start(self, id: str) -> str:
        """The id of a new call, for the client."""
        name = one_line(id) or "call"
        shown, number = name, 1
        while shown in self._used:
            number += 1
            shown = f"{name}#{number}"
        self._used.add(shown)
        self._current[id] = shown
        return shown

    def find(self, id: str) -> str:
        """The id, for the client, of the last call that started with this id."""
        return self._current.get(id) or self.start(id)


class CallRenderer:
    """Renders the tool calls of one session, of any client."""

    def __init__(self, agent: str, cwd: str) -> None:
        """`agent` is the dialect of the session; `cwd` is the folder that relative paths start from."""
        self._tables = (TOOLS, *tool_tables(agent))
        self._cwd = cwd

    def started(self, call: ToolCall, id: str, status: str) -> Update:
        intent = self._intent(call)
        update: Update = {
            "sessionUpdate": "tool_call",
            "toolCallId": id,
            "title": describe_call(call),
            "name": one_line(call.name),
            "kind": self._kind(call),
            "status": status,
        }
        if len(render_json(call.arguments)) <= _PIECE:
            update["rawInput"] = call.arguments
        if isinstance(intent, Write | Edit):
            update["content"] = self._diffs(intent)
        if isinstance(intent, Read | Write | Edit):
            line = {"line": intent.first_line} if isinstance(intent, Read) and intent.first_line > 1 else {}
            update["locations"] = [{"path": self._absolute(intent.path), **line}]
        return update

    def ended(self, call: ToolCall | None, id: str, content: Content, *, is_error: bool) -> Update:
        """The result of a call. A change that was made stays visible as a diff; its result repeats it in words."""
        intent = None if call is None else self._intent(call)
        update: Update = {"sessionUpdate": "tool_call_update", "toolCallId": id}
        update["status"] = "failed" if is_error else "completed"
        if not is_error and isinstance(intent, Write | Edit):
            return {**update, "content": self._diffs(intent), "rawOutput": {"text": shortened(text_of(content))}}
        return {**update, "content": _results(content)}

    def asked(self, question: Question, id: str) -> JsonObject:
        """A call that needs approval, as an update of the call."""
        reasons = "; ".join(question.reasons)
        texts = [f"Needs approval: {reasons}" if reasons else "", _fenced(shortened(question.preview))]
        return {
            "toolCallId": id,
            "title": one_line(question.title) or one_line(question.tool),
            "status": "pending",
            "content": [{"type": "content", "content": text_content(text)} for text in texts if text],
        }

    def _kind(self, call: ToolCall) -> str:
        tools = (table.find_by_name(call.name) for table in self._tables)
        return next((_KINDS[tool.intent] for tool in tools if tool is not None), "other")

    def _intent(self, call: ToolCall) -> Intent | None:
        found = (table.find_intent(call.name, call.arguments) for table in self._tables)
        return next((intent for intent in found if intent is not None), None)

    def _diffs(self, intent: Write | Edit) -> list[JsonObject]:
        """The texts before and after each change of a file."""
        head = {"type": "diff", "path": self._absolute(intent.path)}
        if isinstance(intent, Write):
            return [{**head, "newText": shortened(intent.content)}]
        return [
            {**head, "oldText": shortened(change.old), "newText": shortened(change.new)}
            for change in intent.replacements
        ]

    def _absolute(self, path: str) -> str:
        return one_line(os.path.join(self._cwd, path))


def _fenced(text: str) -> str:
    """A text as a Markdown code block, with a fence that the text itself cannot close."""
    if not text:
        return ""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


# Replay


def replay(session: Session, cwd: str, ids: CallIds) -> Iterator[Update]:
    """The current branch as updates: texts, thinking, calls and results, in the order of the session."""
    history = _Replay(session, CallRenderer(session.dialect.name, session.cwd or cwd), ids)
    for entry in session.iter_path(session.leaf):
        yield from history.entry(entry)


class _Replay:
    """Renders entry after entry."""

    def __init__(self, session: Session, calls: CallRenderer, ids: CallIds) -> None:
        self._session, self._calls, self._ids = session, calls, ids
        self._open: dict[str, ToolCall] = {}

    def entry(self, entry: Entry) -> Iterator[Update]:
        match entry:
            case MessageEntry():
                for message in entry.messages:
                    yield from self._message(message, entry.id)
            case CustomMessage():
                yield from _chunks("user_message", entry.content, entry.id)
            case Compaction() | BranchSummary():
                yield from text_chunks("agent_thought", f"{_SUMMARY}{entry.summary}", entry.id)
            case _:
                return

    def _message(self, message: Message, id: str) -> Iterator[Update]:
        match message:
            case User():
                typed = self._typed(id)
                yield from _chunks("user_message", message.content if typed is None else typed, id)
            case Assistant():
                for block in blocks_of(message.content):
                    yield from self._block(block, id)
                if message.error_message:
                    yield from text_chunks("agent_message", f"Error: {message.error_message}", id)
            case ToolResult():
                yield from self._result(message)
            case BashExecution():
                call = ToolCall(id, "bash", {"command": message.command})
                shown = self._ids.start(id)
                yield self._calls.started(call, shown, "in_progress")
                is_error = message.cancelled or bool(message.exit_code)
                yield self._calls.ended(call, shown, message.output, is_error=is_error)
            case CustomText():
                if message.display:
                    yield from _chunks("user_message", message.content, id)
            case CompactionSummary() | BranchSummaryText():
                yield from text_chunks("agent_thought", f"{_SUMMARY}{message.summary}", id)
            case OtherMessage():
                yield from _chunks("agent_thought", message_blocks(message), id)
            case System():
                return

    def _typed(self, entry: str) -> str | None:
        """A prompt as it was typed; None if that is unknown, or if it has images, which the client shows."""
        message = self._session.fields(entry).get("message")
        typed = message.get("displayText") if isinstance(message, Mapping) else None
        content = message.get("content") if isinstance(message, Mapping) else None
        return typed if isinstance(typed, str) and isinstance(content, str) else None

    def _block(self, block: object, id: str) -> Iterator[Update]:
        match block:
            case Text():
                yield from text_chunks("agent_message", block.text, id)
            case Thinking():
                yield from text_chunks("agent_thought", block.thinking, id)
            case Image():
                yield chunk("agent_message", image_content(block), id)
            case ToolCall():
                self._open[block.id] = block
                yield self._calls.started(block, self._ids.start(block.id), "pending")
            case _:
                return

    def _result(self, result: ToolResult) -> Iterator[Update]:
        id = result.tool_call_id
        call = self._open.pop(id, None)
        if call is None:  # the call is not on this branch
            call = ToolCall(id, result.tool_name or "tool")
            yield self._calls.started(call, self._ids.start(id), "in_progress")
        yield self._calls.ended(call, self._ids.find(id), result.content, is_error=result.is_error)


def _chunks(kind: str, content: Content, id: str) -> Iterator[Update]:
    for block in blocks_of(content):
        if isinstance(block, Text):
            yield from text_chunks(kind, block.text, id)
        elif isinstance(block, Image):
            yield chunk(kind, image_content(block), id)


# Runs


class RunUpdates:
    """Renders the events of runs in one session."""

    def __init__(self, calls: CallRenderer, ids: CallIds, *, shows_notices: bool) -> None:
        self._calls, self._ids, self._shows_notices = calls, ids, shows_notices
        self._number = 1
        self._is_streamed = False
        """Whether parts of the answer in progress were sent."""
        self._printed: dict[str, str] = {}

    def render(self, event: Event) -> Iterator[Update]:
        match event:
            case TextDelta():
                self._is_streamed = True
                yield from text_chunks("agent_message", event.text, self._message)
            case ThinkingDelta():
                yield from text_chunks("agent_thought", event.text, self._message)
            case Retry():
                # What was sent cannot be taken back: the next attempt is another message.
                self._end_message()
                failed = f"Attempt {event.attempt} failed, the answer starts again: {event.error}"
                yield note_update(failed, as_notice=self._shows_notices)
            case Persisted(entry=MessageEntry(message=Assistant() as answer)):
                text = text_of(answer.content)
                if text and not self._is_streamed:  # a model that does not stream
                    yield from text_chunks("agent_message", text, self._message)
                self._end_message()
            case ToolStart():
                yield self._calls.started(event.call, self._ids.start(event.call.id), "in_progress")
            case ApprovalAnswered(reply=reply) if reply.answer != "no":
                yield self._changed(event.call_id, status="in_progress")
            case ToolUpdate():
                printed = (self._printed.get(event.call_id, "") + event.text)[-MAX_CHARACTERS:]
                self._printed[event.call_id] = printed
                yield self._changed(event.call_id, content=[{"type": "content", "content": text_content(printed)}])
            case ToolEnd():
                self._printed.pop(event.call.id, None)
                output = event.output
                content_blocks = (*((Text(output.text),) if output.text else ()), *output.images)
                shown = self._ids.find(event.call.id)
                yield self._calls.ended(event.call, shown, content_blocks, is_error=output.is_error)
            case Compacting(stage="end" | "failed"):
                for line, _ in compaction_lines(event):
                    yield note_update(line.removeprefix("· "), as_notice=self._shows_notices)
            case _:
                return

    def _changed(self, call: str, **fields: object) -> Update:
        return {"sessionUpdate": "tool_call_update", "toolCallId": self._ids.find(call), **fields}

    @property
    def _message(self) -> str:
        return f"answer-{self._number}"

    def _end_message(self) -> None:
        self._number += 1
        self._is_streamed = False
