"""Build a model's context from a path: the messages in order, and the settings in force at its end.

The only module that interprets compactions, resets and context edits. It loads only the entries that end up in the
context and never looks at the rest of the tree. Differences between agents are fields of `Rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.core.entries import (
    CONTEXT_TYPES,
    BranchSummary,
    Compaction,
    ContextEdit,
    CustomMessage,
    Entry,
    MessageEntry,
    ModeChange,
    ModelChange,
    Replacement,
    RuleInjection,
    ThinkingLevelChange,
    milliseconds,
)
from sessiontree.core.jsonio import Value
from sessiontree.core.messages import (
    MAX_KEPT,
    Assistant,
    BranchSummaryText,
    CompactionSummary,
    Content,
    CustomText,
    LazyMessages,
    Message,
    OtherMessage,
    System,
    Text,
    ToolResult,
    User,
    text_of,
)

_MAX_STEP = 2 << 20
"""Size in bytes of the lines read in one step."""


class Path(Struct, frozen=True):
    """A path from root to leaf: ids and types of all entries, and a loader for some of them.

    `load` takes positions on the path in ascending order and returns their entries in that order. `sizes` returns the
    sizes of their lines in bytes; without it, every context is kept in memory.
    """

    ids: Sequence[str]
    types: Sequence[str]
    load: Callable[[Sequence[int]], list[Entry]]
    sizes: Callable[[Sequence[int]], list[int]] = lambda positions: [0] * len(positions)


class Rules(Struct, frozen=True):
    """Rules of context building that differ between agents."""

    resets: bool = True
    """A reset boundary after the last compaction starts an empty context."""

    explicit_model_wins: bool = True
    """A model change overrides the model of later assistant messages. If False, the later of the two counts."""

    default_thinking: str | None = "off"
    """The level set by a thinking level change that names none."""


class ModelRef(Value, frozen=True):
    provider: str | None = None
    model_id: str | None = None


class State(Value, frozen=True, omit_defaults=False):
    """Settings in force at the leaf of a path."""

    thinking_level: str | None = "off"
    model: ModelRef | None = None
    models: dict[str, str] = msgspec.field(default_factory=dict)
    mode: str = "none"
    mode_data: object = None
    rules: tuple[str, ...] = ()


class Context(Struct, frozen=True):
    """The messages a model receives for a path.

    `path` holds the ids of the whole path, root first; `sources` the entry id of each message. `messages` may be
    decoded lazily.
    """

    path: tuple[str, ...]
    messages: tuple[Message, ...] | LazyMessages
    sources: tuple[str, ...]
    state: State


def build_context(path: Path, rules: Rules) -> Context:
    """Build the context: the latest compaction's summary, the entries it kept, and everything after it.

    Entries are read in steps. A context that is larger than `MAX_KEPT` in the file is decoded again on access.
    """
    positions, compaction_at = _select(path, rules)
    first = positions[0] if positions else len(path.types)
    edited = [at for at in positions if path.types[at] == "context_edit"]
    edits = {entry.target_id: entry.replacement for entry in path.load(edited) if isinstance(entry, ContextEdit)}
    positions = [at for at in positions if path.types[at] not in ("context_edit", "compaction")]
    if compaction_at is not None:
        # The summary replaces what came before the kept entries, so it is first, although its line is after them. It
        # already covers older compactions inside the kept range.
        positions.insert(0, compaction_at)
    kept_ids = {path.ids[at] for at in positions if compaction_at is not None and at < compaction_at}

    def messages_of(entry: Entry) -> list[Message]:
        if entry.id not in edits and entry.id not in kept_ids:
            return list(entry_messages(entry))
        found = []
        for message in entry_messages(entry):
            if isinstance(message, System) and entry.id in kept_ids:
                continue  # the compaction entry holds the system prompt that was in force
            edited = edited_message(message, edits[entry.id]) if entry.id in edits else message
            if edited is not None:
                found.append(edited)
        return found

    plan = _Plan(path, messages_of, [], [], [])
    sizes = path.sizes(positions)
    is_kept = sum(sizes) <= MAX_KEPT
    kept: list[Message] = []
    for step in _steps(positions, sizes):
        added = plan.add(step)
        if is_kept:
            kept += added
    state = _state(path, rules, plan.model, first)
    messages = tuple(kept) if is_kept else plan.messages()
    return Context(tuple(path.ids), messages, tuple([path.ids[at] for at in plan.places]), state)


class _Plan(Struct):
    """Where each message of a context comes from: enough to decode it again."""

    path: Path
    messages_of: Callable[[Entry], list[Message]]
    places: list[int]
    """Position on the path of each message's entry."""
    counts: list[int]
    """Each message's index among the messages of its entry."""
    systems: list[int]
    """The messages that are system prompts."""
    model: tuple[int, ModelRef] | None = None
    """The last model that an answer names, and the position of its entry."""

    def add(self, positions: Sequence[int]) -> list[Message]:
        """Add the entries that follow and return their messages."""
        added: list[Message] = []
        for at, entry in zip(positions, self.path.load(positions), strict=True):
            self.model = _named_model(at, entry) or self.model
            for count, message in enumerate(self.messages_of(entry)):
                if isinstance(message, System):
                    self.systems.append(len(self.places))
                self.places.append(at)
                self.counts.append(count)
                added.append(message)
        return added

    def messages(self) -> LazyMessages:
        return LazyMessages(len(self.places), self._load, self._sizes, self.systems)

    def _load(self, wanted: range) -> list[Message]:
        places = [self.places[at] for at in wanted]
        read = list(dict.fromkeys(places))
        by_place = dict(zip(read, map(self.messages_of, self.path.load(read)), strict=True))
        return [by_place[place][self.counts[at]] for at, place in zip(wanted, places, strict=True)]

    def _sizes(self, wanted: range) -> list[int]:
        return self.path.sizes(self.places[wanted.start : wanted.stop])


