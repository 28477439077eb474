"""The gists of a path's messages (see `gist_of`): from what is known of their lines, and else from the messages.

Of a result that is no error the notes tell all that its gist says. What answers and prompts say was kept when the lines
were read, or answers are read many at once (`gists`). Everything else is decoded like any message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from sessiontree.core.lazy_messages import gist_of
from sessiontree.core.messages import Assistant, Message, ToolResult, User
from sessiontree.dialects.claude.gists import Answered, Said, read_answered
from sessiontree.dialects.claude.line_summary import LineSummary
from sessiontree.dialects.claude.message_plan import Plan, read_messages
from sessiontree.dialects.contract import IndexedLines

_TOGETHER = 1024
"""How many gists are read in one go; where one line needs a closer look, the answers among them get one."""


class Skimming:
    """Reads the gists of a plan's messages."""

    def __init__(
        self,
        lines: IndexedLines,
        ids: Sequence[str],
        noted: Mapping[int, LineSummary | None],
        said: Mapping[int, object],
        plan: Plan,
    ) -> None:
        self._lines = lines
        self._ids = ids
        self._noted = noted
        self._kept = cast("Mapping[int, Said | None]", said)
        self._plan = plan

    def gists(self, positions: range) -> list[Message]:
        found: list[Message] = []
        for start in range(0, len(positions), _TOGETHER):
            found += self._gists(positions[start : start + _TOGETHER])
        return found

    def _gists(self, positions: range) -> list[Message]:
        plan, noted, kept = self._plan, self._noted, self._kept
        nodes, shards, numbers, tools = plan.nodes, plan.shards, plan.numbers, plan.tools
        gists: dict[int, Message] = {}
        answers: dict[int, tuple[int, ...]] = {}
        others: list[int] = []
        for at in positions:  # one step costs what a long session has many thousands of
            node = nodes[at]
            speech = noted.get(node)
            if speech is None or at in plan.stand_ins:
                others.append(at)
            elif speech.is_assistant:
                if at in shards:
                    answers[at] = (node, *shards[at])
                elif isinstance(said := kept.get(node), tuple):
                    gists[at] = Assistant(None, said)
                else:
                    answers[at] = (node,)
            elif speech.answers and not speech.failures:
                call = speech.answers[numbers.get(at, 0)]
                gists[at] = ToolResult(None, call, tools.get(call, ""))
            elif isinstance(said := kept.get(node), str):
                gists[at] = User(content=said)
            else:
                others.append(at)
        others += self._add_answers(gists, answers)
        for at, message in zip(others, read_messages(self._lines, self._ids, plan, others), strict=True):
            gists[at] = gist_of(message)
        return [gists[at] for at in positions]

    def _add_answers(self, gists: dict[int, Message], answers: Mapping[int, tuple[int, ...]]) -> Sequence[int]:
        """Add the gists of some answers; those that need a closer look."""
        answered = self._answered([node for parts in answers.values() for node in parts])
        if answered is None:
            return list(answers)
        following = iter(answered)
        for at, parts in answers.items():
            content = next(following)
            for _ in parts[1:]:
                content += next(following)
            gists[at] = Assistant(content=content)
        return ()

    def _answered(self, nodes: Sequence[int]) -> Sequence[Answered] | None:
        """What the lines of some answers say: as it was kept, else as it is read; None if one needs a closer look."""
        if None in map(self._noted.get, nodes):
            return None
        kept = cast("list[Answered | None]", list(map(self._kept.get, nodes)))
        missing = [at for at, said in enumerate(kept) if said is None]
        found = read_answered(self._lines, self._ids, [nodes[at] for at in missing]) if missing else ()
        if found is None:
            return None
        for at, said in zip(missing, found, strict=True):
            kept[at] = said
        return cast("list[Answered]", kept)
