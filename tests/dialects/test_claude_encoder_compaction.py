"""Claude Code: compactions, resets and branches beside them in what an encoder writes."""

from __future__ import annotations

import pytest

from sessiontree.branches.merge import MERGE_HEADING
from sessiontree.compaction.prompts import BRANCH_HEADING
from sessiontree.core.jsonio import render_json
from sessiontree.core.messages import ToolResult, message_text
from sessiontree.session.open import open_store
from sessiontree.stores.memory import MemoryStore
from tests.dialects.claude_transcripts import (
    Transcript,
    assistant,
    call,
    check_round_trip,
    compaction,
    entry,
    result,
    text,
    user,
)


def test_a_compaction_is_a_boundary_and_a_summary_that_name_what_was_kept() -> None:
    entries = [
        user("u1", "old"),
        assistant("a1", text("old too")),
        user("u2", "kept"),
        assistant("a2", call("c1"), call("c2")),
        result("r1", "c1"),
        result("r2", "c2"),
        compaction("k1", "u2", details={"files": ["x"]}),
        user("u3", "new"),
    ]
    transcript = check_round_trip(*entries)
    boundary = next(line for line in transcript.chain if line.get("subtype") == "compact_boundary")
    summary = next(line for line in transcript.chain if line.get("isCompactSummary"))
    assert boundary["parentUuid"] is None
    assert boundary["logicalParentUuid"] == transcript.ids["r2"]
    assert summary["parentUuid"] == boundary["uuid"]
    assert summary["isVisibleInTranscriptOnly"] is True
    about = boundary["compactMetadata"]
    kept = [line["uuid"] for line in transcript.chain[2:7]]
    assert (about["trigger"], about["preTokens"]) == ("manual", 1000)
    assert about["preservedMessages"] == {"anchorUuid": summary["uuid"], "uuids": kept, "allUuids": kept}
    assert about["preservedSegment"] == {"headUuid": kept[0], "anchorUuid": summary["uuid"], "tailUuid": kept[-1]}
    texts = transcript.texts()
    assert "what happened" in texts[0]
    assert texts[1:] == ["kept", "", "result of c1", "result of c2", "new"]


def test_kept_messages_are_sent_even_if_nothing_follows_the_compaction() -> None:
    transcript = check_round_trip(user("u1", "old"), user("u2", "kept"), compaction("k1", "u2"))
    assert transcript.texts()[1:] == ["kept"]


def test_a_compaction_may_keep_nothing_or_start_to_keep_at_a_metadata_entry() -> None:
    nothing = check_round_trip(user("u1"), compaction("k1", None), user("u2", "new"))
    assert nothing.texts()[1:] == ["new"]
    entries = [
        user("u1", "old"),
        entry("model_change", "x1", modelId="m"),
        user("u2", "kept"),
        compaction("k1", "x1"),
        user("u3", "new"),
    ]
    assert check_round_trip(*entries).texts()[1:] == ["kept", "new"]


def test_a_compaction_may_start_to_keep_at_a_metadata_entry_before_all_messages() -> None:
    entries = [entry("model_change", "x1", modelId="m"), user("u1", "kept"), compaction("k1", "x1"), user("u2", "new")]
    assert check_round_trip(*entries).texts()[1:] == ["kept", "new"]


def test_an_older_summary_among_kept_messages_is_not_sent_again() -> None:
    entries = [
        user("u1", "one"),
        user("u2", "two"),
        compaction("k1", "u2", "first"),
        user("u3", "three"),
        compaction("k2", "u2", "second"),
        user("u4", "four"),
    ]
    texts = check_round_trip(*entries).texts()
    assert "second" in texts[0]
    assert texts[1:] == ["two", "three", "four"]


def test_readers_that_only_know_preserved_segments_find_all_parallel_results() -> None:
    entries = [
        user("u1"),
        assistant("a1", text("one")),
        user("u2"),
        assistant("a2", call("c1"), call("c2"), call("c3")),
        result("r2", "c2"),
        result("r1", "c1"),
        result("r3", "c3"),
        assistant("a3", text("done")),
        compaction("k", "u2"),
        user("u3"),
    ]
    transcript = check_round_trip(*entries)
    lines = transcript.chain
    (boundary,) = [line for line in lines if line.get("subtype") == "compact_boundary"]
    del boundary["compactMetadata"]["preservedMessages"]
    found = open_store(MemoryStore(b"".join(render_json(line) + b"\n" for line in lines))).context().messages
    assert [message.tool_call_id for message in found if isinstance(message, ToolResult)] == ["c2", "c1", "c3"]


