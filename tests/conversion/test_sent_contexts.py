"""Codex, Gemini CLI, OpenCode and Qwen Code send what the context of a converted session's source gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from acceptance.comparison import FILLER_TEXTS

import sessiontree
from sessiontree import Session
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.conversion.restatement import restate
from sessiontree.conversion.verify import first_difference
from sessiontree.core.jsonio import parse_object
from sessiontree.core.messages import Image, Thinking, message_blocks
from sessiontree.dialects.gemini.client import ANSWER_TO_SUMMARY, INTERRUPTED
from sessiontree.errors import ConversionError
from sessiontree.providers import render
from tests.builders import opened
from tests.conversion.conversations import PIXEL, assistant, call, result, text

TARGETS = ("codex", "gemini", "opencode", "qwen")
GROUPED = ("gemini", "opencode")
"""Agents whose messages have the results of their calls, and that have no resets."""
EVERY_AGENT = ("claude", "neovate", "omp", "pi", "native", *TARGETS)


def session_of(*entries: dict[str, Any], dialect: str = "pi") -> Session:
    session = sessiontree.create(cwd="/src/project", in_memory=True)
    for entry in entries:
        session.append(entry)
    return opened(b"".join(sessiontree.convert(session, dialect).lines), dialect)


def installed(session: Session, to: str, folder: Path) -> Session:
    """Convert a session as `sessiontree convert` does it, which compares the result with the session."""
    folder.mkdir(exist_ok=True)
    path = folder / ("session.json" if to == "opencode" else "session.jsonl")
    return carry_out(session, make_plan(session, Request(to, out=str(path))))


def sent(session: Session) -> list[str]:
    """What a provider receives: texts without white space around them, and ids for calls and results."""
    found: list[str] = []
    for message in render(session.context().messages, "anthropic").messages:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            match block["type"]:
                case "text" if block["text"].strip() not in FILLER_TEXTS:
                    found.append(block["text"].strip())
                case "tool_use":
                    found.append(f"call {block['id']}")
                case "tool_result":
                    words = "".join(part["text"] for part in block["content"] if part["type"] == "text")
                    found.append(f"result {block['tool_use_id']}: {words}")
    return found


def check_comes_back(source: Session, copy: Session) -> None:
    """Check that the entries of the source are all in the copy, and in a conversion of it."""
    assert first_difference(source, source.leaf, copy, all_branches=False) is None
    back = opened(b"".join(sessiontree.convert(copy, source.dialect.name).lines), source.dialect.name)
    assert first_difference(source, source.leaf, back, all_branches=False) is None
    assert sent(back) == sent(source)


@pytest.mark.parametrize("target", TARGETS)
def test_a_result_after_another_prompt_is_sent_after_its_call_and_stays_where_it_was(
    target: str, tmp_path: Path
) -> None:
    source = session_of(
        {"role": "user", "content": "Read it."},
        assistant(call("call_1", "read", {"path": "a"})),
        {"role": "user", "content": "And?"},
        result("call_1", "read", "the file"),
        assistant(text("Done.")),
    )
    copy = installed(source, target, tmp_path)
    assert sent(copy) == ["Read it.", "call call_1", "result call_1: the file", "And?", "Done."]
    check_comes_back(source, copy)


@pytest.mark.parametrize("role", ["custom", "hookMessage"])
@pytest.mark.parametrize("target", EVERY_AGENT)
def test_a_message_of_an_extension_is_sent(target: str, role: str, tmp_path: Path) -> None:
    note = {"role": role, "customType": "style", "content": "Mind the style.", "display": True}
    source = session_of(
        {"role": "user", "content": "Hello"},
        {"type": "message", "message": note},
        {"role": "user", "content": "More"},
        dialect="native",
    )
    copy = installed(source, target, tmp_path)
    assert sent(copy) == ["Hello", "Mind the style.", "More"]
    check_comes_back(source, copy)


@pytest.mark.parametrize("target", TARGETS)
def test_a_result_without_a_call_is_sent_as_a_text(target: str, tmp_path: Path) -> None:
    source = session_of(
        {"role": "user", "content": "Hello"}, result("call_gone", "read", "the file"), assistant(text("I see."))
    )
    copy = installed(source, target, tmp_path)
    assert sent(copy) == [
        "Hello",
        "The tool read was called; the call was not recorded. It returned:",
        "the file",
        "I see.",
    ]
    check_comes_back(source, copy)


@pytest.mark.parametrize("target", EVERY_AGENT)
def test_a_session_that_ends_with_an_answer_that_is_never_sent_is_converted_with_it(
    target: str, tmp_path: Path
) -> None:
    failed = {**assistant(text("I was about to")), "stopReason": "error", "errorMessage": "overloaded"}
    source = session_of({"role": "user", "content": "Hello"}, failed, dialect="omp")
    copy = installed(source, target, tmp_path)
    assert sent(source) == ["Hello"]
    assert sent(copy) == ["Hello"]
    check_comes_back(source, copy)


@pytest.mark.parametrize("target", [target for target in EVERY_AGENT if target not in GROUPED])
def test_a_session_with_nothing_but_answers_that_are_never_sent_is_converted_with_them(
    target: str, tmp_path: Path
) -> None:
    failed = {**assistant(text("half"), call("call_1", "read", {})), "stopReason": "error"}
    session = session_of(failed, result("call_1", "read", "lines"), dialect="omp")
    assert sent(session) == []
    copy = installed(session, target, tmp_path / "copy")
    assert sent(copy) == []
    check_comes_back(session, copy)


@pytest.mark.parametrize("target", GROUPED)
def test_a_session_without_messages_that_are_sent_is_refused_if_only_they_can_hold_data(
    target: str, tmp_path: Path
) -> None:
    failed = {**assistant(text("half")), "stopReason": "error"}
    with pytest.raises(ConversionError, match="the result would differ"):
        installed(session_of(failed, dialect="omp"), target, tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("summary", ["", " \n"])
@pytest.mark.parametrize("target", TARGETS)
def test_a_blank_summary_is_not_sent_and_nothing_before_it(target: str, summary: str, tmp_path: Path) -> None:
    source = session_of(
        {"role": "user", "content": "Before"},
        assistant(text("Yes.")),
        {"type": "compaction", "summary": summary, "tokensBefore": 1},
        {"role": "user", "content": "Hello"},
        assistant(text("Hi.")),
    )
    copy = installed(source, target, tmp_path)
    assert sent(copy) == ["Hello", "Hi."]
    check_comes_back(source, copy)


@pytest.mark.parametrize("target", TARGETS)
def test_a_system_message_is_not_sent_as_a_prompt_and_comes_back(target: str, tmp_path: Path) -> None:
    system = {"role": "system", "content": "Be brief."}
    source = session_of(system, {"role": "user", "content": "Hello"}, system, assistant(text("Hi.")), dialect="native")
    copy = installed(source, target, tmp_path)
    assert sent(copy) == ["Hello", "Hi."]
    check_comes_back(source, copy)


@pytest.mark.parametrize("target", TARGETS)
def test_a_message_of_an_extension_has_all_its_texts_and_images(target: str, tmp_path: Path) -> None:
    content = [text("One."), text("Two."), {"type": "image", "data": PIXEL, "mimeType": "image/png"}]
    note = {"type": "custom_message", "customType": "note", "content": content, "display": True}
    source = session_of({"role": "user", "content": "Hello"}, note, assistant(text("Hi.")))
    copy = installed(source, target, tmp_path)
    assert sent(copy) == ["Hello", "One.", "Two.", "Hi."]
    images = [block for message in copy.context().messages for block in message_blocks(message)]
    assert [block.data for block in images if isinstance(block, Image)] == [PIXEL]
    check_comes_back(source, copy)


@pytest.mark.parametrize("target", GROUPED)
def test_an_entry_that_is_not_sent_stays_between_a_call_and_its_result(target: str, tmp_path: Path) -> None:
    source = session_of(
        {"role": "user", "content": "Read both."},
        assistant(call("call_1", "read", {"path": "a"}), call("call_2", "read", {"path": "b"})),
        result("call_1", "read", "A"),
        {"role": "system", "content": "Be brief."},
        result("call_2", "read", "B"),
        dialect="native",
    )
    copy = installed(source, target, tmp_path)
    assert [line for line in sent(copy) if "brief" in line] == []
    check_comes_back(source, copy)


def test_qwen_code_gets_no_answer_of_its_own_before_the_answer_after_a_summary(tmp_path: Path) -> None:
    source = session_of(
        {"role": "user", "content": "Before"},
        {"type": "compaction", "summary": "What came before.", "tokensBefore": 1},
        assistant(text("Hi.")),
    )
    copy = installed(source, "qwen", tmp_path)
    first, *rest = sent(copy)
    assert first.startswith("What came before.")
    assert rest == ["Hi."]


def test_qwen_code_gets_no_answer_without_content_because_it_would_drop_those_next_to_it(tmp_path: Path) -> None:
    source = session_of({"role": "user", "content": "Hello"}, assistant(), assistant(text(""), text("Hi.")))
    copy = installed(source, "qwen", tmp_path)
    records = map(parse_object, Path(copy.location).read_bytes().splitlines())
    answers = [record["message"]["parts"] for record in records if record["type"] == "assistant"]
    assert answers == [[{"text": "Hi."}]]
    assert sent(copy) == ["Hello", "Hi."]
    check_comes_back(source, copy)


@pytest.mark.parametrize("target", TARGETS)
def test_an_edit_of_a_message_that_is_never_sent_does_not_make_it_sent(target: str, tmp_path: Path) -> None:
    plan = {"type": "custom_message", "customType": "vibe-mode-context", "content": "the plan", "display": True}
    source = sessiontree.create(cwd="/src/project", in_memory=True)
    source.append("user", "Hello")
    unsent = source.append(plan)
    source.append({"type": "context_edit", "targetId": unsent.id, "replacement": {"content": "another plan"}})
    source.append(assistant(text("Hi.")))
    source = opened(b"".join(sessiontree.convert(source, "omp").lines), "omp")
    assert sent(source) == ["Hello", "Hi."]
    assert sent(installed(source, target, tmp_path)) == ["Hello", "Hi."]


@pytest.mark.parametrize("target", TARGETS)
def test_a_second_compaction_may_keep_messages_from_before_the_first_one(target: str, tmp_path: Path) -> None:
    source = sessiontree.create(cwd="/src/project", in_memory=True)
    first = source.append("user", "One")
    second = source.append(assistant(text("Two")))
    for kept, summary in ((second, "The first summary."), (first, "The second summary.")):
        source.append({"type": "compaction", "summary": summary, "firstKeptEntryId": kept.id, "tokensBefore": 1})
    source.append(assistant(text("Three")))
    source = opened(b"".join(sessiontree.convert(source, "pi").lines), "pi")
    copy = installed(source, target, tmp_path)
    assert [words for words in ("One", "Two", "Three") if words in sent(copy)] == ["One", "Two", "Three"]
    assert "The second summary." in " ".join(sent(copy))
    assert "The first summary." not in " ".join(sent(copy))
    check_comes_back(source, copy)


@pytest.mark.parametrize("target", TARGETS)
def test_a_summary_comes_back_without_the_words_of_another_agent(target: str, tmp_path: Path) -> None:
    source = session_of(
        {"role": "user", "content": "Before"},
        {"type": "compaction", "summary": "What came before.", "tokensBefore": 1},
        {"role": "user", "content": "Hello"},
        assistant(text("Hi.")),
    )
    check_comes_back(source, installed(source, target, tmp_path))


@pytest.mark.parametrize("target", TARGETS)
def test_prompts_after_the_summary_of_a_branch_come_back_with_it(target: str, tmp_path: Path) -> None:
    source = session_of(
        {"type": "branch_summary", "summary": "Another way.", "fromId": "root"},
        {"role": "user", "content": "Hello"},
        result("call_gone", "read", "the file"),
        assistant(text("I see.")),
    )
    copy = installed(source, target, tmp_path)
    check_comes_back(source, copy)
    across = installed(copy, "omp", tmp_path / "omp")
    assert sent(across)[1:] == sent(source)[1:]


@pytest.mark.parametrize("target", TARGETS)
def test_a_compaction_may_keep_everything_from_an_answer_without_content_on(target: str, tmp_path: Path) -> None:
    source = sessiontree.create(cwd="/src/project", in_memory=True)
    source.append("user", "One")
    empty = source.append(assistant())
    source.append("user", "Two")
    source.append({"type": "compaction", "summary": "So far.", "firstKeptEntryId": empty.id, "tokensBefore": 1})
    source.append(assistant(text("Three")))
    source = opened(b"".join(sessiontree.convert(source, "pi").lines), "pi")
    copy = installed(source, target, tmp_path)
    assert [words for words in sent(copy) if words in ("One", "Two", "Three")] == ["Two", "Three"]
    check_comes_back(source, copy)


def thinking_in(session: Session) -> list[str]:
    blocks = (block for message in session.context().messages for block in message_blocks(message))
    return [block.thinking for block in blocks if isinstance(block, Thinking)]


def thought(words: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words}


@pytest.mark.parametrize("source", ["claude", "codex", "gemini"])
def test_thinking_that_is_not_sent_is_not_sent_by_opencode_either_and_comes_back(source: str, tmp_path: Path) -> None:
    # OpenCode sends the thinking of another model as text.
    session = session_of(
        {"role": "user", "content": "Hello"},
        assistant(thought("A greeting."), text("Hi.")),
        {"role": "user", "content": "Read it."},
        assistant(thought("Only thinking.")),
        assistant(thought("I need the file."), call("call_1", "read", {"path": "a"})),
        result("call_1", "read", "the file"),
        assistant(text("Done.")),
        dialect=source,
    )
    assert thinking_in(session) == []
    copy = installed(session, "opencode", tmp_path)
    assert thinking_in(copy) == []
    assert sent(copy) == sent(session)
    check_comes_back(session, copy)
    assert thinking_in(installed(copy, "pi", tmp_path / "pi")) == ["A greeting.", "Only thinking.", "I need the file."]
    again = installed(copy, "opencode", tmp_path / "again")
    assert thinking_in(again) == []
    check_comes_back(session, again)


@pytest.mark.parametrize("source", ["claude", "codex", "gemini"])
def test_opencode_sends_no_thinking_of_a_message_that_a_compaction_kept(source: str, tmp_path: Path) -> None:
    origin = sessiontree.create(cwd="/src/project", in_memory=True)
    origin.append("user", "Hello")
    kept = origin.append(assistant(thought("A greeting."), text("Hi.")))
    origin.append({"type": "compaction", "summary": "They met.", "firstKeptEntryId": kept.id, "tokensBefore": 1})
    origin.append("user", "And now?")
    session = opened(b"".join(sessiontree.convert(origin, source).lines), source)
    assert thinking_in(session) == []
    copy = installed(session, "opencode", tmp_path)
    assert thinking_in(copy) == []
    check_comes_back(session, copy)


def test_opencode_sends_thinking_that_a_compaction_of_the_source_kept(tmp_path: Path) -> None:
    origin = sessiontree.create(cwd="/src/project", in_memory=True)
    kept = origin.append(assistant(thought("Only thinking.")))
    origin.append({"type": "compaction", "summary": "They met.", "firstKeptEntryId": kept.id, "tokensBefore": 1})
    origin.append("user", "And now?")
    session = opened(b"".join(sessiontree.convert(origin, "qwen").lines), "qwen")
    assert thinking_in(session) == ["Only thinking."]
    copy = installed(session, "opencode", tmp_path)
    assert thinking_in(copy) == ["Only thinking."]
    check_comes_back(session, copy)


def test_opencode_shows_thinking_that_is_sent_and_thinking_before_a_compaction(tmp_path: Path) -> None:
    session = session_of(
        {"role": "user", "content": "Hello"},
        assistant(thought("A greeting."), text("Hi.")),
        {"role": "user", "content": "Go on."},
        {"type": "compaction", "summary": "They met.", "tokensBefore": 1},
        {"role": "user", "content": "And now?"},
        assistant(thought("What now?"), text("Nothing.")),
    )
    assert thinking_in(session) == ["What now?"]
    copy = installed(session, "opencode", tmp_path)
    assert thinking_in(copy) == ["What now?"]
    document = parse_object((tmp_path / "session.json").read_bytes())
    parts = [part for message in document["messages"] for part in message["parts"]]
    assert [part["text"] for part in parts if part["type"] == "reasoning"] == ["A greeting.", "What now?"]


def raw_texts(session: Session) -> list[str]:
    return [message.text for message in session.context().messages]


def interrupted_in_gemini() -> Session:
    """A session of Gemini CLI that ends with a result, after a summary."""
    return session_of(
        {"role": "user", "content": "Hello"},
        {"type": "compaction", "summary": "They met.", "tokensBefore": 1},
        assistant(text("Reading."), call("call_1", "read", {"path": "a"})),
        result("call_1", "read", "the file"),
        dialect="gemini",
    )


@pytest.mark.parametrize("target", [agent for agent in EVERY_AGENT if agent not in ("gemini", "qwen")])
def test_words_that_gemini_cli_inserts_are_not_sent_by_another_agent(target: str, tmp_path: Path) -> None:
    source = interrupted_in_gemini()
    inserted = (ANSWER_TO_SUMMARY, INTERRUPTED)
    assert all(any(words in text for text in raw_texts(source)) for words in inserted)
    copy = installed(source, target, tmp_path)
    assert not any(words in text for text in raw_texts(copy) for words in inserted)
    assert sent(copy)[-3:] == ["Reading.", "call call_1", "result call_1: the file"]
    check_comes_back(source, copy)


def test_words_that_a_client_inserts_are_not_restated() -> None:
    source = interrupted_in_gemini()
    entries = restate(source.context(), {}, is_inserted=source.dialect.client.inserts)
    contents = [entry.fields["message"]["content"] for entry in entries if entry.kind == "message"]
    words = [block.get("text") for content in contents for block in content if block["type"] != "toolCall"]
    assert words[1:] == ["Reading.", "the file"]
