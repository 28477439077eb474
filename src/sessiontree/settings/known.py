"""All settings: name, type, default, description, and whether a project's file may set them.

To add a setting, add a field. Files, environment variables, `config` and the schema are derived from the fields.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from sessiontree.core.jsonio import Value

ANY_MODEL = "MODEL"
"""Placeholder in a key for a model's name, "provider/model"."""

# Marks settings that a project's file cannot set: it comes with a repository that anyone may have written.
USER_ONLY: dict[str, Any] = {"user_only": True}

AUTO = "auto"
"""The summarizer that is the model in use, or the extractive one without a model."""

Fallback: TypeAlias = Literal["none", "extractive"]
PolicyName: TypeAlias = Literal["reserve", "table", "share", "ratio", "manual"]
Word: TypeAlias = Annotated[str, Meta(min_length=1)]
Tokens: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Share: TypeAlias = Annotated[float, Meta(gt=0, le=1)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=3600)]


class Prune(Value, frozen=True, omit_defaults=False):
    """Removal of old tool outputs before anything is summarized."""

    enabled: Annotated[bool, Meta(description="first try to free space by leaving out old tool outputs")] = True
    protect_turns: Annotated[int, Meta(ge=0, le=1000, description="recent turns whose outputs are always kept")] = 2
    protect_tokens: Annotated[Tokens, Meta(description="tokens of recent tool outputs to keep")] = 40_000


class CompactionOverride(Value, frozen=True):
    """Overrides for one model. None means the same as for all models."""

    enabled: Annotated[bool | None, Meta(description="compact automatically with this model")] = None
    policy: Annotated[PolicyName | None, Meta(description="when to compact with this model")] = None
    reserve_tokens: Annotated[Tokens | None, Meta(description="tokens to keep free in this model's window")] = None
    keep_recent_tokens: Annotated[Tokens | None, Meta(description="recent tokens to keep with this model")] = None
    ratio: Annotated[Share | None, Meta(description="fraction of this model's window, for `ratio`")] = None


class Compaction(Value, frozen=True, omit_defaults=False):
    """When to compact a session, how much to keep, and the summarizer."""

    enabled: Annotated[bool, Meta(description="compact automatically when the context grows too large")] = True
    policy: Annotated[PolicyName, Meta(description="policy: reserve, table, share, ratio, or manual for never")] = (
        "reserve"
    )
    reserve_tokens: Annotated[Tokens, Meta(description="tokens to keep free for the answer, for `reserve`")] = 16_384
    keep_recent_tokens: Annotated[Tokens, Meta(description="recent tokens to keep")] = 20_000
    ratio: Annotated[Share, Meta(description="fraction of the window to use, for `ratio`")] = 0.8
    summarizer: Annotated[
        Word, Meta(description="auto (the model in use, else extractive), extractive, or a model", extra=USER_ONLY)
    ] = AUTO
    fallback: Annotated[Fallback, Meta(description="if a summary fails: none for an error, or extractive")] = "none"
    instructions: Annotated[str | None, Meta(description="what summaries should focus on")] = None
    prune: Prune = Prune()
    model_overrides: dict[str, CompactionOverride] = msgspec.field(default_factory=dict)

    def for_model(self, model: str | None) -> Compaction:
        """The settings for one model, "provider/model" or "provider:model"."""
        names = ((model or "").replace(":", "/", 1), model or "")
        override = next((self.model_overrides[name] for name in names if name in self.model_overrides), None)
        if override is None:
            return self
        overrides = {
            name: value for name in override.__struct_fields__ if (value := getattr(override, name)) is not None
        }
        return msgspec.structs.replace(self, **overrides)


class BranchSummaries(Value, frozen=True, omit_defaults=False):
    """Summaries of abandoned branches."""

    reserve_tokens: Annotated[Tokens, Meta(description="tokens to keep free when a branch is summarized")] = 16_384
    skip_prompt: Annotated[bool, Meta(description="do not ask whether to summarize a branch")] = False
    instructions: Annotated[str | None, Meta(description="what branch summaries should focus on")] = None


class Retry(Value, frozen=True, omit_defaults=False):
    """Retries when a model is busy or unreachable."""

    attempts: Annotated[int, Meta(ge=0, le=100, description="how often to retry a request")] = 4
    first_delay: Annotated[Seconds, Meta(description="seconds before the first retry; then doubled")] = 2.0
    longest_delay: Annotated[Seconds, Meta(description="maximum seconds between retries")] = 60.0


class Settings(Value, frozen=True, omit_defaults=False):
    """All settings with their defaults."""

    model: Annotated[Word | None, Meta(description="the model to use, as provider:name", extra=USER_ONLY)] = None
    models: Annotated[Word | None, Meta(description="a file that describes more models", extra=USER_ONLY)] = None
    sandbox: Annotated[
        bool, Meta(description="run commands that need no approval in a sandbox, if there is one", extra=USER_ONLY)
    ] = True
    images: Annotated[
        Literal["auto", "off", "kitty", "iterm2", "sixel"],
        Meta(description="how the chat shows images: by the terminal, not at all, or by a protocol", extra=USER_ONLY),
    ] = "auto"
    compaction: Compaction = Compaction()
    branch_summary: BranchSummaries = BranchSummaries()
    retry: Retry = Retry()


class Setting(Value, frozen=True):
    """The definition of a setting."""

    path: tuple[str, ...]
    """The parts of its key; `ANY_MODEL` is a placeholder for a model's name."""
    type: Any
    default: Any
    description: str
    from_project: bool
    """Whether a project's file may set it."""

    @property
    def key(self) -> str:
        return ".".join(self.path)

    @property
    def variable(self) -> str | None:
        """The environment variable that sets it; None for per-model settings."""
        if ANY_MODEL in self.path:
            return None
        return "SESSIONTREE_" + "_".join(_upper(word) for word in self.path)


def iter_settings() -> Iterator[Setting]:
    """All settings in the order of their definition."""
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
    """The value type of a mapping from model names to settings; None for any other type."""
    if get_origin(declared) is not dict:
        return None
    value: type[Value] = get_args(declared)[1]
    return value


def _metas(declared: Any) -> list[Meta]:
    return [meta for meta in getattr(declared, "__metadata__", ()) if isinstance(meta, Meta)]


def _description(declared: Any) -> str:
    return next((meta.description for meta in reversed(_metas(declared)) if meta.description), "")


def _is_user_only(declared: Any) -> bool:
    return any((meta.extra or {}).get("user_only") for meta in _metas(declared))


def _upper(word: str) -> str:
    return "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in word)
