"""Contexts built from a path: compactions, resets, edits, and the settings in force."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.core.context import Context, ModelRef, Rules, State, build_context, path_messages
from sessiontree.core.entries import (
    BranchSummary,
    Compaction,
    ContextEdit,
    Custom,
    CustomMessage,
    Entry,
    Label,
    MessageEntry,
    ModeChange,
    ModelChange,
    Replacement,
    ResetBoundary,
    RuleInjection,
    ThinkingLevelChange,
    Unknown,
    milliseconds,
)
from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    BranchSummaryText,
    CompactionSummary,
    CustomText,
    Image,
    Message,
    System,
    Text,
    ToolResult,
    User,
    message_text,
)
from tests.builders import TIME, examples, path_of

NATIVE = Rules()
PI = Rules(resets=False, explicit_model_wins=False, default_thinking=None)


def user(id: str, text: str | None = None) -> MessageEntry:
    return MessageEntry(id, message=User(content=text or id))


def assistant(id: str, model: str | None = None, provider: str | None = None) -> MessageEntry:
    return MessageEntry(id, message=Assistant(content=(Text(id),), model=model, provider=provider))


def system(id: str) -> MessageEntry:
    return MessageEntry(id, message=System(content=id))


def compaction(id: str, kept: str | None, **fields: Any) -> Compaction:
    return Compaction(id, summary=f"summary {id}", first_kept_entry_id=kept, **fields)


def build(*entries: Entry, rules: Rules = NATIVE) -> Context:
    return build_context(path_of(*entries), rules)


def context_texts(*entries: Entry, rules: Rules = NATIVE) -> list[str]:
    return [message_text(message) for message in build(*entries, rules=rules).messages]


def state(*entries: Entry, rules: Rules = NATIVE) -> State:
    return build(*entries, rules=rules).state


# Messages


def test_the_context_of_an_empty_path_is_empty() -> None:
    assert build() == Context((), (), (), State())


def test_without_compaction_every_message_is_in_the_context() -> None:
    context = build(user("1"), assistant("2"), user("3"))
    assert [message.role for message in context.messages] == ["user", "assistant", "user"]
    assert context.path == context.sources == ("1", "2", "3")


def test_entries_without_messages_are_on_the_path_but_not_in_the_context() -> None:
    context = build(
        user("1"), Custom("2", data={"a": 1}), Label("3", target_id="1", label="x"), Unknown("4"), user("5")
    )
    assert context.path == ("1", "2", "3", "4", "5")
    assert context.sources == ("1", "5")


def test_a_compaction_opens_the_context_followed_by_what_it_kept() -> None:
    context = build(user("1"), user("2"), user("3"), compaction("c", "2", tokens_before=7), user("4"))
    assert context.messages == (
        CompactionSummary(summary="summary c", tokens_before=7),
        User(content="2"),
        User(content="3"),
        User(content="4"),
    )
    assert context.sources == ("c", "2", "3", "4")
    assert context.path == ("1", "2", "3", "c", "4")


def test_the_latest_of_several_compactions_counts() -> None:
    path = [user("1"), compaction("c1", "1"), user("2"), user("3"), compaction("c2", "3"), user("4")]
    assert context_texts(*path) == ["summary c2", "3", "4"]


@pytest.mark.parametrize("bound", ["nowhere", "c", "sibling", "4", None, ""])
def test_a_bound_that_is_not_before_the_compaction_keeps_nothing(bound: str | None) -> None:
    """Not on the path, the compaction itself, on another branch, after the compaction, absent."""
    assert context_texts(user("1"), user("2"), compaction("c", bound), user("4")) == ["summary c", "4"]


def test_a_compaction_at_the_end_of_the_path_keeps_its_range() -> None:
    assert context_texts(user("1"), user("2"), compaction("c", "2")) == ["summary c", "2"]


def test_a_compaction_at_the_root_has_nothing_to_keep() -> None:
    assert context_texts(compaction("c", "1"), user("2")) == ["summary c", "2"]


def test_a_bound_on_an_entry_without_a_message_keeps_what_follows_it() -> None:
    assert context_texts(user("1"), Label("l", target_id="1"), user("2"), compaction("c", "l")) == ["summary c", "2"]


def test_an_older_compaction_inside_the_kept_range_adds_no_message() -> None:
    path = [
        user("1"),
        compaction("old", "1", system_message=System(content="old prompt")),
        user("2"),
        compaction("new", "1"),
    ]
    assert context_texts(*path) == ["summary new", "1", "2"]


def test_system_messages_in_the_kept_range_are_left_out() -> None:
    path = [system("s1"), user("1"), system("s2"), user("2"), compaction("c", "s1"), system("s3"), user("3")]
    assert context_texts(*path) == ["summary c", "1", "2", "s3", "3"]


def test_the_system_checkpoint_of_a_compaction_comes_first() -> None:
    context = build(user("1"), compaction("c", "1", system_message=System(content="prompt")), user("2"))
    assert [message_text(message) for message in context.messages] == ["prompt", "summary c", "1", "2"]
    assert isinstance(context.messages[0], System)
    assert context.sources == ("c", "c", "1", "2")


def test_the_checkpoint_stays_although_kept_system_messages_are_left_out() -> None:
    path = [system("s"), user("1"), compaction("c", "s", system_message=System(content="prompt"))]
    assert context_texts(*path) == ["prompt", "summary c", "1"]


def test_a_reset_starts_an_empty_context() -> None:
    assert context_texts(user("1"), ResetBoundary("r"), user("2")) == ["2"]


def test_the_last_of_several_resets_counts() -> None:
    assert context_texts(user("1"), ResetBoundary("r"), user("2"), ResetBoundary("r2"), user("3")) == ["3"]


def test_a_reset_at_the_end_leaves_no_messages() -> None:
    assert context_texts(user("1"), ResetBoundary("r")) == []


def test_a_reset_after_a_compaction_leaves_out_its_summary_too() -> None:
    assert context_texts(user("1"), compaction("c", "1"), user("2"), ResetBoundary("r"), user("3")) == ["3"]


def test_a_reset_before_a_compaction_has_no_effect() -> None:
    assert context_texts(user("1"), ResetBoundary("r"), user("2"), compaction("c", "1"), user("3")) == [
        "summary c",
        "1",
        "2",
        "3",
    ]


def test_without_the_rule_a_reset_has_no_effect() -> None:
    assert context_texts(user("1"), ResetBoundary("r"), user("2"), rules=PI) == ["1", "2"]
    path = [user("1"), compaction("c", None), user("2"), ResetBoundary("r"), user("3")]
    assert context_texts(*path, rules=PI) == ["summary c", "2", "3"]


def test_a_reset_does_not_reset_the_state() -> None:
    path = [ThinkingLevelChange("t", thinking_level="high"), ResetBoundary("r"), user("1")]
    assert state(*path).thinking_level == "high"


# Edits


def test_an_edit_replaces_the_content_of_a_message() -> None:
    context = build(user("1"), user("2"), ContextEdit("e", target_id="1", replacement=Replacement("short")))
    assert context.messages == (User(content="short"), User(content="2"))
    assert context.sources == ("1", "2")


@pytest.mark.parametrize(
    "message", [Assistant(content=(Text("long"),), model="m"), ToolResult("long", tool_call_id="t")]
)
def test_a_replacement_text_for_assistant_or_tool_content_becomes_a_block(message: Message) -> None:
    (found,) = build(
        MessageEntry("1", message=message), ContextEdit("e", target_id="1", replacement=Replacement("short"))
    ).messages
    assert isinstance(found, Assistant | ToolResult)
    assert found.content == (Text("short"),)


def test_an_edit_changes_nothing_but_the_content() -> None:
    message = ToolResult(5, tool_call_id="t", tool_name="read", content="long", is_error=True)
    (found,) = build(
        MessageEntry("1", message=message), ContextEdit("e", target_id="1", replacement=Replacement((Text("short"),)))
    ).messages
    assert found == ToolResult(5, tool_call_id="t", tool_name="read", content=(Text("short"),), is_error=True)


def test_an_edit_can_replace_content_by_blocks() -> None:
    blocks = (Text("a"), Image("AAAA"))
    (found,) = build(user("1"), ContextEdit("e", target_id="1", replacement=Replacement(blocks))).messages
    assert found == User(content=blocks)


def test_an_edit_without_replacement_leaves_the_message_out() -> None:
    context = build(user("1"), user("2"), ContextEdit("e", target_id="1"))
    assert context.sources == ("2",)
    assert context.path == ("1", "2", "e")


def test_the_last_edit_of_a_message_wins() -> None:
    first, second = Replacement("first"), Replacement("second")
    edits = [ContextEdit("e1", target_id="1", replacement=first), ContextEdit("e2", target_id="1", replacement=second)]
    assert context_texts(user("1"), *edits) == ["second"]
    assert context_texts(user("1"), *edits, ContextEdit("e3", target_id="1")) == []
    assert context_texts(user("1"), ContextEdit("e0", target_id="1"), *edits) == ["second"]


def test_an_edit_of_a_custom_message_counts() -> None:
    path = [CustomMessage("1", content="long"), ContextEdit("e", target_id="1", replacement=Replacement("short"))]
    assert context_texts(*path) == ["short"]


@pytest.mark.parametrize(
    "target",
    [
        system("1"),
        MessageEntry("1", message=BashExecution(command="ls", output="a")),
        BranchSummary("1", summary="left"),
        compaction("1", None),
    ],
)
def test_anything_else_can_be_left_out_and_cannot_be_replaced_as_in_pi(target: Entry) -> None:
    assert build(target, ContextEdit("e", target_id="1", replacement=None)).messages == ()
    edited = build(target, ContextEdit("e", target_id="1", replacement=Replacement("other")))
    assert edited.messages == build(target).messages


def test_an_edit_of_a_missing_entry_has_no_effect() -> None:
    assert context_texts(user("1"), ContextEdit("e", target_id="2")) == ["1"]


def test_an_edit_before_the_kept_range_has_no_effect() -> None:
    path = [user("1"), ContextEdit("e", target_id="2"), user("2"), compaction("c", "2")]
    assert context_texts(*path) == ["summary c", "2"]


def test_an_edit_in_the_kept_range_counts() -> None:
    path = [user("1"), user("2"), ContextEdit("e", target_id="2"), user("3"), compaction("c", "2")]
    assert context_texts(*path) == ["summary c", "3"]


# Messages of other entries


def test_a_branch_summary_is_a_message() -> None:
    (found,) = build(BranchSummary("1", timestamp=TIME, from_id="9", summary="left")).messages
    assert found == BranchSummaryText(1771236001000, summary="left", from_id="9")


def test_an_empty_branch_summary_adds_no_message() -> None:
    assert context_texts(BranchSummary("1", from_id="9"), user("2")) == ["2"]


def test_a_custom_message_is_a_message() -> None:
    entry = CustomMessage("1", timestamp=TIME, custom_type="note", content="hi", display=False)
    (found,) = build(entry).messages
    assert found == CustomText(1771236001000, custom_type="note", content="hi", display=False)


def test_a_compaction_summary_has_the_time_of_its_entry() -> None:
    (found,) = build(Compaction("1", timestamp=TIME, summary="S")).messages
    assert found.timestamp == 1771236001000


def test_every_message_of_a_path_can_be_read_as_recorded() -> None:
    path = path_of(
        user("1"),
        compaction("c", None),
        ResetBoundary("r"),
        user("2"),
        ContextEdit("e", target_id="2"),
        BranchSummary("b", summary="left"),
        CustomMessage("m", content="note"),
    )
    assert [message_text(message) for message in path_messages(path)] == ["1", "summary c", "2", "left", "note"]


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00Z", "0000-00-00", "1771236001000"])
def test_an_invalid_time_is_none(text: str) -> None:
    assert milliseconds(text) is None


@examples(300)
@given(st.integers(0, 4_000_000_000_000))
def test_times_are_exact_to_the_millisecond(when: int) -> None:
    text = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=when)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    assert milliseconds(text) == when


# State


def test_the_state_of_a_path_that_sets_nothing() -> None:
    assert state(user("1")) == State("off", None, {}, "none", None, ())


def test_the_last_thinking_level_counts() -> None:
    levels = [ThinkingLevelChange("1", thinking_level="low"), ThinkingLevelChange("2", thinking_level="high")]
    assert state(*levels).thinking_level == "high"


def test_a_thinking_level_change_without_a_level_follows_the_rules() -> None:
    path = [ThinkingLevelChange("1", thinking_level="high"), ThinkingLevelChange("2")]
    assert state(*path, rules=NATIVE).thinking_level == "off"
    assert state(*path, rules=PI).thinking_level is None


def test_state_is_read_from_the_complete_path_even_before_a_compaction() -> None:
    path = [
        ThinkingLevelChange("1", thinking_level="high"),
        ModelChange("2", provider="p", model_id="m"),
        ModeChange("3", mode="plan", data={"file": "x"}),
        RuleInjection("4", injected_rules=("r",)),
        compaction("c", None),
        user("5"),
    ]
    assert state(*path) == State("high", ModelRef("p", "m"), {"default": "p/m"}, "plan", {"file": "x"}, ("r",))


CHANGE = ModelChange("change", provider="p", model_id="changed")


def test_an_explicit_model_wins_over_later_assistant_messages() -> None:
    assert state(CHANGE, assistant("1", "answered", "q")).model == ModelRef("p", "changed")


def test_under_the_other_rule_the_later_of_change_and_answer_counts() -> None:
    answer = assistant("1", "answered", "q")
    assert state(CHANGE, answer, rules=PI).model == ModelRef("q", "answered")
    assert state(answer, CHANGE, rules=PI).model == ModelRef("p", "changed")
    assert state(CHANGE, answer, rules=PI).models == {"default": "q/answered"}


@pytest.mark.parametrize("rules", [NATIVE, PI])
def test_without_a_change_the_last_answer_names_the_model(rules: Rules) -> None:
    found = state(assistant("1", "first", "p"), assistant("2", "second", "p"), user("3"), rules=rules)
    assert found.model == ModelRef("p", "second")
    assert found.models == {"default": "p/second"}


def test_an_answer_without_a_model_is_skipped() -> None:
    assert state(assistant("1", "named", "p"), assistant("2")).model == ModelRef("p", "named")


def test_the_model_is_found_far_before_the_end_and_before_a_compaction() -> None:
    path = [assistant("1", "m", "p"), *(user(f"u{at}") for at in range(100)), compaction("c", None)]
    assert state(*path).model == ModelRef("p", "m")


def test_an_answer_without_provider_names_its_model_alone() -> None:
    found = state(assistant("1", "m"))
    assert (found.model, found.models) == (ModelRef(None, "m"), {"default": "m"})


def test_a_model_in_the_other_form_is_read() -> None:
    found = state(ModelChange("1", model="openrouter/meta/llama"))
    assert (found.model, found.models) == (ModelRef("openrouter", "meta/llama"), {"default": "openrouter/meta/llama"})


def test_a_model_without_provider_is_read() -> None:
    assert state(ModelChange("1", model="llama")).model == ModelRef(None, "llama")
    assert state(ModelChange("1", model_id="llama")).models == {"default": "llama"}


def test_each_role_has_its_model_and_only_the_default_is_the_model() -> None:
    found = state(CHANGE, ModelChange("2", model="z/small", role="smol"), ModelChange("3", model="z/tiny", role="smol"))
    assert found.model == ModelRef("p", "changed")
    assert found.models == {"default": "p/changed", "smol": "z/tiny"}


def test_a_model_for_another_role_does_not_stop_the_inference() -> None:
    found = state(ModelChange("1", model="z/small", role="smol"), assistant("2", "m", "p"))
    assert (found.model, found.models) == (ModelRef("p", "m"), {"smol": "z/small", "default": "p/m"})


def test_a_change_that_names_no_model_changes_nothing() -> None:
    assert state(CHANGE, ModelChange("2"), ModelChange("3", provider="p")).model == ModelRef("p", "changed")


def test_the_last_mode_counts_with_its_data() -> None:
    path = [ModeChange("1", mode="plan", data={"a": 1}), ModeChange("2", mode="none")]
    assert (state(*path[:1]).mode, state(*path[:1]).mode_data) == ("plan", {"a": 1})
    assert (state(*path).mode, state(*path).mode_data) == ("none", None)


def test_rules_are_listed_once_in_the_order_they_came() -> None:
    path = [RuleInjection("1", injected_rules=("b", "a")), RuleInjection("2", injected_rules=("c", "b", "c"))]
    assert state(*path).rules == ("b", "a", "c")


# Lazy loading


def test_only_what_counts_is_loaded() -> None:
    loaded: list[int] = []
    path = path_of(
        *(user(f"old{at}") for at in range(50)),  # 0 to 49: before the compaction, never read
        CHANGE,  # 50: state
        Custom("x"),  # 51: never in a context
        user("kept"),  # 52
        Unknown("y"),  # 53
        compaction("c", "kept"),  # 54
        Label("l", target_id="kept"),  # 55
        user("new"),  # 56
        loaded=loaded,
    )
    build_context(path, NATIVE)
    assert set(loaded) == {50, 52, 54, 56}


def test_nothing_before_a_reset_is_loaded_but_state() -> None:
    loaded: list[int] = []
    old = [user("1"), compaction("c", "1"), ThinkingLevelChange("t"), CHANGE]
    build_context(path_of(*old, ResetBoundary("r"), user("2"), loaded=loaded), NATIVE)
    assert set(loaded) == {2, 3, 5}


def test_the_model_is_looked_for_no_further_back_than_needed() -> None:
    loaded: list[int] = []
    path = [*(user(f"old{at}") for at in range(500)), compaction("c", None), assistant("a", "m", "p")]
    build_context(path_of(*path, loaded=loaded), NATIVE)
    assert min(loaded) >= 400


# Against another implementation


def naive_messages(entries: Sequence[Entry], rules: Rules) -> list[tuple[str, Message]]:
    """The expected messages of a context: a direct implementation of the format's description."""
    entries = list(entries)
    opening: Compaction | None = None
    for entry in entries:
        if isinstance(entry, Compaction):
            opening = entry
        elif isinstance(entry, ResetBoundary) and rules.resets:
            opening = None
    if rules.resets and opening is None:
        resets = [at for at, entry in enumerate(entries) if isinstance(entry, ResetBoundary)]
        selected = entries[resets[-1] + 1 :] if resets else entries
    elif opening is None:
        selected = entries
    else:
        at = next(at for at, entry in enumerate(entries) if entry is opening)
        before = entries[:at]
        while before and before[0].id != opening.first_kept_entry_id:
            before.pop(0)
        kept = [
            entry for entry in before if not (isinstance(entry, MessageEntry) and isinstance(entry.message, System))
        ]
        selected = [opening, *kept, *entries[at + 1 :]]
    messages: list[tuple[str, Message]] = []
    for entry in selected:
        if isinstance(entry, MessageEntry):
            messages.append((entry.id, entry.message))
        elif isinstance(entry, CustomMessage):
            messages.append((entry.id, CustomText(content=entry.content, custom_type=entry.custom_type)))
        elif isinstance(entry, BranchSummary) and entry.summary != "":
            messages.append((entry.id, BranchSummaryText(summary=entry.summary, from_id=entry.from_id)))
        elif isinstance(entry, Compaction) and entry is opening:
            if entry.system_message is not None:
                messages.append((entry.id, entry.system_message))
            messages.append((entry.id, CompactionSummary(summary=entry.summary)))
    for edit in (entry for entry in selected if isinstance(entry, ContextEdit)):
        last = [each for each in selected if isinstance(each, ContextEdit) and each.target_id == edit.target_id][-1]
        if last is edit:
            messages = [pair for source, message in messages for pair in naive_edit(source, message, edit)]
    return messages


