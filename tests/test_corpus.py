"""The corpus: each file read as by Pi 1.5.0, every file cut at every byte, and that reading changes nothing."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.core.context import ModelRef
from sessiontree.core.lines import iter_lines
from sessiontree.core.messages import Message, RedactedThinking, Text, Thinking, ToolCall, message_blocks, message_text
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.session.session import Session
from sessiontree.stores.memory import MemoryStore
from tests.builders import grow, opened, places

FOLDER = Path(__file__).parent / "corpus" / "pi-family"
EXPECTED: dict[str, dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text())
FILES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))
PI_REFUSES = sorted(name for name in FILES if "error" in EXPECTED[name]["pi-1.5.0"])
MADE_IDS = ["37_v1"]
"""Pi generates random ids for these, so only their number can be compared."""
BLIND_SPOT = ["17_models_roles"]
"""Pi does not read the field in which oh-my-pi names the model, and shows an empty one."""
PI_READS = [name for name in FILES if name not in PI_REFUSES]

_stand_in = re.compile(r"\[(thinking|redactedThinking|toolCall (\S+) (.*))\]")

# Possible kinds of problems after a cut in the middle of a line, in addition to those of the complete file.
OF_A_CUT = {"torn-tail", "no-final-newline", "no-header"}


def read(name: str) -> bytes:
    return (FOLDER / f"{name}.jsonl").read_bytes()


def expectation(name: str) -> dict[str, Any]:
    found: dict[str, Any] = EXPECTED[name]["pi-1.5.0"]
    return found


def stand_in(block: object) -> str:
    """A block in the form of the expectations."""
    match block:
        case Text():
            return block.text
        case Thinking():
            return "[thinking]"
        case RedactedThinking():
            return "[redactedThinking]"
        case ToolCall():
            return f"[toolCall {block.name} {json.dumps(block.arguments, separators=(',', ':'))}]"
        case _:
            return f"[{type(block).__name__}]"


def as_expected(message: Message, expected: dict[str, Any]) -> dict[str, Any]:
    """A message in the form of the expectation it is compared with."""
    if _stand_in.search(expected["text"]):
        return {"role": message.role, "text": "\n".join(map(stand_in, message_blocks(message)))}
    return {"role": message.role, "text": message_text(message)}


def entry_ids(session: Session) -> list[str]:
    """The ids of the entries that are part of the tree."""
    return [id for id in session.ids if not is_metadata_id(id)]


def parents(session: Session) -> list[str | None]:
    return [session.parent(id) for id in dict.fromkeys(session.ids)]


def complete_entries(data: bytes) -> int:
    """Number of lines that are complete entries, with or without LF."""
    count = 0
    for _, line in iter_lines(data):
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        if fields["type"] not in ("session", "title"):
            count += 1
    return count


def test_every_file_has_an_expectation_and_every_expectation_a_file() -> None:
    assert sorted(EXPECTED) == FILES
    assert PI_REFUSES == ["29_self_parent", "41_title_slot"]


# Pi's own results


@pytest.mark.parametrize("name", [name for name in PI_READS if name not in MADE_IDS])
def test_leaf_and_path_are_those_of_pi(name: str) -> None:
    session = opened(read(name), "pi")
    assert session.dialect.name == "pi"
    assert session.leaf == expectation(name)["leaf"]
    assert session.path_ids() == expectation(name)["path"]
    assert list(session.context().path) == expectation(name)["path"]


@pytest.mark.parametrize("name", PI_READS)
def test_messages_are_those_of_pi(name: str) -> None:
    messages, expected = opened(read(name), "pi").context().messages, expectation(name)["messages"]
    assert len(messages) == len(expected)
    assert [as_expected(*pair) for pair in zip(messages, expected, strict=True)] == expected


@pytest.mark.parametrize("name", PI_READS)
def test_thinking_level_name_and_labels_are_those_of_pi(name: str) -> None:
    session, expected = opened(read(name), "pi"), expectation(name)
    assert session.context().state.thinking_level == expected["thinkingLevel"]
    assert session.name == expected["name"]
    assert session.labels == expected["labels"]


@pytest.mark.parametrize("name", [name for name in PI_READS if name not in BLIND_SPOT])
def test_the_model_is_that_of_pi(name: str) -> None:
    expected = expectation(name)["model"]
    model = opened(read(name), "pi").context().state.model
    assert model == (None if expected is None else ModelRef(expected["provider"], expected["modelId"]))


def test_the_model_that_pi_does_not_see_is_read() -> None:
    state = opened(read("17_models_roles"), "pi").context().state
    assert state.model == ModelRef("openai", "gpt-5")
    assert state.models == {"default": "openai/gpt-5", "smol": "z/smol", "fallback": "f/fb"}


def test_a_file_of_version_1_gives_a_path_as_long_as_that_of_pi() -> None:
    session, expected = opened(read("37_v1")), expectation("37_v1")
    assert len(session.path_ids()) == len(expected["path"])
    assert session.leaf == session.ids[-1]


def test_a_file_of_version_1_gives_the_same_ids_each_time() -> None:
    first, second = opened(read("37_v1")), opened(read("37_v1"))
    assert first.ids == second.ids
    assert len(set(first.ids)) == len(first.ids)


def test_a_self_parent_that_crashes_pi_is_read_as_a_root() -> None:
    session = opened(read("29_self_parent"))
    assert session.path_ids() == ["1", "2"]
    assert [message_text(message) for message in session.context().messages] == ["q", "a"]
    assert [problem.kind for problem in session.problems] == ["self-parent"]


@pytest.mark.parametrize("dialect", ["pi", "omp"])
def test_a_title_slot_before_the_header_that_pi_rejects_is_skipped(dialect: str) -> None:
    session = opened(read("41_title_slot"), dialect)
    assert session.id == "019c0000-0000-7000-8000-00000000000a"
    assert session.path_ids() == ["1", "2"]
    assert [message_text(message) for message in session.context().messages] == ["q", "a"]


ODD = {
    "29_self_parent": (2, "self-parent"),
    "31_dup_ids": (2, "duplicate-id"),
    "33_malformed_middle": (4, "undecodable"),
    "35_no_final_newline": (3, "no-final-newline"),
    "37_v1": (1, "old-version"),
    "39_version_99": (1, "newer-version"),
    "45_parent_empty_string": (2, "empty-parent"),
}
"""Files with one problem each: its line and kind."""


@pytest.mark.parametrize("name", [name for name in FILES if name not in ODD])
def test_a_valid_file_has_no_problems(name: str) -> None:
    session = opened(read(name))
    session.context()
    assert session.problems == []
    assert session.fragments == []


@pytest.mark.parametrize("name", sorted(ODD))
def test_the_problem_of_a_file_is_reported_with_its_position(name: str) -> None:
    number, kind = ODD[name]
    start, line = list(iter_lines(read(name)))[number - 1]
    assert places(opened(read(name)).problems) == [(number, start, start + len(line), kind)]


# Cut at every byte


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_at_any_byte_opens_and_keeps_every_complete_entry(name: str) -> None:
    data = read(name)
    whole = opened(data)
    kinds = {problem.kind for problem in whole.problems} | OF_A_CUT
    for cut in range(len(data) + 1):
        session = opened(data[:cut])
        count = complete_entries(data[:cut])
        assert entry_ids(session) == entry_ids(whole)[:count], cut
        problems = session.problems
        assert {problem.kind for problem in problems} <= kinds, cut
        assert all(0 <= problem.start <= problem.end <= cut and problem.action for problem in problems), cut
        assert len(session.context().path) <= count


@pytest.mark.parametrize("name", FILES)
def test_of_a_cut_line_no_byte_is_lost(name: str) -> None:
    """Where a cut leaves a torn line, that line is a fragment with exactly its bytes."""
    data = read(name)
    second = data.index(b'{"type":"message"')
    for cut in range(second + 1, min(second + 60, len(data))):
        session = opened(data[:cut])
        (torn,) = [fragment for fragment in session.fragments if fragment.kind == "torn-tail"]
        assert torn.raw == data[second:cut]
        assert (torn.start, torn.end) == (second, cut)


@pytest.mark.parametrize(
    "name", ["33_malformed_middle", "31_dup_ids", "37_v1", "41_title_slot", "45_parent_empty_string"]
)
def test_a_file_read_while_it_grows_gives_the_same_entries(name: str) -> None:
    data = read(name)
    whole = opened(data)
    for cut in range(data.index(b"\n", data.index(b'"type":"session"')) + 1, len(data)):
        store = MemoryStore(data[:cut])
        session = opened(store)
        grow(store, data[cut:])
        session.refresh()
        assert session.ids == whole.ids, cut
        assert parents(session) == parents(whole), cut
        assert places(session.problems) == places(whole.problems), cut
        assert session.fragments == whole.fragments, cut


# Reading changes nothing


@pytest.mark.parametrize("name", FILES)
def test_reading_changes_neither_bytes_nor_times(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.jsonl"
    path.write_bytes(read(name))
    os.utime(path, ns=(1_000_000_000, 1_000_000_000))
    before = path.stat()
    with sessiontree.open(path, home=tmp_path / "home") as session:
        session.context()
        list(session)
        session.refresh()
        assert session.problems is not None
    after = path.stat()
    assert path.read_bytes() == read(name)
    assert (before.st_mtime_ns, before.st_ctime_ns, before.st_ino) == (
        after.st_mtime_ns,
        after.st_ctime_ns,
        after.st_ino,
    )
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("name", FILES)
def test_the_raw_bytes_of_an_entry_are_its_line(name: str) -> None:
    data = read(name)
    session = opened(data)
    lines = [line for _, line in iter_lines(data)]
    last = {id: at for at, id in enumerate(session.ids)}
    expected = [
        line for line in lines if line.endswith(b"}") and json.loads(line)["type"] != "session"
    ]  # the malformed line ends otherwise
    assert len(expected) == len(session.ids)
    for id, at in last.items():
        assert session.raw(id) == expected[at]