def test_a_reset_at_the_end_has_an_empty_answer_below_it_because_the_client_ignores_others() -> None:
    transcript = check_round_trip(user("u1"), assistant("a1", text("one")), entry("reset_boundary", "b1"))
    boundary, answer = transcript.chain[-2:]
    assert boundary["subtype"] == "compact_boundary"
    # A boundary that names a parent would be sent with that line, so nothing before the boundary would be.
    assert boundary["parentUuid"] is None
    assert (answer["type"], answer["parentUuid"]) == ("assistant", boundary["uuid"])
    assert transcript.messages() == []


@pytest.mark.parametrize(
    "summary",
    [
        f"{BRANCH_HEADING}\n\n## Done",
        f"{MERGE_HEADING}\n\n## Done",
        "The user explored a different conversation branch before returning here.\nSummary of that exploration:",
    ],
)
def test_a_branch_summary_that_introduces_itself_gets_no_second_introduction(summary: str) -> None:
    transcript = check_round_trip(user("u1"), entry("branch_summary", "s1", fromId="u0", summary=summary))
    assert transcript.texts() == ["hello", summary]


@pytest.mark.parametrize("summary", ["", None])
def test_a_branch_summary_without_a_text_is_not_sent(summary: str | None) -> None:
    transcript = check_round_trip(user("u1"), entry("branch_summary", "s1", fromId="u0", summary=summary))
    assert [message.role for message in transcript.messages()] == ["user"]
    assert len(transcript.chain) == 1


def test_a_reset_of_the_context_is_a_boundary_without_a_summary() -> None:
    entries = [user("u1", "old"), entry("reset_boundary", "z1"), user("u2", "new")]
    assert check_round_trip(*entries).texts() == ["new"]


def test_a_branch_that_leaves_before_a_compaction_does_not_see_its_summary() -> None:
    transcript = Transcript().add(user("u1", "one"), assistant("a1", text("kept")), compaction("k1", "a1"), user("u2"))
    compacted = transcript.at
    for name in ("b1", "b2"):
        transcript.add_at(user(name, name), transcript.ids["a1"])
        transcript.add(assistant(f"{name}a", text("ok")))
    transcript.end()
    assert transcript.texts() == ["one", "kept", "b2", "ok"]
    assert [decode.id for decode in transcript.decode()] == ["u1", "a1", "b2", "b2a"]
    assert [decode.id for decode in transcript.decode(transcript.ids["b1a"])] == ["u1", "a1", "b1", "b1a"]
    assert [decode.id for decode in transcript.decode(compacted)] == ["u1", "a1", "k1", "u2"]
    assert len(transcript.messages(compacted)) == 3


def test_a_compaction_that_branches_off_before_metadata_entries_does_not_follow_them() -> None:
    transcript = Transcript().add(user("u1"), assistant("a1", text("one")), user("u2"), assistant("a2", text("two")))
    before = transcript.at
    transcript.add(entry("model_change", "m1", modelId="m"), compaction("k1", None, ""), compaction("k2", "a1", ""))
    leaf = transcript.add_at(compaction("k3", None, ""), before)
    assert [entry.id for entry in transcript.end().decode(leaf)] == ["u1", "a1", "u2", "a2", "k3"]


def test_a_call_may_have_another_result_on_another_branch() -> None:
    transcript = Transcript().add(user("u1"), assistant("a1", call("c1"), call("c2")))
    tips = []
    for name in ("x", "y", "z"):
        transcript.at = transcript.ids["a1"]
        entries = [
            result(f"{name}1", "c1", text(name)),
            result(f"{name}2", "c2", text(name)),
            assistant(f"{name}3", text("ok")),
        ]
        tips.append(transcript.add(*entries).at)
    transcript.add_at(user("u2", "never mind"), transcript.ids["a1"])
    transcript.add_at(user("u3", "half"), transcript.ids["x1"])
    transcript.end()
    for name, tip in zip(("x", "y", "z"), tips, strict=True):
        assert [decode.id for decode in transcript.decode(tip)] == ["u1", "a1", f"{name}1", f"{name}2", f"{name}3"]
        assert [message_text(message) for message in transcript.messages(tip)] == ["hello", "", name, name, "ok"]
    assert [decode.id for decode in transcript.decode(transcript.ids["u2"])] == ["u1", "a1", "u2"]
    assert [decode.id for decode in transcript.decode()] == ["u1", "a1", "x1", "u3"]