def naive_edit(source: str, message: Message, edit: ContextEdit) -> list[tuple[str, Message]]:
    if source != edit.target_id:
        return [(source, message)]
    if edit.replacement is None:
        return []
    if message.role not in ("user", "assistant", "toolResult", "custom"):
        return [(source, message)]
    content = edit.replacement.content
    if isinstance(message, Assistant):
        blocks = (Text(content),) if isinstance(content, str) else content
        return [(source, Assistant(content=blocks, model=message.model, provider=message.provider))]
    if isinstance(message, CustomText):
        return [(source, CustomText(content=content, custom_type=message.custom_type))]
    return [(source, User(content=content))]


def naive_state(entries: Sequence[Entry], rules: Rules) -> State:
    thinking: str | None = "off"
    mode, data = "none", None
    injected: list[str] = []
    models: dict[str, str] = {}
    model: ModelRef | None = None
    is_explicit = False
    for entry in entries:
        if isinstance(entry, ThinkingLevelChange):
            thinking = rules.default_thinking if entry.thinking_level is None else entry.thinking_level
        elif isinstance(entry, ModeChange):
            mode, data = entry.mode, entry.data
        elif isinstance(entry, RuleInjection):
            injected += [rule for rule in dict.fromkeys(entry.injected_rules) if rule not in injected]
        elif isinstance(entry, ModelChange) and entry.model is not None:
            models[entry.role or "default"] = entry.model
            if entry.role in (None, "default"):
                model, is_explicit = ModelRef(*entry.model.split("/")), True
        elif (
            isinstance(entry, MessageEntry)
            and isinstance(entry.message, Assistant)
            and entry.message.model
            and not (rules.explicit_model_wins and is_explicit)
        ):
            model = ModelRef(entry.message.provider, entry.message.model)
            models["default"] = f"{model.provider}/{model.model_id}"
    return State(thinking, model, models, mode, data, tuple(injected))