def _steps(positions: Sequence[int], sizes: Sequence[int]) -> Iterator[Sequence[int]]:
    """Split positions into steps that are loaded together, by the sizes of their lines.

    The first position is alone, because it may be a compaction that comes after the others on the path.
    """
    start, size = 0, 0
    for at, added in enumerate(sizes):
        if at == 1 or (at > start and size + added > _MAX_STEP):
            yield positions[start:at]
            start, size = at, 0
        size += added
    if positions:
        yield positions[start:]


def path_messages(path: Path) -> list[Message]:
    """Every message on a path as it was recorded, with no compaction, reset or edit applied."""
    wanted = [position for position, kind in enumerate(path.types) if kind in CONTEXT_TYPES]
    return [message for entry in path.load(wanted) for message in entry_messages(entry)]


_READ_TYPES = CONTEXT_TYPES | {"context_edit"}


def _select(path: Path, rules: Rules) -> tuple[list[int], int | None]:
    """Positions of the entries in the context, in path order, and the position of the compaction that opens it."""
    compaction_at = _last(path.types, "compaction")
    reset_at = _last(path.types, "reset_boundary") if rules.resets else -1
    first = 0
    if reset_at > compaction_at:
        first, compaction_at = reset_at + 1, -1
    elif compaction_at >= 0:
        first = _first_kept(path, compaction_at)
    positions = [at for at, kind in enumerate(path.types[first:], first) if kind in _READ_TYPES]
    return positions, compaction_at if compaction_at >= 0 else None


def _last(types: Sequence[str], kind: str) -> int:
    """Last position of a type on a path, or -1."""
    return max(_positions(types, kind), default=-1)


def _positions(types: Sequence[str], kind: str) -> list[int]:
    """Every position of a type on a path."""
    # `list.count` and `list.index` run in C: a path can have a million entries, and most types are rare.
    positions: list[int] = []
    at = -1
    for _ in range(types.count(kind)):
        at = types.index(kind, at + 1)
        positions.append(at)
    return positions


def _first_kept(path: Path, compaction_at: int) -> int:
    """Position of the first kept entry; the compaction itself when the named entry is not on the path before it."""
    (compaction,) = path.load([compaction_at])
    bound = compaction.first_kept_entry_id if isinstance(compaction, Compaction) else None
    if bound is None or bound not in path.ids[:compaction_at]:
        return compaction_at
    return path.ids.index(bound)


def entry_messages(entry: Entry) -> Iterator[Message]:
    """The messages that an entry adds to a context: usually one or none."""
    match entry:
        case MessageEntry():
            for message in entry.messages:
                if not (isinstance(message, OtherMessage) and message.is_empty):
                    yield message
        case CustomMessage():
            yield CustomText(
                timestamp=milliseconds(entry.timestamp),
                custom_type=entry.custom_type,
                content=entry.content,
                display=entry.display,
            )
        case BranchSummary() if entry.summary:
            yield BranchSummaryText(
                timestamp=milliseconds(entry.timestamp), summary=entry.summary, from_id=entry.from_id
            )
        case Compaction():
            if entry.system_message is not None:
                yield entry.system_message
            yield CompactionSummary(
                timestamp=milliseconds(entry.timestamp), summary=entry.summary, tokens_before=entry.tokens_before
            )
        case _:
            return


