"""Claude Code: the names of project folders and of the files that belong to a transcript."""

from __future__ import annotations

import os

import pytest

from sessiontree.dialects.claude.locations import project_key
from sessiontree.dialects.claude.related_files import agent_transcripts, spilled_outputs
from sessiontree.session.open import open_store
from sessiontree.stores.memory import MemoryStore

TRANSCRIPT = os.path.join("projects", "-x", "5a.jsonl")


@pytest.mark.parametrize(
    ("cwd", "key"),
    [
        ("/home/user/proj", "-home-user-proj"),
        ("/x/with space_under.dot", "-x-with-space-under-dot"),
        ("/x/ünï-日本", "-x--n----"),
        ("/x/u\u0308", "-x--"),
        ("/x/emoji😀dir", "-x-emoji--dir"),
    ],
)
def test_a_project_key_has_a_dash_for_each_special_utf_16_unit(cwd: str, key: str) -> None:
    assert project_key(cwd) == key


def test_a_long_key_is_cut_and_gets_a_hash_of_the_full_path() -> None:
    one, other = "/" + "a" * 220, "/" + "a" * 219 + "b"
    assert project_key("/" + "a" * 199) == "-" + "a" * 199
    assert project_key(one)[:201] == project_key(other)[:201] == "-" + "a" * 199 + "-"
    assert project_key(one) != project_key(other)


def test_the_hash_is_that_of_signed_32_bit_arithmetic() -> None:
    value = 0
    for letter in "/" + "z" * 240:
        value = (value * 31 + ord(letter)) % 2**32
    value = abs(value - 2**32 if value >= 2**31 else value)
    assert int(project_key("/" + "z" * 240).rpartition("-")[2], 36) == value


def test_a_sub_agent_s_transcript_is_in_the_session_s_folder_or_next_to_the_session() -> None:
    assert agent_transcripts(TRANSCRIPT, "a1") == (
        os.path.join("projects", "-x", "5a", "subagents", "agent-a1.jsonl"),
        os.path.join("projects", "-x", "agent-a1.jsonl"),
    )


def test_spilled_output_is_looked_for_at_its_path_and_in_the_session_s_folder() -> None:
    recorded = "/gone/5a/tool-results/b1.txt"
    text = f"<persisted-output>\nOutput too large (9KB). Full output saved to: {recorded}\n\nPreview"
    assert spilled_outputs(TRANSCRIPT, text) == (
        recorded,
        os.path.join("projects", "-x", "5a", "tool-results", "b1.txt"),
    )
    assert spilled_outputs("/gone/5a.jsonl", text) == (recorded,)


def test_a_path_from_windows_is_found_in_the_session_s_folder_too() -> None:
    text = "Full output saved to: C:\\x\\5a\\tool-results\\b1.txt\n"
    assert spilled_outputs(TRANSCRIPT, text)[1].endswith("b1.txt")


def test_text_without_a_spilled_output_names_no_file() -> None:
    assert spilled_outputs(TRANSCRIPT, "all is well") == ()
    assert spilled_outputs(TRANSCRIPT, "Full output saved to: /x/tool-results/..\n") == ()


def test_a_sub_agent_is_found_in_a_line_with_escaped_letters() -> None:
    result = b'{"type":"user","uuid":"u1","parentUuid":null,"sessionId":"s","timestamp":"2026-02-16T10:00:00.000Z",'
    result += b'"message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]},'
    for key in (b"agentId", b"\\u0061gentId"):
        session = open_store(MemoryStore(result + b'"toolUseResult":{"%b":"af43"}}\n' % key), dialect="claude")
        assert [found.name for found in session.related_files()] == ["af43"]
    assert open_store(MemoryStore(result + b'"toolUseResult":"af43"}\n'), dialect="claude").related_files() == []
