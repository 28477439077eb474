"""Tool calls in a form that providers accept: paired with results, and with valid names and ids.

Every call gets exactly one result, directly after the turn with the call. Calls and results are matched by id alone.
A result without a call becomes text of the user where it was recorded. Afterwards every id is unique. The results of a
turn are in recorded order with the generated ones last, and user messages between a call and its result come after the
results.

Names and ids consist of letters, digits, underscore and hyphen. Valid ones stay unchanged. Others change in the same
way for a call and its result, and different ones stay different. A change depends on the recorded id alone wherever
possible. So the start of a growing conversation stays the same, and the provider's prompt cache stays valid.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, groupby
from math import inf
from typing import Literal, NamedTuple, TypeAlias, assert_never

import msgspec

from sessiontree.core.jsonio import Value
from sessiontree.core.messages import Assistant, Message, Text, ToolCall, ToolResult, tool_calls
from sessiontree.providers.templates import NO_OUTPUT, NO_RESULT, stray_result_text
from sessiontree.providers.turns import (
    Answer,
    AssistantBlock,
    AssistantTurn,
    ResultsTurn,
    Turn,
    UserTurn,
    quoted,
    sendable_text,
)

REFUSED_CHARACTER = re.compile("[^a-zA-Z0-9_-]")
DIGEST_LENGTH = 8

Unanswered: TypeAlias = Literal["complete", "strip"]


class CallPosition(NamedTuple):
    """Position of a call: turn and block."""

    turn: int
    block: int


class FoundResult(NamedTuple):
    """The result of a call, with the number of the turn that it was recorded in."""

    turn: int
    answer: Answer


class Matches(NamedTuple):
    answers: dict[CallPosition, FoundResult]
    strays: set[str]
    """Ids of results that no call has."""
    dropped: list[str]


def pair_results(turns: Sequence[Turn], unanswered: Unanswered, notes: list[str]) -> list[Turn]:
    """Move every result after its call; complete or strip the calls without a result."""
    matches = _match_all(turns)
    notes += matches.dropped
    notes += [f"The result for {quoted(id)} has no call and was sent as text." for id in matches.strays]
    _note_moves(turns, matches.answers, notes)
    calls = dict(_iter_calls(turns))
    match unanswered:
        case "complete":
            kept = calls
        case "strip":
            kept = {position: call for position, call in calls.items() if position in matches.answers}
        case _:
            assert_never(unanswered)
    _note_unanswered(calls, matches.answers, unanswered, notes)
    ids = _unique_ids(kept, notes)

    paired: list[Turn] = []
    for index, turn in enumerate(turns):
        match turn:
            case UserTurn():
                paired.append(turn)
            case AssistantTurn():
                paired += _answered_turn(index, turn, ids, matches.answers)
            case ResultsTurn():  # its other results were added after their calls
                paired += [_stray_turn(answer) for answer in turn.answers if answer.call_id in matches.strays]
            case _:
                assert_never(turn)
    return paired


def match_results(messages: Sequence[Message]) -> tuple[dict[tuple[int, int], int], set[int]]:
    """Match calls and results of messages as `pair_results` does, by their positions.

    Returns the message of the result for each answered call (message and number of the call in it), and the messages
    that are results without a call.
    """
    turns: list[Turn] = []
    for message in messages:
        if isinstance(message, Assistant):
            turns.append(AssistantTurn(tool_calls(message)))
        elif isinstance(message, ToolResult):
            turns.append(ResultsTurn((Answer(message.tool_call_id),)))
        else:
            turns.append(UserTurn(()))
    matches = _match_all(turns)
    strays = {
        at
        for at, message in enumerate(messages)
        if isinstance(message, ToolResult) and message.tool_call_id in matches.strays
    }
    return {(at.turn, at.block): found.turn for at, found in matches.answers.items()}, strays


def _iter_calls(turns: Sequence[Turn]) -> Iterator[tuple[CallPosition, ToolCall]]:
    for index, turn in enumerate(turns):
        if isinstance(turn, AssistantTurn):
            for position, block in enumerate(turn.blocks):
                if isinstance(block, ToolCall):
                    yield CallPosition(index, position), block


def _match_all(turns: Sequence[Turn]) -> Matches:
    by_id: dict[str, list[CallPosition | FoundResult]] = {}
    for index, turn in enumerate(turns):
        match turn:
            case UserTurn():
                pass
            case AssistantTurn():
                for position, block in enumerate(turn.blocks):
                    if isinstance(block, ToolCall):
                        by_id.setdefault(block.id, []).append(CallPosition(index, position))
            case ResultsTurn():
                for answer in turn.answers:
                    by_id.setdefault(answer.call_id, []).append(FoundResult(index, answer))
            case _:
                assert_never(turn)
    matches = Matches({}, set(), [])
    for call_id, events in by_id.items():
        _match_one_id(call_id, events, matches)
    return matches


def _match_one_id(call_id: str, events: Iterable[CallPosition | FoundResult], matches: Matches) -> None:
    """Match the calls and results with the same id, in recorded order.

    Some models number their calls from 0 in every response, so several calls may have the same id. A result belongs to
    a call before it. If there are fewer results than calls, they belong to the latest calls: an earlier call whose id
    was used again never got a result. A result before the first call is used only if there is no other.
    """
    calls: list[CallPosition] = []
    open_calls: list[CallPosition] = []
    early: list[FoundResult] = []
    surplus = 0
    for _, run in groupby(events, key=type):
        positions, answers = _split(run)
        if positions:
            calls += positions
            open_calls = positions
        elif not calls:
            early = answers
        else:
            answered = open_calls[-len(answers) :]
            matches.answers.update(zip(answered, answers, strict=False))
            surplus += len(answers) - len(answered)
    if not calls:
        matches.strays.add(call_id)
        return
    never_answered = [position for position in calls if position not in matches.answers]
    matches.answers.update(zip(never_answered, early, strict=False))
    surplus += max(0, len(early) - len(never_answered))
    matches.dropped.extend(f"A second result for {quoted(call_id)} was dropped." for _ in range(surplus))


def _split(run: Iterable[CallPosition | FoundResult]) -> tuple[list[CallPosition], list[FoundResult]]:
    positions: list[CallPosition] = []
    answers: list[FoundResult] = []
    for event in run:
        match event:
            case CallPosition():
                positions.append(event)
            case FoundResult():
                answers.append(event)
            case _:
                assert_never(event)
    return positions, answers


def _note_moves(turns: Sequence[Turn], found: Mapping[CallPosition, FoundResult], notes: list[str]) -> None:
    last_message = -1
    previous_messages: list[int] = []
    for index, turn in enumerate(turns):
        previous_messages.append(last_message)
        if not isinstance(turn, ResultsTurn):
            last_message = index
    for position, answer in found.items():
        if previous_messages[answer.turn] != position.turn:
            notes.append(f"The result for {quoted(answer.answer.call_id)} was moved after its call.")


def _note_unanswered(
    calls: Mapping[CallPosition, ToolCall],
    answers: Mapping[CallPosition, FoundResult],
    unanswered: Unanswered,
    notes: list[str],
) -> None:
    done = "was answered as unknown" if unanswered == "complete" else "was removed"
    for position, call in calls.items():
        if position not in answers:
            notes.append(f"The call {quoted(call.id)} of {quoted(call.name)} has no result and {done}.")


def _unique_ids(calls: Mapping[CallPosition, ToolCall], notes: list[str]) -> dict[CallPosition, str]:
    """Unique ids for calls: the first keeps the recorded id, later ones get a numeric suffix."""
    taken = {call.id for call in calls.values()}
    # A counter per id: with a model that names every call "call_0", a search from 2 each time would be quadratic.
    numbers: dict[str, Iterator[int]] = {}
    ids: dict[CallPosition, str] = {}
    for position, call in calls.items():
        if call.id not in numbers:
            numbers[call.id] = count(2)
            ids[position] = call.id
            continue
        unique = next(name for n in numbers[call.id] if (name := f"{call.id}_{n}") not in taken)
        taken.add(unique)
        ids[position] = unique
        notes.append(f"The call id {quoted(call.id)} was used again and became {quoted(unique)}.")
    return ids


def _answered_turn(
    index: int, turn: AssistantTurn, ids: Mapping[CallPosition, str], found: Mapping[CallPosition, FoundResult]
) -> list[Turn]:
    """The turn with its calls renamed or removed, followed by its results; empty if no block is left."""
    blocks: list[AssistantBlock] = []
    answers: list[tuple[float, Answer]] = []
    for block_index, block in enumerate(turn.blocks):
        position = CallPosition(index, block_index)
        if not isinstance(block, ToolCall):
            blocks.append(block)
        elif position in ids:
            blocks.append(ToolCall(ids[position], block.name, block.arguments, block.thought_signature))
            result = found.get(position)
            answers.append((inf if result is None else result.turn, _answer(ids[position], result)))
    if not blocks:
        return []
    assistant = AssistantTurn(tuple(blocks), turn.api, turn.provider, turn.model, turn.response_id)
    answers.sort(key=lambda pair: pair[0])
    return [assistant, ResultsTurn(tuple(answer for _, answer in answers))] if answers else [assistant]


def _answer(call_id: str, found: FoundResult | None) -> Answer:
    if found is None:
        return Answer(call_id, (Text(NO_RESULT),), is_error=True)
    return Answer(call_id, found.answer.blocks, found.answer.is_error)


def _stray_turn(answer: Answer) -> UserTurn:
    opening = Text(stray_result_text(sendable_text(answer.tool_name), is_error=answer.is_error))
    return UserTurn((opening, *(answer.blocks or (Text(NO_OUTPUT),))))


# Names and ids


class Limits(Value, frozen=True):
    """Maximum lengths."""

    call_id: int
    tool_name: int


def rename_tools(turns: Sequence[Turn], limits: Limits, notes: list[str]) -> list[Turn]:
    """Replace call ids and tool names that are not valid."""
    calls = [
        block
        for turn in turns
        if isinstance(turn, AssistantTurn)
        for block in turn.blocks
        if isinstance(block, ToolCall)
    ]
    ids = fitting_names((call.id for call in calls), limits.call_id, fallback="call")
    names = fitting_names((call.name for call in calls), limits.tool_name, fallback="tool")
    _note_changes("id", ids, notes)
    _note_changes("name", names, notes)
    return [_renamed(turn, ids, names) for turn in turns]


def fitting_names(recorded: Iterable[str], longest: int, *, fallback: str) -> dict[str, str]:
    """Map each recorded name to a valid one, all different."""
    distinct = list(dict.fromkeys(recorded))
    fitting = {name: name for name in distinct if _fits(name, longest)}
    # Valid names come first: they must not change because another name was changed into the same one.
    taken = set(fitting)
    for name in distinct:
        if name not in fitting:
            fitting[name] = _fitted(name, longest, fallback, taken)
            taken.add(fitting[name])
    return fitting


def _fits(name: str, longest: int) -> bool:
    return 0 < len(name) <= longest and REFUSED_CHARACTER.search(name) is None


def _fitted(name: str, longest: int, fallback: str, taken: set[str]) -> str:
    plain = REFUSED_CHARACTER.sub("_", name) or fallback
    if len(plain) <= longest and plain not in taken:
        return plain
    for attempt in count():
        seed = f"{attempt}:{name}".encode("utf-8", "surrogatepass")
        ending = f"_{hashlib.sha256(seed).hexdigest()[:DIGEST_LENGTH]}"
        candidate = plain[: longest - len(ending)] + ending
        if candidate not in taken:
            return candidate
    raise AssertionError("count() ended")


def _note_changes(what: str, names: dict[str, str], notes: list[str]) -> None:
    notes.extend(
        f"The tool {what} {quoted(recorded)} was sent as {quoted(sent)}."
        for recorded, sent in names.items()
        if recorded != sent
    )


def _renamed(turn: Turn, ids: dict[str, str], names: dict[str, str]) -> Turn:
    match turn:
        case UserTurn():
            return turn
        case AssistantTurn():
            return msgspec.structs.replace(
                turn, blocks=tuple(_renamed_block(block, ids, names) for block in turn.blocks)
            )
        case ResultsTurn():
            return ResultsTurn(
                tuple(Answer(ids[answer.call_id], answer.blocks, answer.is_error) for answer in turn.answers)
            )
        case _:
            assert_never(turn)


def _renamed_block(block: AssistantBlock, ids: dict[str, str], names: dict[str, str]) -> AssistantBlock:
    if isinstance(block, ToolCall):
        return ToolCall(ids[block.id], names[block.name], block.arguments, block.thought_signature)
    return block
