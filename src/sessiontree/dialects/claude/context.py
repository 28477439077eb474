"""A path -> what the model sees: its messages, decoded when they are looked at, and the state at its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sessiontree.core.context import Context, ModelRef, State
from sessiontree.core.lazy_messages import LazyMessages
from sessiontree.core.messages import Assistant, Message
from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.message_plan import plan_messages, read_messages, sizes_of
from sessiontree.dialects.claude.path import Trail
from sessiontree.dialects.claude.records import SYNTHETIC, object_in, string_in

_STEP = 256
_MODES = {"mode": "mode", "permission-mode": "permissionMode"}


def build_context(chain: Chain, trail: Trail) -> Context:
    """What a model is sent for a path."""
    lines, ids = chain.lines, chain.tree.ids
    plan = plan_messages(chain, trail)

    messages = LazyMessages(
        len(plan.nodes),
        lambda positions: read_messages(lines, ids, plan, positions),
        lambda positions: sizes_of(lines, plan, positions),
    )
    return Context(_ids(ids, trail.nodes), messages, _ids(ids, plan.nodes), _state(chain, trail, messages))


def _ids(ids: Sequence[str], nodes: Iterable[int]) -> tuple[str, ...]:
    return tuple(map(ids.__getitem__, nodes))


def _state(chain: Chain, trail: Trail, messages: Sequence[Message]) -> State:
    spoken = (message.model for message in reversed(messages) if isinstance(message, Assistant))
    model = next((name for name in spoken if _is_model(name)), None) or _earlier_model(chain, trail)
    ref = ModelRef("anthropic", model) if model else None
    return State(model=ref, models={"default": f"anthropic/{model}"} if model else {}, mode=_mode(chain))


def _is_model(name: str | None) -> bool:
    return bool(name) and name != SYNTHETIC


def _earlier_model(chain: Chain, trail: Trail) -> str | None:
    """After a compaction that kept no answer: the model of the last one before it in the file."""
    first = trail.nodes[0] if trail.nodes else 0
    before = [node for node in range(max(0, first - _STEP), first) if chain.types[node] == "message"]
    for fields in reversed(chain.lines.fields(before)):
        model = string_in(object_in(fields, "message"), "model")
        if _is_model(model) and fields.get("isSidechain") is not True:
            return model
    return None


def _mode(chain: Chain) -> str:
    for node in range(len(chain) - 1, -1, -1):
        key = _MODES.get(chain.types[node])
        if key is not None:
            (fields,) = chain.lines.fields([node])
            return string_in(fields, key) or "none"
    return "none"
