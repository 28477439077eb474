"""From a list of messages to the message list a provider's API accepts.

    messages -> turns (turns, wording, sendable) -> pairs (pairing) -> one form (anthropic, openai)

Here stand the door, `render`, and what comes out of it. What all providers share is done before a form is chosen, so a
form only spells turns in its own words. The promise is acceptance: whatever goes in, the provider takes what comes out,
and `Rendered.notes` says what had to be changed for that. Nothing here asks a provider anything or reads a session.

What a list of messages cannot promise stays with the caller: a list with nothing sendable in it comes out empty, a list
that ends with the assistant comes out so, and whether thinking is switched on is a setting of the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, assert_never

from sessiontree.core.jsonio import JsonObject, Value
from sessiontree.core.messages import Message
from sessiontree.providers.sanitize import sendable_text
from sessiontree.providers.tool_pairing import Unanswered, pair_results
from sessiontree.providers.turns import read_conversation

__all__ = ["Form", "Rendered", "Unanswered", "render"]

Form: TypeAlias = Literal["anthropic", "openai", "openai-chat"]
"""The Anthropic Messages API, the OpenAI Responses API, the OpenAI Chat Completions API."""


class Rendered(Value, frozen=True):
    """What to send to a provider, and what had to be changed to make it acceptable."""

    system: str | None
    """The system text to send beside the messages; None when there is none or the form puts it among the messages."""

    messages: list[JsonObject]
    """The messages, or input items, as the API spells them; they can be encoded as JSON in UTF-8."""

    notes: tuple[str, ...] = ()
    """One plain sentence for each thing that was changed or left out."""


def render(messages: Sequence[Message], form: Form, *, unanswered: Unanswered = "complete") -> Rendered:
    """Render messages for a provider.

    `unanswered` says what becomes of tool calls without a result: "complete" answers them with an error that says the
    outcome is unknown, "strip" takes them out.
    """
    conversation = read_conversation(messages)
    notes = list(conversation.notes)
    turns = pair_results(conversation.turns, unanswered, notes)
    beside: str | None = conversation.system
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
            beside = None
        case _:
            assert_never(form)
    return Rendered(beside, rendered, tuple(sendable_text(note) for note in notes))
