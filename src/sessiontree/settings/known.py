"""Every setting there is: its name, type, default, meaning, and whether a project's file may say it.

A new setting is one more field here. Files, environment, `config` and the schema follow from the fields; nothing else
lists them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from sessiontree.core.jsonio import Value

ANY_MODEL = "MODEL"
"""Stands in a key's name for the name of a model, as "provider/model"."""

# A project's file comes with a repository that anyone may have written. What it may not say is marked with this.
USER_ONLY: dict[str, Any] = {"user_only": True}

PolicyName: TypeAlias = Literal["reserve", "table", "share", "ratio", "manual"]
Word: TypeAlias = Annotated[str, Meta(min_length=1)]
Tokens: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Share: TypeAlias = Annotated[float, Meta(gt=0, le=1)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=3600)]


class Prune(Value, frozen=True, omit_defaults=False):
    """Leaving out old tool outputs before anything is summarised."""

    enabled: Annotated[bool, Meta(description="leave out old tool outputs first, if that is enough")] = True
    protect_turns: Annotated[int, Meta(ge=0, le=1000, description="turns at the end that are never touched")] = 2
    protect_tokens: Annotated[Tokens, Meta(description="tokens of the newest tool outputs that are kept")] = 40_000


class CompactionOverride(Value, frozen=True):
    """What is different for one model. What is not said is as for all models."""

    enabled: Annotated[bool | None, Meta(description="compact by itself with this model")] = None
    policy: Annotated[PolicyName | None, Meta(description="when to compact with this model")] = None
    reserve_tokens: Annotated[Tokens | None, Meta(description="tokens left free in this model's window")] = None
    keep_recent_tokens: Annotated[Tokens | None, Meta(description="tokens kept as they are with this model")] = None
    ratio: Annotated[Share | None, Meta(description="share of this model's window, for `ratio`")] = None


class Compaction(Value, frozen=True, omit_defaults=False):
    """When a session is compacted, how much is kept, and who writes the summary."""

    enabled: Annotated[bool, Meta(description="compact by itself when a context grows too large")] = True
    policy: Annotated[PolicyName, Meta(description="when: reserve, table, share, ratio, or manual for never")] = (
        "reserve"
    )
    reserve_tokens: Annotated[Tokens, Meta(description="tokens left free for the next answer, for `reserve`")] = 16_384
    keep_recent_tokens: Annotated[Tokens, Meta(description="tokens at the end that are kept as they are")] = 20_000
    ratio: Annotated[Share, Meta(description="share of the window that may be used, for `ratio`")] = 0.8
    summarizer: Annotated[Word, Meta(description="who summarises: extractive, or a model", extra=USER_ONLY)] = (
        "extractive"
    )
    instructions: Annotated[str | None, Meta(description="what summaries should keep above all")] = None
    prune: Prune = Prune()
    model_overrides: dict[str, CompactionOverride] = msgspec.field(default_factory=dict)

    def for_model(self, model: str | None) -> Compaction:
        """What holds for one model, named "provider/model" or "provider:model"."""
        names = ((model or "").replace(":", "/", 1), model or "")
        override = next((self.model_overrides[name] for name in names if name in self.model_overrides), None)
        if override is None:
            return self
        said = {name: value for name in override.__struct_fields__ if (value := getattr(override, name)) is not None}
        return msgspec.structs.replace(self, **said)


class BranchSummaries(Value, frozen=True, omit_defaults=False):
    """What is kept of a branch that is left."""

    reserve_tokens: Annotated[Tokens, Meta(description="tokens left free when a branch is summarised")] = 16_384
    skip_prompt: Annotated[bool, Meta(description="leave a branch without asking whether to summarise it")] = False
    instructions: Annotated[str | None, Meta(description="what branch summaries should keep above all")] = None


class Retry(Value, frozen=True, omit_defaults=False):
    """What happens when a model is busy or out of reach."""

    attempts: Annotated[int, Meta(ge=0, le=100, description="how often a request is made again")] = 4
    first_delay: Annotated[Seconds, Meta(description="seconds before the first new attempt; then doubled")] = 2.0
    longest_delay: Annotated[Seconds, Meta(description="the most seconds one wait may take")] = 60.0


class Settings(Value, frozen=True, omit_defaults=False):
    """Everything that can be set, with what holds when nobody set it."""

    model: Annotated[Word | None, Meta(description="the model to use, as provider:name", extra=USER_ONLY)] = None
    models: Annotated[Word | None, Meta(description="a file with facts about more models", extra=USER_ONLY)] = None
    compaction: Compaction = Compaction()
    branch_summary: BranchSummaries = BranchSummaries()
    retry: Retry = Retry()


class Setting(Value, frozen=True):
    """One thing that can be set."""

    path: tuple[str, ...]
    """Its name in pieces; `ANY_MODEL` stands for the name of a model."""
    type: Any
    default: Any
    description: str
    from_project: bool
    """Whether a project's file may say it."""

    @property
    def key(self) -> str:
        return ".".join(self.path)

    @property
    def variable(self) -> str | None:
        """The environment variable that sets it; a model's name has no place in one."""
        if ANY_MODEL in self.path:
            return None
        return "SESSIONTREE_" + "_".join(_upper(word) for word in self.path)


def iter_settings() -> Iterator[Setting]:
    """All settings in the order they are written down."""
    yield from _settings()


@functools.cache
def _settings() -> tuple[Setting, ...]:
    return tuple(_walk(Settings, ()))


def _walk(cls: type[Value], above: tuple[str, ...]) -> Iterator[Setting]:
    hints = get_type_hints(cls, include_extras=True)
    for field in msgspec.structs.fields(cls):
        declared = hints[field.name]
        path = (*above, field.encode_name)
        inner = mapped_value(declared)
        if inner is not None:
            yield from _walk(inner, (*path, ANY_MODEL))
        elif isinstance(declared, type) and issubclass(declared, Value):
            yield from _walk(declared, path)
        else:
            yield Setting(path, declared, field.default, _description(declared), not _is_user_only(declared))


def mapped_value(declared: Any) -> type[Value] | None:
    """What a mapping from models' names holds."""
    if get_origin(declared) is not dict:
        return None
    value: type[Value] = get_args(declared)[1]
    return value


def _metas(declared: Any) -> list[Meta]:
    return [one for one in getattr(declared, "__metadata__", ()) if isinstance(one, Meta)]


def _description(declared: Any) -> str:
    return next((meta.description for meta in reversed(_metas(declared)) if meta.description), "")


def _is_user_only(declared: Any) -> bool:
    return any((meta.extra or {}).get("user_only") for meta in _metas(declared))


def _upper(word: str) -> str:
    return "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in word)