def edited_message(message: Message, replacement: Replacement | None) -> Message | None:
    """Apply a context edit to a message; None when the edit removes it."""
    if replacement is None:
        return None
    if not isinstance(message, User | Assistant | ToolResult | CustomText):
        return message
    content: Content = replacement.content
    if isinstance(content, str) and isinstance(message, Assistant | ToolResult):
        content = (Text(content),)
    return msgspec.structs.replace(message, content=content)


def _state(path: Path, rules: Rules, named: tuple[int, ModelRef] | None, end: int) -> State:
    """Settings at the end of a path. `named` is the last model that an answer names, from position `end` on."""
    kinds = ("model_change", "thinking_level_change", "mode_change", "ttsr_injection")
    positions = sorted(at for kind in kinds for at in _positions(path.types, kind))
    thinking: str | None = "off"
    mode, mode_data = "none", None
    injected: dict[str, None] = {}
    models: dict[str, str] = {}
    explicit: ModelRef | None = None
    explicit_at = -1
    for at, entry in zip(positions, path.load(positions), strict=True):
        match entry:
            case ThinkingLevelChange():
                thinking = entry.thinking_level or rules.default_thinking
            case ModeChange():
                mode, mode_data = entry.mode, entry.data
            case RuleInjection():
                injected.update(dict.fromkeys(entry.injected_rules))
            case ModelChange():
                selector = entry.selector
                if selector is None:
                    continue
                role = entry.role or "default"
                models[role] = selector
                if role == "default":
                    explicit, explicit_at = _model_ref(entry, selector), at
            case _:
                pass
    inferred_at, inferred = -1, None
    if explicit is None or not rules.explicit_model_wins:
        inferred_at, inferred = named or _last_named_model(path, explicit_at, end) or (-1, None)
    model = inferred if inferred_at > explicit_at else explicit
    if model is not None and model is inferred:
        models["default"] = f"{model.provider}/{model.model_id}" if model.provider else model.model_id or ""
    return State(thinking, model, models, mode, mode_data, tuple(injected))


def _model_ref(change: ModelChange, selector: str) -> ModelRef:
    if change.provider or change.model_id:
        return ModelRef(change.provider, change.model_id)
    provider, slash, model_id = selector.partition("/")
    return ModelRef(provider, model_id) if slash else ModelRef(None, selector)


def _named_model(at: int, entry: Entry) -> tuple[int, ModelRef] | None:
    """The model that an answer names, with its position."""
    message = entry.message if isinstance(entry, MessageEntry) else None
    return (at, ModelRef(message.provider, message.model)) if isinstance(message, Assistant) and message.model else None


def _last_named_model(path: Path, after: int, end: int) -> tuple[int, ModelRef] | None:
    """The last model that an answer between two positions names, with its position."""
    # Read backwards in small steps: nearly always one of the last few messages names a model.
    while end > after + 1:
        start = max(after + 1, end - 32)
        step = [at for at in range(start, end) if path.types[at] == "message"]
        end = start
        found = [named for named in map(_named_model, step, path.load(step)) if named is not None]
        if found:
            return found[-1]
    return None


def current_system(messages: Iterable[Message]) -> System | None:
    """The system prompt in force: texts of all system messages joined, sections and tools added or replaced by name."""
    if isinstance(messages, LazyMessages):
        messages = [messages[at] for at in messages.systems]
    texts: list[str] = []
    sections: dict[str, str | None] = {}
    tools: dict[str, Any] = {}
    time: int | float | None = None
    found = False
    for message in messages:
        if not isinstance(message, System):
            continue
        if not found:
            found, time = True, message.timestamp
        text = text_of(message.content)
        if text:
            texts.append(text)
        for name, section in (message.sections or {}).items():
            sections.pop(name, None) if section is None else sections.update({name: section})
        for tool in message.tools_removed or []:
            tools.pop(_tool_name(tool), None)
        for tool in message.tools_added or []:
            tools[_tool_name(tool)] = tool
    if not found:
        return None
    return System(
        timestamp=time,
        content="\n\n".join(texts),
        sections=sections or None,
        tools_added=list(tools.values()) or None,
    )


def _tool_name(tool: Any) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    return name if isinstance(name, str) else ""
