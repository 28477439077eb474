"""Turns -> turns in which every tool call is answered by exactly one result, directly behind the turn that made it.

Calls and results are matched by id alone. Afterwards no id is used twice, the results of a turn stand in the order they
came in with the made-up ones last, and what the user said in between comes after them. Nothing in this module spells a
provider's fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, groupby
from math import inf
from typing import Literal, NamedTuple, TypeAlias, assert_never

from sessiontree.core.messages import Text, ToolCall
from sessiontree.providers.sanitize import quoted
from sessiontree.providers.templates import NO_RESULT
from sessiontree.providers.turns import Answer, AssistantTurn, ResultsTurn, SpokenBlock, Turn, UserTurn

Unanswered: TypeAlias = Literal["complete", "strip"]


class CallPlace(NamedTuple):
    """Where a call was found: the turn, and the block in it."""

    turn: int
    block: int


class FoundAnswer(NamedTuple):
    """A result, and the turn it was found at."""

    turn: int
    answer: Answer


class Matches(NamedTuple):
    answers: dict[CallPlace, FoundAnswer]
    dropped: list[str]


def pair_results(turns: Sequence[Turn], unanswered: Unanswered, notes: list[str]) -> list[Turn]:
    """Put every result behind its call; complete or strip the calls that have none."""
    matches = _match_all(turns)
    notes += matches.dropped
    _note_moves(turns, matches.answers, notes)
    calls = dict(_iter_calls(turns))
    match unanswered:
        case "complete":
            kept = calls
        case "strip":
            kept = {place: call for place, call in calls.items() if place in matches.answers}
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
            case ResultsTurn():
                pass  # its answers stand behind their calls now
            case _:
                assert_never(turn)
    return paired


def _iter_calls(turns: Sequence[Turn]) -> Iterator[tuple[CallPlace, ToolCall]]:
    for index, turn in enumerate(turns):
        if isinstance(turn, AssistantTurn):
            for position, block in enumerate(turn.blocks):
                if isinstance(block, ToolCall):
                    yield CallPlace(index, position), block


def _match_all(turns: Sequence[Turn]) -> Matches:
    by_id: dict[str, list[CallPlace | FoundAnswer]] = {}
    for index, turn in enumerate(turns):
        match turn:
            case UserTurn():
                pass
            case AssistantTurn():
                for position, block in enumerate(turn.blocks):
                    if isinstance(block, ToolCall):
                        by_id.setdefault(block.id, []).append(CallPlace(index, position))
            case ResultsTurn():
                for answer in turn.answers:
                    by_id.setdefault(answer.call_id, []).append(FoundAnswer(index, answer))
            case _:
                assert_never(turn)
    matches = Matches({}, [])
    for call_id, events in by_id.items():
        _match_one_id(call_id, events, matches)
    return matches


def _match_one_id(call_id: str, events: Iterable[CallPlace | FoundAnswer], matches: Matches) -> None:
    """Match the calls and results that carry the same id, in recorded order.

    Some models count their calls anew in every response, so one id may stand for several calls. A result answers a call
    made before it; where there are fewer results than calls, the latest calls are the ones answered, since a call left
    behind when its id was used again was never answered. A result before the first call is taken if nothing better
    comes.
    """
    calls: list[CallPlace] = []
    open_calls: list[CallPlace] = []
    early: list[FoundAnswer] = []
    surplus = 0
    for _, run in groupby(events, key=type):
        places, answers = _split(run)
        if places:
            calls += places
            open_calls = places
        elif not calls:
            early = answers
        else:
            answered = open_calls[-len(answers) :]
            matches.answers.update(zip(answered, answers, strict=False))
            surplus += len(answers) - len(answered)
    if not calls:
        matches.dropped.extend(f"The result for {quoted(call_id)} was dropped: no such call." for _ in early)
        return
    never_answered = [place for place in calls if place not in matches.answers]
    matches.answers.update(zip(never_answered, early, strict=False))
    surplus += max(0, len(early) - len(never_answered))
    matches.dropped.extend(f"A second result for {quoted(call_id)} was dropped." for _ in range(surplus))


def _split(run: Iterable[CallPlace | FoundAnswer]) -> tuple[list[CallPlace], list[FoundAnswer]]:
    places: list[CallPlace] = []
    answers: list[FoundAnswer] = []
    for event in run:
        match event:
            case CallPlace():
                places.append(event)
            case FoundAnswer():
                answers.append(event)
            case _:
                assert_never(event)
    return places, answers


def _note_moves(turns: Sequence[Turn], found: Mapping[CallPlace, FoundAnswer], notes: list[str]) -> None:
    last_spoken = -1
    behind: list[int] = []
    for index, turn in enumerate(turns):
        behind.append(last_spoken)
        if not isinstance(turn, ResultsTurn):
            last_spoken = index
    for place, answer in found.items():
        if behind[answer.turn] != place.turn:
            notes.append(f"The result for {quoted(answer.answer.call_id)} was moved behind its call.")


def _note_unanswered(
    calls: Mapping[CallPlace, ToolCall],
    answers: Mapping[CallPlace, FoundAnswer],
    unanswered: Unanswered,
    notes: list[str],
) -> None:
    done = "was answered as unknown" if unanswered == "complete" else "was taken out"
    for place, call in calls.items():
        if place not in answers:
            notes.append(f"The call {quoted(call.id)} of {quoted(call.name)} has no result and {done}.")


def _unique_ids(calls: Mapping[CallPlace, ToolCall], notes: list[str]) -> dict[CallPlace, str]:
    """An id of its own for each call: the first use keeps the recorded one, later uses get a number behind it."""
    taken = {call.id for call in calls.values()}
    # One row of numbers per id, so that a model that calls everything "call_0" does not cost a search from 2 each time.
    numbers: dict[str, Iterator[int]] = {}
    ids: dict[CallPlace, str] = {}
    for place, call in calls.items():
        if call.id not in numbers:
            numbers[call.id] = count(2)
            ids[place] = call.id
            continue
        unique = next(name for n in numbers[call.id] if (name := f"{call.id}_{n}") not in taken)
        taken.add(unique)
        ids[place] = unique
        notes.append(f"The call id {quoted(call.id)} was used again and became {quoted(unique)}.")
    return ids


def _answered_turn(
    index: int, turn: AssistantTurn, ids: Mapping[CallPlace, str], found: Mapping[CallPlace, FoundAnswer]
) -> list[Turn]:
    """The turn with its calls renamed or taken out, and the results behind it; nothing when nothing is left of it."""
    blocks: list[SpokenBlock] = []
    answers: list[tuple[float, Answer]] = []
    for position, block in enumerate(turn.blocks):
        place = CallPlace(index, position)
        if not isinstance(block, ToolCall):
            blocks.append(block)
        elif place in ids:
            blocks.append(ToolCall(ids[place], block.name, block.arguments, block.thought_signature))
            came = found.get(place)
            answers.append((inf if came is None else came.turn, _answer(ids[place], came)))
    if not blocks:
        return []
    spoken = AssistantTurn(tuple(blocks), turn.api, turn.provider, turn.model, turn.response_id)
    answers.sort(key=lambda pair: pair[0])
    return [spoken, ResultsTurn(tuple(answer for _, answer in answers))] if answers else [spoken]


def _answer(call_id: str, found: FoundAnswer | None) -> Answer:
    if found is None:
        return Answer(call_id, (Text(NO_RESULT),), is_error=True)
    return Answer(call_id, found.answer.blocks, found.answer.is_error)
