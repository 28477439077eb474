"""Render messages for a provider's API.

    messages -> turns (turns, templates) -> pairs (tool_calls) -> one form (anthropic, openai)

Rules that all providers share are applied before the form; a form only renders turns as its own fields. The provider
accepts the result whatever the messages contain, and `Rendered.notes` lists the changes that this required. Nothing
here sends a request or reads a session.

The caller handles the rest: messages without sendable content render to an empty list, a list may end with an assistant
message, and a setting of the request enables thinking.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias, assert_never, get_args

from sessiontree.core.jsonio import JsonObject, Value
from sessiontree.core.messages import Message
from sessiontree.errors import check_option
from sessiontree.providers.tool_calls import Unanswered, pair_results
from sessiontree.providers.turns import Conversation, read_conversation, sendable_text, to_turn

__all__ = ["Form", "Rendered", "StreamedMessages", "Unanswered", "render", "render_stream"]

Form: TypeAlias = Literal["anthropic", "openai", "openai-chat"]
"""The Anthropic Messages API, the OpenAI Responses API, the OpenAI Chat Completions API."""


class Rendered(Value, frozen=True):
    """Messages for a provider, and notes about changes."""

    system: str | None
    """System text for a separate field; None when there is none or the form sends it as a message."""

    messages: list[JsonObject]
    """Messages, or input items, in the API's form; they can be encoded as JSON in UTF-8."""

    notes: tuple[str, ...] = ()
    """One sentence for each change or omission."""


class StreamedMessages(NamedTuple):
    """Messages for a provider like `Rendered`, but each is completed when it is read. They are read once.

    A `content` with several parts is also an iterator.
    """

    system: str | None
    messages: Iterator[JsonObject]
    notes: tuple[str, ...]


def render(messages: Sequence[Message], form: Form, *, unanswered: Unanswered = "complete") -> Rendered:
    """Render messages for a provider.

    Tool calls without a result get an error result ("complete") or are removed ("strip").
    """
    return _render(read_conversation(messages), form, unanswered)


def render_stream(messages: Sequence[Message], form: Form, *, unanswered: Unanswered = "complete") -> StreamedMessages:
    """Render messages that need not fit into memory; the result is that of `render`, message by message."""
    from sessiontree.providers.anthropic import trim_last_assistant
    from sessiontree.providers.deferred_texts import DeferredTexts

    deferred = DeferredTexts(messages, lambda message: to_turn(message, []), encodes_arguments=form != "anthropic")
    rendered = _render(read_conversation(messages, deferred.shorten), form, unanswered)

    def complete() -> Iterator[JsonObject]:
        for message in rendered.messages:
            # Anthropic's roles alternate, so a whole session of prompts may be one message.
            is_list = isinstance(message.get("content"), list)
            yield {**message, "content": complete_blocks(message)} if is_list else deferred.insert(message)

    def complete_blocks(message: JsonObject) -> Iterator[JsonObject]:
        blocks = message["content"]
        for number, block in enumerate(blocks):
            completed: JsonObject = deferred.insert(block)
            if form == "anthropic" and message is rendered.messages[-1] and number == len(blocks) - 1:
                trim_last_assistant([{**message, "content": [completed]}])
            yield completed

    return StreamedMessages(rendered.system, complete(), rendered.notes)


def _render(conversation: Conversation, form: Form, unanswered: Unanswered) -> Rendered:
    check_option("form", form, get_args(Form))
    check_option("unanswered", unanswered, get_args(Unanswered))
    notes = list(conversation.notes)
    turns = pair_results(conversation.turns, unanswered, notes)
    system: str | None = conversation.system
    match form:
        case "anthropic":
            from sessiontree.providers.anthropic import render_messages

            rendered = render_messages(turns, notes)
        case "openai":
            from sessiontree.providers.openai import render_items

            rendered = render_items(turns, notes)
        case "openai-chat":
            from sessiontree.providers.openai import render_chat

            rendered = render_chat(conversation.system, turns, notes)
            system = None
        case _:
            assert_never(form)
    return Rendered(system, rendered, tuple(sendable_text(note) for note in notes))
