"""Neovate: which messages 0.14, 0.17 and 0.28 loaded from each file of the corpus, and each rule on its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sessiontree.core.context import ModelRef
from sessiontree.core.entries import Config, ConfigChange, FileSnapshot, ForkOrigin, SessionInfo, Unknown
from sessiontree.core.messages import (
    Assistant,
    Image,
    Message,
    OtherBlock,
    OtherMessage,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
    message_text,
    tool_calls,
)
from sessiontree.dialects.contract import AS_CLIENT, ReadOptions
from sessiontree.dialects.neovate import (
    COMPACTION_MARK,
    INTERRUPTION,
    NEOVATE,
    file_history_path,
    project_folder_name,
    tool_output_folder,
)
from sessiontree.dialects.omp import OMP
from sessiontree.dialects.pi import PI
from sessiontree.errors import NotASessionError
from sessiontree.session.open import open_store
from sessiontree.session.session import Session
from sessiontree.sources.detect import detect
from sessiontree.stores.memory import MemoryStore
from sessiontree.testing.dialects import check_dialect
from tests.builders import NOWHERE, header, json_line, message_line

FOLDER = Path(__file__).parents[1] / "corpus" / "neovate"
EXPECTED: dict[str, dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text())
FILES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))
LOADED_BY_014 = [name for name in FILES if isinstance(EXPECTED[name]["0.14.0"], list)]
REFUSED = [name for name in FILES if name not in LOADED_BY_014]
LOSING_028 = [name for name in LOADED_BY_014 if EXPECTED[name]["0.28.2"] != EXPECTED[name]["0.14.0"]]

TIME = "2026-01-01T00:00:00.000Z"
RECOVERED = ReadOptions(recovered=True)
SNAPSHOT = json_line({"type": "snapshot", "messageId": "b", "timestamp": TIME, "trackedFileBackups": {}})


def read(name: str) -> bytes:
    return (FOLDER / f"{name}.jsonl").read_bytes()


def opened(*lines: bytes, read_options: ReadOptions = AS_CLIENT, location: str = "/p/abcd1234.jsonl") -> Session:
    store = MemoryStore(b"".join(lines), location=location)
    return open_store(store, root=NOWHERE, dialect="neovate", read_options=read_options)


def message(uuid: str, parent: str | None, content: Any = None, role: str = "user", **fields: Any) -> bytes:
    body = uuid if content is None else content
    common = {"parentUuid": parent, "uuid": uuid, "role": role, "content": body}
    return json_line({**common, **fields, "type": "message", "timestamp": TIME, "sessionId": "abcd1234"})


def answer(uuid: str, parent: str | None, content: Any = None, **fields: Any) -> bytes:
    return message(uuid, parent, content, "assistant", text="", model="p/m", **fields)


def call(id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "read", "input": {"file_path": "a"}}


def outcome(id: str, words: str = "done") -> dict[str, Any]:
    return {"type": "tool-result", "toolCallId": id, "toolName": "read", "input": {}, "result": {"llmContent": words}}


def compaction(uuid: str, summary: str = "summary") -> bytes:
    return message(uuid, None, [{"type": "text", "text": summary}], uiContent=COMPACTION_MARK)


def config(**fields: Any) -> bytes:
    return json_line({"type": "config", "config": fields})


def title(words: str) -> bytes:
    return json_line({"type": "custom-title", "customTitle": words, "sessionId": "abcd1234"})


def texts(session: Session) -> list[str]:
    return [message_text(each) for each in session.context().messages]


def only(*lines: bytes) -> Message:
    (found,) = opened(*lines).context().messages
    return found


# The corpus


def test_the_corpus_is_complete() -> None:
    assert sorted(EXPECTED) == FILES
    assert REFUSED == ["cycle", "spaces_line"]
    assert LOSING_028 == ["old_tool_result", "partial_two_tools", "unmatched_middle"]


@pytest.mark.parametrize("version", ["0.14.0", "0.17.1"])
@pytest.mark.parametrize("name", LOADED_BY_014)
def test_the_path_and_the_messages_are_those_that_neovate_loads(name: str, version: str) -> None:
    session = opened(read(name))
    assert session.path_ids() == EXPECTED[name][version]
    assert list(session.context().sources) == EXPECTED[name][version]


@pytest.mark.parametrize("name", [name for name in LOADED_BY_014 if name not in LOSING_028])
def test_the_path_is_that_of_0_28_where_it_loses_nothing(name: str) -> None:
    assert opened(read(name)).path_ids() == EXPECTED[name]["0.28.2"]


@pytest.mark.parametrize("name", LOSING_028)
def test_assistants_with_unanswered_calls_that_0_28_drops_are_kept(name: str) -> None:
    session = opened(read(name))
    kept = set(session.path_ids()) - set(EXPECTED[name]["0.28.2"])
    assert kept == {"b"}
    assert all(tool_calls(found) for found in [session.context().messages[1]])


def test_a_cycle_that_hangs_neovate_is_cut_where_it_starts() -> None:
    session = opened(read("cycle"))
    assert session.path_ids() == ["a", "b"]
    assert texts(session) == ["msg a", "msg b"]
    assert [problem.kind for problem in session.problems] == ["cycle"]


def test_a_line_of_spaces_that_neovate_rejects_is_skipped() -> None:
    session = opened(read("spaces_line"))
    assert session.path_ids() == ["a", "b"]
    assert [problem.kind for problem in session.problems] == ["blank-line"]


@pytest.mark.parametrize("damage", [b'{"type":"message","uuid":"c","par', b"null\n", b"\xef\xbb\xbf\n", b"[1]\n"])
def test_a_bad_line_that_neovate_rejects_loses_nothing_else(damage: bytes) -> None:
    session = opened(message("a", None), message("b", "a"), damage)
    assert session.path_ids() == ["a", "b"]
    assert session.problems != []


@pytest.mark.parametrize("name", [name for name in FILES if name != "empty"])
def test_every_file_is_detected(name: str) -> None:
    assert detect(read(name), name).name == "neovate"
    assert NEOVATE.recognize(read(name)) == 60


def test_the_contract_holds_on_the_corpus() -> None:
    lines = [message("a", None), SNAPSHOT, message("b", None), compaction("c"), answer("d", None), title("T")]
    samples = [read(name) for name in FILES if name != "empty"]
    check_dialect(NEOVATE, [*samples, b"".join(lines), config(summary="x") + b"".join(lines)], cuts=40)


# Detection


def test_files_of_other_clients_are_not_recognized() -> None:
    claude = json_line({"type": "user", "uuid": "a", "parentUuid": None, "message": {"role": "user"}})
    assert NEOVATE.recognize(claude) == 0
    assert NEOVATE.recognize(header() + message_line("a")) == 0
    assert NEOVATE.recognize(message_line("a")) == 0
    native = {"type": "config", "id": "a", "parentId": None, "timestamp": TIME, "config": {}}
    assert NEOVATE.recognize(json_line(native)) == 0


def test_a_config_line_alone_is_enough() -> None:
    assert NEOVATE.recognize(config(approvalTools=[])) == 60
    assert max(PI.recognize(config()), OMP.recognize(config())) == 0


@pytest.mark.parametrize("line", [config(pastedTextMap={"a": "x" * 1000}), message("a", None, "x" * 1000)])
def test_a_first_line_longer_than_the_head_is_recognized_by_its_start(line: bytes) -> None:
    assert NEOVATE.recognize(line[:200]) == 60


def test_what_is_not_a_session_is_refused() -> None:
    with pytest.raises(NotASessionError):
        opened(b"just some words\n")


def test_a_session_can_be_continued() -> None:
    session = opened(message("a", None, "one"))
    session.append("user", "more")
    assert texts(session) == ["one", "more"]
    assert session.problems == []


# Leaf and path


@pytest.mark.parametrize("after", [SNAPSHOT, title("T"), config(), json_line({"type": "new-kind", "uuid": "x"})])
def test_a_line_that_is_not_a_message_never_moves_the_leaf(after: bytes) -> None:
    session = opened(message("a", None), message("b", "a"), after)
    assert session.leaf == "b"
    assert session.path_ids() == ["a", "b"]
    assert len(session) == 3


def test_both_lines_of_a_uuid_that_occurs_twice_are_loaded() -> None:
    session = opened(message("a", None, "one"), message("a", None, "two"), message("b", "a"))
    assert texts(session) == ["one", "two", "b"]


def test_an_empty_parent_makes_a_root() -> None:
    assert opened(message("a", None), message("b", ""), message("c", "b")).path_ids() == ["b", "c"]


def test_a_missing_parent_field_makes_a_root() -> None:
    lines = [message("a", None), json_line({"type": "message", "uuid": "b", "role": "user", "content": "b"})]
    assert opened(*lines).path_ids() == ["b"]


def test_a_file_without_messages_is_before_its_first_one() -> None:
    session = opened(config(summary="T"))
    assert session.leaf is None
    assert session.context().messages == ()
    assert session.id == "abcd1234"


# Messages


def test_a_prompt_may_be_a_text_or_parts_and_hidden_parts_count() -> None:
    parts = [{"type": "text", "text": "see"}, {"type": "text", "text": "<system-reminder>", "hidden": True}]
    assert only(message("a", None, "words")) == User(1767225600000, "words")
    assert only(message("a", None, parts)) == User(1767225600000, (Text("see"), Text("<system-reminder>")))


@pytest.mark.parametrize(
    ("part", "image"),
    [
        ({"data": "data:image/png;base64,AAAA", "mimeType": "image/png"}, Image("AAAA", "image/png")),
        ({"data": "data:image/webp;base64,AAAA"}, Image("AAAA", "image/webp")),
        ({"data": "AAAA", "mimeType": "image/jpeg"}, Image("AAAA", "image/jpeg")),
        ({}, Image("", "image/png")),
    ],
)
def test_an_image_is_read_from_a_data_url_or_as_it_is(part: dict[str, Any], image: Image) -> None:
    found = only(message("a", None, [{"type": "image", **part}]))
    assert isinstance(found, User)
    assert found.content == (image,)


def test_an_answer_has_thinking_text_calls_model_and_usage() -> None:
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2}
    parts = [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "ok"}, call("1")]
    found = only(answer("a", None, parts, usage=usage))
    assert isinstance(found, Assistant)
    assert found.content == (Thinking("hm"), Text("ok"), ToolCall("1", "read", {"file_path": "a"}))
    assert (found.provider, found.model) == ("p", "m")
    assert found.usage == Usage(10, 5, 3, 2, 15)


def test_an_answer_that_is_a_text_is_that_text() -> None:
    assert message_text(only(message("a", None, "hi", "assistant", text="hi"))) == "hi"
    assert message_text(only(message("a", None, "", "assistant", text="hi"))) == "hi"


def test_a_model_without_a_provider_is_kept_unchanged() -> None:
    found = only(message("a", None, "hi", "assistant", model="gpt-x"))
    assert isinstance(found, Assistant)
    assert (found.provider, found.model) == (None, "gpt-x")


def test_the_model_of_the_state_is_that_of_the_last_answer() -> None:
    state = opened(answer("a", None, "x"), message("b", "a")).context().state
    assert state.model == ModelRef("p", "m")


def test_one_line_with_several_results_gives_one_message_each() -> None:
    error = {**outcome("2"), "result": {"llmContent": "no", "isError": True}}
    session = opened(answer("a", None, [call("1"), call("2")]), message("b", "a", [outcome("1"), error], "tool"))
    _, first, second = session.context().messages
    assert first == ToolResult(1767225600000, "1", "read", "done")
    assert second == ToolResult(1767225600000, "2", "read", "no", is_error=True)
    assert session.context().sources == ("a", "b", "b")


def test_results_of_the_old_form_become_real_pairs() -> None:
    session = opened(read("old_tool_result"))
    _, asked, given, _ = session.context().messages
    assert isinstance(given, ToolResult)
    assert [found.id for found in tool_calls(asked)] == [given.tool_call_id]
    assert (given.tool_name, message_text(given)) == ("read", "file body")


def test_a_result_may_hold_text_and_images() -> None:
    given = opened(read("images")).context().messages[2]
    assert isinstance(given, ToolResult)
    assert given.content == (Text("x"), Image("BBBB", "image/png"))


def test_text_next_to_an_old_result_follows_it_as_a_message_of_its_own() -> None:
    old = {"type": "tool_result", "id": "1", "name": "read", "input": {}, "result": "plain"}
    found = opened(message("a", None, [{"type": "text", "text": "and"}, old])).context().messages
    assert [each.role for each in found] == ["toolResult", "user"]
    assert list(map(message_text, found)) == ["plain", "and"]


def test_system_messages_and_unknown_roles_are_kept() -> None:
    assert only(message("a", None, "be brief", "system")) == System(1767225600000, "be brief")
    assert isinstance(only(message("a", None, "x", "narrator")), OtherMessage)
    assert isinstance(only(message("a", None, [], "tool")), OtherMessage)


@pytest.mark.parametrize("content", [5, {"type": "odd"}, [5, "loose", None], None])
def test_content_of_an_unknown_form_is_kept(content: Any) -> None:
    line = json_line({"type": "message", "uuid": "a", "parentUuid": None, "role": "user", "content": content})
    found = only(line)
    assert isinstance(found, User)
    assert all(isinstance(block, OtherBlock | Text) for block in found.content)
    assert len(found.content) == (0 if content is None else len(content) if isinstance(content, list) else 1)


def test_arguments_that_are_not_objects_are_kept_under_a_name() -> None:
    asked = only(answer("a", None, [{**call("1"), "input": "ls"}]))
    assert tool_calls(asked)[0].arguments == {"input": "ls"}


# Settings, titles and origin


def test_the_first_config_line_wins() -> None:
    session = opened(config(approvalMode="yolo", approvalTools=["bash"]), message("a", None), config(summary="late"))
    assert NEOVATE.facts(session._journal).config == Config("yolo", ("bash",))
    first = session.entry(session.ids[0])
    assert isinstance(first, ConfigChange)
    assert first.config.approval_mode == "yolo"


def test_a_config_line_that_lacks_settings_takes_the_defaults() -> None:
    session = opened(config(approvalTools=5, model="x"))
    assert NEOVATE.facts(session._journal).config == Config()
    assert NEOVATE.facts(opened(message("a", None))._journal).config == Config()


def test_the_newest_title_outranks_the_summary_and_the_summary_the_first_prompt() -> None:
    assert opened(config(summary="S"), message("a", None), title("One"), title("Two")).name == "Two"
    assert opened(config(summary="S"), message("a", None)).name == "S"
    assert opened(message("a", None, "what  is\nthis")).name == "what is this"
    assert opened(config()).name is None


def test_a_long_first_prompt_is_cut_as_neovate_cuts_it() -> None:
    assert opened(message("a", None, "x" * 51)).name == "x" * 50 + "..."


def test_echoes_interruptions_and_hidden_parts_make_no_title() -> None:
    hidden = [{"type": "text", "text": "reminder", "hidden": True}, {"type": "text", "text": "real"}]
    echo = message("a", None, "<bash-input>ls</bash-input>")
    assert opened(echo, message("b", "a", INTERRUPTION), message("c", "b", hidden)).name == "real"


def test_the_header_comes_from_the_messages() -> None:
    session = opened(config(), message("a", None), answer("b", "a"))
    assert (session.id, session.cwd, session.header.timestamp) == ("abcd1234", "", TIME)
    assert session.problems == []


def test_without_a_session_id_the_file_gives_its_name() -> None:
    line = json_line({"type": "message", "uuid": "a", "parentUuid": None, "role": "user", "content": "x"})
    assert opened(line, location="/p/agent-12345678.jsonl").id == "agent-12345678"


def test_a_branched_session_records_where_it_was_forked() -> None:
    marks = [{"forkedFrom": {"sessionId": "deadbeef", "messageUuid": id}} for id in "ab"]
    lines = [message("a", None, **marks[0]), message("b", "a", **marks[1]), title("T (branch)"), message("c", "b")]
    assert opened(*lines).header.forked_from == ForkOrigin("deadbeef", "b")
    assert opened(read("branch_fork_lines")).header.forked_from == ForkOrigin("deadbeef", "b")
    assert opened(message("a", None)).header.forked_from is None


def test_metadata_lines_can_be_read() -> None:
    backup = {"a.txt": {"backupFileName": None, "version": 1, "backupTime": TIME}}
    snapshot = json_line({"type": "snapshot", "messageId": "a", "timestamp": TIME, "trackedFileBackups": backup})
    session = opened(message("a", None), snapshot, title("T"), json_line({"type": "new-kind", "n": 1}))
    _, files, named, unknown = list(session)
    assert isinstance(files, FileSnapshot)
    assert files.files == backup
    assert isinstance(named, SessionInfo)
    assert isinstance(unknown, Unknown)
    assert unknown.fields == {"type": "new-kind", "n": 1}


def test_an_unknown_type_that_has_a_meaning_elsewhere_is_not_mistaken_for_it() -> None:
    session = opened(message("a", None), json_line({"type": "label", "targetId": "a", "label": "x"}))
    assert session.labels == {}
    assert session.count("neovate:label") == 1


def test_a_long_file_reads_the_same_in_blocks() -> None:
    lines = [message("m0", None)]
    for at in range(1, 10_000):
        lines += [message(f"m{at}", f"m{at - 1}"), SNAPSHOT]
    session = opened(*lines)
    assert len(session.path_ids()) == 10_000
    assert len(session) == 19_999
    assert session.problems == []


# Recovered history


def test_recovered_links_a_compaction_to_the_messages_it_summarizes() -> None:
    lines = [message("a", None), answer("b", "a"), compaction("c"), answer("d", "c")]
    assert opened(*lines).path_ids() == ["c", "d"]
    session = opened(*lines, read_options=RECOVERED)
    assert session.path_ids() == ["a", "b", "c", "d"]
    assert session.context().path == ("a", "b", "c", "d")
    assert texts(session) == ["summary", "d"]


def test_recovered_begins_the_context_with_the_last_of_several_compactions() -> None:
    lines = [message("a", None), compaction("b", "one"), answer("c", "b"), compaction("d", "two"), answer("e", "d")]
    session = opened(*lines, read_options=RECOVERED)
    assert session.path_ids() == list("abcde")
    assert texts(session) == ["two", "e"]


def test_recovered_restores_a_summary_orphaned_by_an_old_automatic_compaction() -> None:
    lines = [message("a", None), answer("b", "a"), compaction("c"), answer("d", None), message("e", "d")]
    assert texts(opened(*lines)) == ["d", "e"]
    session = opened(*lines, read_options=RECOVERED)
    assert session.path_ids() == list("abcde")
    assert texts(session) == ["summary", "d", "e"]


@pytest.mark.parametrize("metadata_line", [SNAPSHOT, title("T"), config()])
def test_recovered_links_a_false_root_after_a_line_that_is_not_a_message(metadata_line: bytes) -> None:
    lines = [message("a", None), answer("b", "a"), metadata_line, message("c", None), answer("d", "c")]
    assert opened(*lines).path_ids() == ["c", "d"]
    session = opened(*lines, read_options=RECOVERED)
    assert session.path_ids() == list("abcd")
    assert texts(session) == list("abcd")


def test_recovered_does_not_change_an_unexplained_root() -> None:
    assert opened(read("two_roots"), read_options=RECOVERED).path_ids() == ["c", "d"]
    assert opened(config(), message("a", None), read_options=RECOVERED).path_ids() == ["a"]


def test_recovered_links_a_message_whose_parent_is_lost_to_the_one_before() -> None:
    session = opened(read("missing_parent"), read_options=RECOVERED)
    assert session.path_ids() == ["a", "b", "d", "e"]


def test_recovered_includes_the_results_of_calls_canceled_together() -> None:
    lines = [answer("a", None, [call("1"), call("2"), call("3")])]
    lines += [message(f"r{at}", "a", [outcome(str(at))], "tool") for at in (1, 2, 3)]
    lines += [message("e", "r3", "next")]
    assert opened(*lines).path_ids() == ["a", "r3", "e"]
    session = opened(*lines, read_options=RECOVERED)
    assert session.path_ids() == ["a", "r1", "r2", "r3", "e"]
    given = [found for found in session.context().messages if isinstance(found, ToolResult)]
    assert [found.tool_call_id for found in given] == ["1", "2", "3"]


def test_recovered_includes_no_second_answer_and_no_other_branch() -> None:
    lines = [answer("a", None, [call("1")]), message("x", "a", [outcome("1", "old")], "tool"), message("y", "a", "why")]
    lines += [message("b", "a", [outcome("1", "new")], "tool")]
    assert opened(*lines, read_options=RECOVERED).path_ids() == ["a", "b"]


def test_children_of_a_lost_message_stay_branches_once_recovered() -> None:
    lines = [message("a", None), message("c", "b"), message("d", "c"), message("e", "b")]
    assert opened(*lines, read_options=RECOVERED).path_ids() == ["a", "e"]


def test_each_better_link_has_a_reason() -> None:
    lines = [message("a", None), compaction("b"), answer("c", None), SNAPSHOT, message("d", None), message("e", "gone")]
    reparentings = NEOVATE.find_reparentings(opened(*lines)._journal)
    assert [(reparenting.node, reparenting.parent, reparenting.rule) for reparenting in reparentings] == [
        (2, 1, "summary-off-path"),
        (4, 2, "false-root"),
        (5, 4, "missing-parent"),
    ]


def test_a_line_keeps_every_other_byte_when_its_parent_is_changed() -> None:
    line = message("b", "a", 'says "parentUuid":"a"').rstrip(b"\n")
    changed = NEOVATE.with_ids(line, parent="z")
    assert changed == line.replace(b'"parentUuid":"a",', b'"parentUuid":"z",')
    assert NEOVATE.with_ids(line, id="y") == line.replace(b'"uuid":"b"', b'"uuid":"y"')


def test_recovered_never_lets_a_root_follow_its_own_child() -> None:
    lines = [message("b", "a"), SNAPSHOT, message("a", None)]
    assert opened(*lines, read_options=RECOVERED).path_ids() == ["a"]
    assert opened(read("cycle"), read_options=RECOVERED).path_ids() == ["a", "b"]


# Locations


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/Users/me/my.project_x/", "users-me-my-project-x"),
        ("/home/User/中文/a b", "home-user-a-b"),
        ("C:\\Users\\x", "c-users-x"),
        ("/", ""),
    ],
)
def test_the_folder_of_a_project_has_neovates_name(cwd: str, name: str) -> None:
    assert project_folder_name(cwd) == name


def test_copies_of_files_and_long_output_have_neovates_paths() -> None:
    found = file_history_path("/h/.neovate/projects/p", "abcd1234", "src/a.py", 2)
    assert found == "/h/.neovate/projects/p/file-history/abcd1234/4cb4854bf9d4ea6b@v2"
    assert tool_output_folder("/h/.neovate") == "/h/.neovate/tool-output"