near = st.sampled_from([f"n{at}" for at in range(12)])
replacements = st.none() | st.builds(Replacement, st.sampled_from(["short", (Text("block"),), (), ""]))
models = st.sampled_from(["p/one", "p/two", "q/three"])
entry_shapes = st.one_of(
    st.just(MessageEntry(message=User(content="u"))),
    st.just(MessageEntry(message=System(content="s"))),
    st.builds(
        lambda model: MessageEntry(message=Assistant(content=(Text("a"),), provider="r", model=model)),
        st.sampled_from([None, "x", "y"]),
    ),
    st.builds(
        lambda kept, prompt: Compaction(summary="S", first_kept_entry_id=kept, system_message=prompt),
        st.none() | near,
        st.none() | st.just(System(content="checkpoint")),
    ),
    st.just(ResetBoundary()),
    st.builds(lambda t, r: ContextEdit(target_id=t, replacement=r), near, replacements),
    st.builds(lambda s: BranchSummary(summary=s, from_id="b"), st.sampled_from(["", "left"])),
    st.just(CustomMessage(custom_type="c", content="note")),
    st.builds(lambda t: ThinkingLevelChange(thinking_level=t), st.sampled_from([None, "low", "high"])),
    st.builds(lambda m, r: ModelChange(model=m, role=r), models, st.sampled_from([None, "default", "smol"])),
    st.builds(lambda m: ModeChange(mode=m, data=[m]), st.sampled_from(["plan", "none"])),
    st.builds(lambda r: RuleInjection(injected_rules=tuple(r)), st.lists(st.sampled_from("abc"), max_size=4)),
    st.just(Unknown(kind="other")),
)


@st.composite
def paths(draw: st.DrawFn) -> list[Entry]:
    shapes = draw(st.lists(entry_shapes, max_size=12))
    fields = ("timestamp", "parent_id", "id")
    return [
        type(shape)(
            id=f"n{at}",
            **{name: getattr(shape, name) for name in shape.__struct_fields__ if name not in fields},
        )
        for at, shape in enumerate(shapes)
    ]


@examples(500)
@given(paths(), st.sampled_from([NATIVE, PI]))
def test_the_context_is_what_a_plain_reading_of_the_rules_gives(entries: list[Entry], rules: Rules) -> None:
    context = build(*entries, rules=rules)
    assert list(zip(context.sources, context.messages, strict=True)) == naive_messages(entries, rules)
    assert context.state == naive_state(entries, rules)
    assert list(context.path) == [entry.id for entry in entries]
