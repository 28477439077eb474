"""Mapping of tool calls: which calls are mapped, which are kept, and that the intent never changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sessiontree
from sessiontree.conversion.tool_mapping import Mapped, find_intent, map_call, map_name
from sessiontree.dialects.tool_intents import Bash, Intent

AGENTS = ("claude", "pi", "omp", "neovate", "native")
CORPUS = Path(__file__).parents[1] / "corpus"

# One call in the form of each agent. An agent that is not listed has no such tool.
SAME_CALL: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "read a whole file": {
        "claude": ("Read", {"file_path": "/w/a.py"}),
        "pi": ("read", {"path": "/w/a.py"}),
        "omp": ("read", {"path": "/w/a.py:1-"}),
        "neovate": ("read", {"file_path": "/w/a.py"}),
    },
    "read some lines": {
        "claude": ("Read", {"file_path": "a.py", "offset": 10, "limit": 5}),
        "pi": ("read", {"path": "a.py", "offset": 10, "limit": 5}),
        "omp": ("read", {"path": "a.py:10+5"}),
        "neovate": ("read", {"file_path": "a.py", "offset": 10, "limit": 5}),
    },
    "read a picture": {
        "claude": ("Read", {"file_path": "a.png"}),
        "pi": ("read", {"path": "a.png"}),
        "omp": ("read", {"path": "a.png"}),
        "neovate": ("read", {"file_path": "a.png"}),
    },
    "write": {
        "claude": ("Write", {"file_path": "/w/a.txt", "content": "one\n"}),
        "pi": ("write", {"path": "/w/a.txt", "content": "one\n"}),
        "omp": ("write", {"path": "/w/a.txt", "content": "one\n"}),
        "neovate": ("write", {"file_path": "/w/a.txt", "content": "one\n"}),
    },
    "edit one place": {
        "claude": ("Edit", {"file_path": "a.py", "old_string": "x = 1", "new_string": "x = 2"}),
        "pi": ("edit", {"path": "a.py", "edits": [{"oldText": "x = 1", "newText": "x = 2"}]}),
        "omp": ("edit", {"path": "a.py", "old_string": "x = 1", "new_string": "x = 2"}),
        "neovate": ("edit", {"file_path": "a.py", "old_string": "x = 1", "new_string": "x = 2"}),
    },
    "edit every place": {
        "claude": ("Edit", {"file_path": "a.py", "old_string": "x", "new_string": "y", "replace_all": True}),
        "omp": ("edit", {"path": "a.py", "old_string": "x", "new_string": "y", "replace_all": True}),
        "neovate": ("edit", {"file_path": "a.py", "old_string": "x", "new_string": "y", "replace_all": True}),
    },
    "run a command": {
        "claude": ("Bash", {"command": "ls -1", "timeout": 90_000}),
        "pi": ("bash", {"command": "ls -1", "timeout": 90}),
        "omp": ("bash", {"command": "ls -1", "timeout": 90}),
        "neovate": ("bash", {"command": "ls -1", "timeout": 90_000}),
    },
    "run a command in the background": {
        "claude": ("Bash", {"command": "make", "run_in_background": True}),
        "omp": ("bash", {"command": "make", "async": True}),
        "neovate": ("bash", {"command": "make", "run_in_background": True}),
    },
    "search lines": {
        "claude": ("Grep", {"pattern": "a+b", "path": "src", "glob": "*.py", "output_mode": "content", "-i": True}),
        "pi": ("grep", {"pattern": "a+b", "path": "src", "glob": "*.py", "ignoreCase": True}),
        "omp": ("grep", {"pattern": "a+b", "path": "src/**/*.py", "case": False}),
        "neovate": (
            "grep",
            {
                "pattern": "a+b",
                "search_path": "src",
                "include": "*.py",
                "output_mode": "content",
                "ignore_case": True,
            },
        ),
    },
    "search with lines around": {
        "claude": ("Grep", {"pattern": "ab", "output_mode": "content", "-C": 3}),
        "pi": ("grep", {"pattern": "ab", "context": 3}),
        "neovate": ("grep", {"pattern": "ab", "output_mode": "content", "context": 3}),
    },
    "search for files that hold a text": {
        "claude": ("Grep", {"pattern": "ab", "type": "py", "output_mode": "files_with_matches", "head_limit": 9}),
        "neovate": ("grep", {"pattern": "ab", "type": "py", "output_mode": "files_with_matches", "limit": 9}),
    },
    "find files at any depth": {
        "claude": ("Glob", {"pattern": "**/*.py", "path": "/w/src"}),
        "pi": ("find", {"pattern": "**/*.py", "path": "/w/src"}),
        "omp": ("glob", {"path": "/w/src/**/*.py"}),
        "neovate": ("glob", {"pattern": "**/*.py", "path": "/w/src"}),
    },
    "find files in one folder": {
        "claude": ("Glob", {"pattern": "src/*.py"}),
        "omp": ("glob", {"path": "src/*.py"}),
        "neovate": ("glob", {"pattern": "*.py", "path": "src"}),
    },
    "list one folder": {"pi": ("ls", {"path": "src"})},
    "list folders in folders": {"neovate": ("ls", {"dir_path": "src"})},
    "set the task list": {
        "claude": (
            "TodoWrite",
            {
                "todos": [
                    {"content": "dig", "status": "in_progress", "activeForm": "dig"},
                    {"content": "fill", "status": "pending", "activeForm": "fill"},
                ]
            },
        ),
        "omp": ("todo", {"op": "init", "items": ["dig", "fill"]}),
        "neovate": (
            "todoWrite",
            {
                "todos": [
                    {"id": "1", "content": "dig", "status": "in_progress", "priority": "medium"},
                    {"id": "2", "content": "fill", "status": "pending", "priority": "medium"},
                ]
            },
        ),
    },
    "start a sub-agent": {
        "claude": (
            "Agent",
            {
                "description": "Look",
                "prompt": "Look around",
                "subagent_type": "general-purpose",
                "run_in_background": False,
            },
        ),
        "neovate": ("task", {"description": "Look", "prompt": "Look around", "subagent_type": "GeneralPurpose"}),
    },
}

for _calls in SAME_CALL.values():
    if "pi" in _calls:
        _calls["native"] = _calls["pi"]

SHARING = {frozenset(("pi", "native"))}


@pytest.mark.parametrize("target", AGENTS)
@pytest.mark.parametrize(("what", "source"), [(what, source) for what, calls in SAME_CALL.items() for source in calls])
def test_every_agent_has_its_own_form_of_the_same_call(what: str, source: str, target: str) -> None:
    calls = SAME_CALL[what]
    name, arguments = calls[source]
    mapped = map_call(name, arguments, source, target)
    if target not in calls or source == target or frozenset((source, target)) in SHARING:
        assert mapped is None
    else:
        assert mapped is not None
        assert (mapped.name, mapped.arguments) == calls[target]
        assert map_name(name, source, target) == mapped.name


def changed(name: str, arguments: dict[str, Any], source: str, target: str) -> tuple[str, ...]:
    mapped = map_call(name, arguments, source, target)
    assert mapped is not None
    return mapped.changed


def test_a_lossless_mapping_has_no_notes() -> None:
    assert changed("Read", {"file_path": "a"}, "claude", "pi") == ()
    assert changed("Bash", {"command": "ls", "description": "List"}, "claude", "neovate") == ()


def test_what_is_left_out_or_changed_is_noted() -> None:
    assert changed("Bash", {"command": "ls", "description": "List", "timeout": 1500}, "claude", "pi") == (
        "timeout in milliseconds became seconds",
        "the description of the command was left out",
    )
    assert changed("bash", {"command": "ls", "timeout": 2}, "pi", "neovate") == (
        "timeout in seconds became milliseconds",
    )
    assert "outline" in changed("read", {"path": "a.py"}, "omp", "claude")[0]
    assert "settings" in changed("grep", {"pattern": "a"}, "omp", "pi")[0]
    todos = [{"content": "a", "status": "pending", "activeForm": "b"}] * 2
    assert changed("TodoWrite", {"todos": todos}, "claude", "neovate") == (
        "the texts shown while tasks are in progress were left out",
        "tasks were numbered, and all were given the priority medium",
    )


# Calls that an agent once made or still accepts, and the current form of another agent.
OLDER: list[tuple[str, str, dict[str, Any], str, str, dict[str, Any]]] = [
    ("pi", "edit", {"path": "a", "oldText": "b", "newText": "c"}, "claude", "Edit",
     {"file_path": "a", "old_string": "b", "new_string": "c"}),
    ("pi", "edit", {"path": "a", "edits": '[{"oldText":"b","newText":"c"}]'}, "claude", "Edit",
     {"file_path": "a", "old_string": "b", "new_string": "c"}),
    ("pi", "edit", {"path": "a", "edits": {"oldText": "b", "newText": "c"}}, "claude", "Edit",
     {"file_path": "a", "old_string": "b", "new_string": "c"}),
    ("omp", "edit", {"path": "a", "oldText": "b", "newText": "c", "all": True}, "claude", "Edit",
     {"file_path": "a", "old_string": "b", "new_string": "c", "replace_all": True}),
    ("omp", "read", {"path": "a", "offset": 3, "limit": 2, "lines": True}, "claude", "Read",
     {"file_path": "a", "offset": 3, "limit": 2}),
    ("omp", "read", {"path": "a:3-4:raw"}, "claude", "Read", {"file_path": "a", "offset": 3, "limit": 2}),
    ("omp", "read", {"path": "a:3"}, "claude", "Read", {"file_path": "a", "offset": 3}),
    ("omp", "read", {"path": "a:raw"}, "pi", "read", {"path": "a"}),
    ("omp", "find", {"pattern": "*.py", "path": "src"}, "claude", "Glob", {"pattern": "**/*.py", "path": "src"}),
    ("omp", "ls", {"path": "src"}, "pi", "ls", {"path": "src"}),
    ("omp", "search", {"pattern": "a"}, "pi", "grep", {"pattern": "a"}),
    ("omp", "todo_write", {"todos": [{"content": "a", "status": "completed", "activeForm": "b"}]},
     "claude", "TodoWrite", {"todos": [{"content": "a", "status": "completed", "activeForm": "a"}]}),
    ("omp", "todo", {"op": "init", "list": [{"phase": "P", "items": ["a"]}]}, "claude", "TodoWrite",
     {"todos": [{"content": "a", "status": "in_progress", "activeForm": "a"}]}),
    ("neovate", "read", {"file_path": "a", "offset": None, "limit": None}, "pi", "read", {"path": "a"}),
    ("neovate", "todo-write", {"todos": []}, "claude", "TodoWrite", {"todos": []}),
    ("claude", "Task", {"description": "d", "prompt": "p"}, "neovate", "task",
     {"description": "d", "prompt": "p", "subagent_type": "GeneralPurpose"}),
    ("claude", "LS", {"path": "src"}, "neovate", "ls", {"dir_path": "src"}),
    ("claude", "Grep", {"pattern": "a", "output_mode": "content", "context": 2}, "pi", "grep",
     {"pattern": "a", "context": 2}),
    ("claude", "Glob", {"pattern": "*.py"}, "neovate", "glob", {"pattern": "**/*.py"}),
]  # fmt: skip


@pytest.mark.parametrize(("source", "name", "arguments", "target", "new_name", "new_arguments"), OLDER)
def test_every_spelling_is_read_and_the_current_one_is_written(
    source: str, name: str, arguments: dict[str, Any], target: str, new_name: str, new_arguments: dict[str, Any]
) -> None:
    mapped = map_call(name, arguments, source, target)
    assert mapped is not None
    assert (mapped.name, mapped.arguments) == (new_name, new_arguments)


EDIT = {"file_path": "a", "old_string": "b", "new_string": "c"}
GREP = {"pattern": "a", "output_mode": "content"}
AGENT = {"description": "d", "prompt": "p", "subagent_type": "Explore", "run_in_background": False}

# A call, and a target that has no argument for part of it.
KEPT: list[tuple[str, str, str, dict[str, Any], str]] = [
    ("pages of a PDF", "claude", "Read", {"file_path": "a.pdf", "pages": "1-5"}, "pi"),
    ("a path that only some expand", "pi", "read", {"path": "~/a"}, "claude"),
    ("a path that some take for a mention", "claude", "Read", {"file_path": "@types/a"}, "pi"),
    ("a path that looks like a selector", "claude", "Read", {"file_path": "a:3"}, "omp"),
    ("the last lines", "omp", "read", {"path": "a:-60"}, "claude"),
    ("several ranges", "omp", "read", {"path": "a:1-2,5-6"}, "claude"),
    ("lines that end before they begin", "omp", "read", {"path": "a:5-2"}, "claude"),
    ("a web page", "omp", "read", {"path": "https://example.org"}, "claude"),
    ("a folder", "omp", "read", {"path": "src/"}, "claude"),
    ("a member of an archive", "omp", "write", {"path": "a.zip:b", "content": ""}, "claude"),
    ("a line end that Neovate would add", "claude", "Write", {"file_path": "a", "content": "x"}, "neovate"),
    ("a replacement everywhere", "claude", "Edit", {**EDIT, "replace_all": True}, "pi"),
    ("making a file by an edit", "claude", "Edit", {**EDIT, "old_string": ""}, "neovate"),
    ("a deletion that takes the line end along", "claude", "Edit", {**EDIT, "new_string": ""}, "pi"),
    ("an edit by line hashes", "omp", "edit", {"input": "[a#1A2B]"}, "claude"),
    ("several replacements", "pi", "edit",
     {"path": "a", "edits": [{"oldText": "b", "newText": "c"}, {"oldText": "d", "newText": "e"}]}, "claude"),
    ("a command outside the sandbox", "claude", "Bash", {"command": "ls", "dangerouslyDisableSandbox": True}, "pi"),
    ("a command in the background", "claude", "Bash", {"command": "ls", "run_in_background": True}, "pi"),
    ("a timeout that is too long", "pi", "bash", {"command": "ls", "timeout": 601}, "claude"),
    ("a timeout that is too short", "claude", "Bash", {"command": "ls", "timeout": 999}, "omp"),
    ("no deadline", "omp", "bash", {"command": "ls", "timeout": 0}, "claude"),
    ("another folder", "omp", "bash", {"command": "ls", "cwd": "src"}, "pi"),
    ("a terminal", "omp", "bash", {"command": "top", "pty": True}, "pi"),
    ("a command in a command", "claude", "Bash", {"command": "echo $(date)"}, "neovate"),
    ("the names of matching files", "claude", "Grep", {"pattern": "a"}, "pi"),
    ("counts", "claude", "Grep", {"pattern": "a", "output_mode": "count"}, "omp"),
    ("a file type", "claude", "Grep", {**GREP, "type": "py"}, "pi"),
    ("lines on one side", "claude", "Grep", {**GREP, "-A": 2}, "pi"),
    ("a limit of lines where matches are counted", "claude", "Grep", {**GREP, "-C": 2, "head_limit": 3}, "pi"),
    ("no limit at all", "claude", "Grep", {**GREP, "head_limit": 0}, "pi"),
    ("matched parts only", "claude", "Grep", {**GREP, "-o": True}, "neovate"),
    ("several filters", "claude", "Grep", {**GREP, "glob": "*.py *.md"}, "pi"),
    ("context in so many words", "claude", "Grep", {**GREP, "-C": 2}, "omp"),
    ("a match across lines", "omp", "grep", {"pattern": "a\\nb"}, "claude"),
    ("several paths", "omp", "grep", {"pattern": "a", "path": "src;tests"}, "claude"),
    ("files in this folder only", "neovate", "glob", {"pattern": "*.py"}, "claude"),
    ("a pattern with folders", "pi", "find", {"pattern": "src/**/*.py"}, "claude"),
    ("a number of files", "pi", "find", {"pattern": "*.py", "limit": 5}, "claude"),
    ("everything", "claude", "Glob", {"pattern": "**/*"}, "pi"),
    ("one level of a folder", "pi", "ls", {"path": "src"}, "neovate"),
    ("a question about code", "omp", "find", {"query": "where", "grep_keywords": ["a"]}, "claude"),
    ("a step in the task list", "omp", "todo", {"op": "done", "task": "a"}, "claude"),
    ("a task list in the middle of things", "claude", "TodoWrite",
     {"todos": [{"content": "a", "status": "completed", "activeForm": "a"}]}, "omp"),
    ("an agent in the background", "claude", "Agent", {**AGENT, "run_in_background": True}, "neovate"),
    ("an agent without a kind", "claude", "Agent", {"description": "d", "prompt": "p"}, "neovate"),
    ("an agent of the user's own", "claude", "Agent", {**AGENT, "subagent_type": "reviewer"}, "neovate"),
    ("an agent with a model", "claude", "Agent", {**AGENT, "model": "haiku"}, "neovate"),
    ("an agent that goes on", "neovate", "task",
     {"description": "d", "prompt": "p", "subagent_type": "Plan", "resume": "x"}, "claude"),
    ("a tool that is gone", "neovate", "ls", {"dir_path": "src"}, "claude"),
    ("a null where none is allowed", "claude", "Read", {"file_path": "a", "limit": None}, "pi"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "name", "arguments", "target"), [case[1:] for case in KEPT], ids=[k[0] for k in KEPT]
)
def test_a_call_without_a_true_equivalent_is_kept(
    source: str, name: str, arguments: dict[str, Any], target: str
) -> None:
    assert map_call(name, arguments, source, target) is None


def multi_edit(*edits: tuple[str, str]) -> dict[str, Any]:
    return {"file_path": "a", "edits": [{"old_string": old, "new_string": new} for old, new in edits]}


def test_sequential_edits_become_simultaneous_edits_if_they_cannot_overlap() -> None:
    mapped = map_call("MultiEdit", multi_edit(("x = 1", "x = 2"), ("y = 3", "y = 4")), "claude", "pi")
    assert mapped == Mapped(
        "edit",
        {"path": "a", "edits": [{"oldText": "x = 1", "newText": "x = 2"}, {"oldText": "y = 3", "newText": "y = 4"}]},
    )


@pytest.mark.parametrize(
    "edits",
    [
        [("one", "two"), ("two", "three")],
        [("one", "two"), ("wo\nrest", "x")],
        [("abc", "x"), ("cde", "y")],
        [("abc", "x"), ("b", "y")],
        [("a\n", ""), ("bc", "d")],
    ],
)
def test_edits_that_build_on_each_other_are_kept(edits: list[tuple[str, str]]) -> None:
    assert map_call("MultiEdit", multi_edit(*edits), "claude", "pi") is None


short = st.text(alphabet="abc", min_size=1, max_size=3)


@given(st.text(alphabet="abc", max_size=14), st.lists(st.tuples(short, short), min_size=2, max_size=3))
def test_simultaneous_edits_give_the_same_file_as_sequential_edits(text: str, edits: list[tuple[str, str]]) -> None:
    if map_call("MultiEdit", multi_edit(*edits), "claude", "pi") is None:
        return
    stepwise = text
    for old, new in edits:
        if stepwise.count(old) != 1:
            return
        stepwise = stepwise.replace(old, new)
    places = sorted((text.index(old), old, new) for old, new in edits)
    at_once, done = "", 0
    for start, old, new in places:
        assert text.count(old) == 1
        assert start >= done
        at_once += text[done:start] + new
        done = start + len(old)
    assert at_once + text[done:] == stepwise


def test_a_list_of_one_edit_is_a_single_edit() -> None:
    mapped = map_call("MultiEdit", multi_edit(("b", "c")), "claude", "neovate")
    assert mapped is not None
    assert mapped.name == "edit"
    assert map_call("MultiEdit", {"file_path": "a", "edits": []}, "claude", "pi") is None


def test_literal_text_becomes_an_escaped_regular_expression() -> None:
    mapped = map_call("grep", {"pattern": "f(x) [1]", "literal": True}, "pi", "claude")
    assert mapped is not None
    assert mapped.arguments["pattern"] == r"f\(x\) \[1\]"
    assert mapped.changed == ("the literal text became a regular expression that matches it",)


def test_arguments_without_effect_do_not_prevent_mapping() -> None:
    assert map_call("Grep", {"pattern": "a", "-n": False, "-C": 3}, "claude", "neovate") == Mapped(
        "grep", {"pattern": "a", "output_mode": "files_with_matches"}
    )
    assert map_call("Read", {"file_path": "a", "offset": 0}, "claude", "neovate") == Mapped("read", {"file_path": "a"})
    assert map_call("bash", {"command": "ls", "pty": False}, "omp", "pi") == Mapped("bash", {"command": "ls"})


def test_the_line_end_that_neovate_adds_is_written_out() -> None:
    mapped = map_call("write", {"file_path": "a", "content": "x"}, "neovate", "claude")
    assert mapped is not None
    assert mapped.arguments == {"file_path": "a", "content": "x\n"}
    assert "line end" in mapped.changed[0]


def test_names_without_arguments_are_mapped_if_unambiguous() -> None:
    assert map_name("Task", "claude", "neovate") == "task"
    assert map_name("find", "pi", "omp") == "glob"
    assert map_name("find", "omp", "pi") is None, "two different tools of oh-my-pi have had this name"
    assert map_name("ls", "pi", "neovate") is None
    assert map_name("read", "pi", "native") is None
    assert map_name("read", "pi", "pi") is None
    assert map_name("WebSearch", "claude", "omp") is None
    assert map_name("read", "pi", "nobody") is None
    assert map_name("read", "nobody", "pi") is None


def test_the_arguments_passed_in_are_not_modified() -> None:
    arguments = {"path": "a", "edits": [{"oldText": "b", "newText": "c"}], "oldText": "d", "newText": "e"}
    before = json.dumps(arguments)
    mapped = map_call("edit", arguments, "pi", "omp")
    assert mapped is None
    assert json.dumps(arguments) == before


NAMES = sorted({name for calls in SAME_CALL.values() for name, _ in calls.values()} | {case[1] for case in OLDER})
KEYS = sorted(
    {key for calls in SAME_CALL.values() for _, arguments in calls.values() for key in arguments}
    | {key for case in (*OLDER,) for key in case[2]}
    | {key for case in KEPT for key in case[3]}
    | {"-B", "before_context", "after_context", "line_numbers", "multiline", "offset", "skip", "unknown"}
)
VALID = [(source, name, arguments) for calls in SAME_CALL.values() for source, (name, arguments) in calls.items()] + [
    (case[0], case[1], case[2]) for case in OLDER
]

junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(), inner, max_size=3),
    max_leaves=6,
)
agents = st.sampled_from(AGENTS)


def essence(meaning: Intent | None) -> Intent | None:
    """An intent without its descriptive fields."""
    return msgspec.structs.replace(meaning, description=None) if isinstance(meaning, Bash) else meaning


def check_meaning_is_kept(name: str, arguments: dict[str, Any], source: str, target: str) -> None:
    mapped = map_call(name, arguments, source, target)
    if mapped is None:
        return
    meant = essence(find_intent(name, arguments, source))
    assert meant is not None
    assert essence(find_intent(mapped.name, mapped.arguments, target)) == meant
    back = map_call(mapped.name, mapped.arguments, target, source)
    if back is not None:
        assert essence(find_intent(back.name, back.arguments, source)) == meant


@given(st.sampled_from(NAMES) | st.text(), st.dictionaries(st.sampled_from(KEYS), junk, max_size=4), agents, agents)
def test_junk_never_raises_and_never_changes_its_meaning(
    name: str, arguments: dict[str, Any], source: str, target: str
) -> None:
    check_meaning_is_kept(name, arguments, source, target)


@given(st.sampled_from(VALID), st.data(), agents)
def test_a_call_with_one_invalid_argument_never_raises(
    call: tuple[str, str, dict[str, Any]], data: st.DataObject, target: str
) -> None:
    source, name, arguments = call
    spoilt = {**arguments, data.draw(st.sampled_from(KEYS)): data.draw(junk)}
    check_meaning_is_kept(name, spoilt, source, target)
    missing = dict(arguments)
    if missing:
        del missing[data.draw(st.sampled_from(sorted(missing)))]
    check_meaning_is_kept(name, missing, source, target)


@pytest.mark.parametrize(("source", "name", "arguments"), VALID)
def test_a_call_with_an_unknown_argument_is_kept(source: str, name: str, arguments: dict[str, Any]) -> None:
    assert all(map_call(name, {**arguments, "unknown": 1}, source, target) is None for target in AGENTS)


@pytest.mark.parametrize("arguments", [None, [], "text", 3, {"path": {"deep": [{}]}}, {"edits": [[[]]], "path": "a"}])
def test_a_call_with_malformed_arguments_is_kept(arguments: Any) -> None:
    for name in NAMES:
        for source in AGENTS:
            assert all(map_call(name, arguments, source, target) is None for target in AGENTS)


paths = st.from_regex(r"(/|\./)?[a-z]{1,3}(/[a-z.]{1,3}){0,2}", fullmatch=True)
texts = st.text(alphabet="ab\n \\.(", min_size=0, max_size=4)
counts = st.integers(0, 4)
glob_parts = st.sampled_from(["**", "*.py", "a*", "src", "a.py", "*", "{a,b}.c"])
patterns = st.lists(glob_parts, min_size=1, max_size=3).map("/".join)
todo_entries = st.fixed_dictionaries(
    {"content": st.sampled_from("abc"), "status": st.sampled_from(["pending", "in_progress", "completed"])},
    optional={"activeForm": texts, "id": st.just("1"), "priority": st.just("low")},
)


def calls_of(source: str, name: str, must: dict[str, Any], may: dict[str, Any]) -> Any:
    return st.tuples(st.just(source), st.just(name), st.fixed_dictionaries(must, optional=may))


lines = {"offset": counts, "limit": counts}
claude_replacement = st.fixed_dictionaries(
    {"old_string": texts, "new_string": texts}, optional={"replace_all": st.booleans()}
)
pi_replacement = st.fixed_dictionaries({"oldText": texts, "newText": texts})
modes = st.sampled_from(["content", "files_with_matches", "count"])
milliseconds = st.integers(1, 8_000_000)
seconds = st.integers(1, 4_000) | st.floats(0.001, 4_000)
omp_paths = st.tuples(paths, st.sampled_from(["", ":3", ":3-", ":3-5", ":3+2", ":raw", ":raw:2-3", ":-4"])).map("".join)

likely_calls = st.one_of(
    calls_of("claude", "Read", {"file_path": paths}, lines),
    calls_of("pi", "read", {"path": paths}, lines),
    calls_of("neovate", "read", {"file_path": paths}, lines),
    calls_of("omp", "read", {"path": omp_paths}, {}),
    calls_of("claude", "Write", {"file_path": paths, "content": texts}, {}),
    calls_of("neovate", "write", {"file_path": paths, "content": texts}, {}),
    calls_of("omp", "write", {"path": omp_paths, "content": texts}, {}),
    calls_of("claude", "Edit", {"file_path": paths, "old_string": texts, "new_string": texts}, {}),
    calls_of("neovate", "edit", {"file_path": paths, "old_string": texts, "new_string": texts}, {}),
    calls_of("claude", "MultiEdit", {"file_path": paths, "edits": st.lists(claude_replacement, max_size=3)}, {}),
    calls_of("pi", "edit", {"path": paths, "edits": st.lists(pi_replacement, max_size=3)}, {}),
    calls_of("omp", "edit", {"path": paths, "oldText": texts, "newText": texts}, {"all": st.booleans()}),
    calls_of(
        "claude",
        "Bash",
        {"command": texts},
        {"timeout": milliseconds, "run_in_background": st.booleans(), "description": texts},
    ),
    calls_of("pi", "bash", {"command": texts}, {"timeout": seconds}),
    calls_of("omp", "bash", {"command": texts}, {"timeout": seconds, "async": st.booleans()}),
    calls_of("neovate", "bash", {"command": texts}, {"timeout": milliseconds}),
    calls_of(
        "claude",
        "Grep",
        {"pattern": texts},
        {
            "path": paths,
            "glob": patterns,
            "output_mode": modes,
            "-A": counts,
            "-B": counts,
            "-i": st.booleans(),
            "-n": st.booleans(),
            "head_limit": counts,
            "offset": counts,
        },
    ),
    calls_of(
        "claude", "Grep", {"pattern": texts, "output_mode": st.just("content")}, {"path": paths, "glob": patterns}
    ),
    calls_of("pi", "grep", {"pattern": texts}, {"path": paths, "glob": patterns, "literal": st.booleans()}),
    calls_of("pi", "grep", {"pattern": texts}, {"context": counts, "limit": counts, "ignoreCase": st.booleans()}),
    calls_of("omp", "grep", {"pattern": texts}, {"path": paths | patterns, "case": st.booleans(), "skip": counts}),
    calls_of("neovate", "grep", {"pattern": texts}, {"include": patterns, "output_mode": modes, "context": counts}),
    calls_of("claude", "Glob", {"pattern": patterns}, {"path": paths}),
    calls_of("pi", "find", {"pattern": patterns}, {"path": paths, "limit": st.integers(1, 400)}),
    calls_of("omp", "glob", {"path": patterns | st.tuples(paths, patterns).map("/".join)}, {"limit": counts}),
    calls_of("neovate", "glob", {"pattern": patterns}, {"path": paths}),
    calls_of("claude", "TodoWrite", {"todos": st.lists(todo_entries, max_size=3)}, {}),
    calls_of("omp", "todo", {"op": st.just("init"), "items": st.lists(texts, max_size=3)}, {"phase": texts}),
    calls_of("neovate", "todoWrite", {"todos": st.lists(todo_entries, max_size=3)}, {}),
)


@given(likely_calls, agents)
def test_a_call_has_the_same_intent_after_a_round_trip(call: tuple[str, str, dict[str, Any]], target: str) -> None:
    source, name, arguments = call
    check_meaning_is_kept(name, arguments, source, target)


def test_typical_calls_are_mapped_to_some_agent() -> None:
    """Otherwise the property above would prove nothing."""
    mapped = [
        map_call(name, arguments, source, target) is not None
        for source, name, arguments in VALID
        for target in AGENTS
        if target != source
    ]
    assert sum(mapped) > len(mapped) / 2


def test_calls_in_real_claude_sessions_are_mapped_to_pi() -> None:
    """Every call that Claude Code wrote into the samples, except the sub-agent, which Pi does not have."""
    kept = {
        block["name"]
        for file in (CORPUS / "claude").glob("*.jsonl")
        for block in tool_uses(file)
        if map_call(block["name"], block["input"], "claude", "pi") is None
    }
    assert kept == {"Agent", "bash", "read"}, "the last two are Pi's own, in the session that was converted from Pi"


def test_calls_in_neovate_sessions_are_mapped_to_claude() -> None:
    files = (CORPUS / "neovate").glob("*.jsonl")
    names = {block["name"] for file in files for block in tool_uses(file)}
    assert names == {"read"}
    assert map_name("read", "neovate", "claude") == "Read"


def tool_uses(file: Path) -> list[dict[str, Any]]:
    found = []
    for line in file.read_bytes().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # some samples are damaged on purpose
        content = entry.get("message", entry).get("content")
        if isinstance(content, list):
            found += [block for block in content if block.get("type") == "tool_use"]
    return found


@pytest.mark.parametrize(
    ("target", "expected"),
    [("claude", "claude calls this tool Read"), ("neovate", "neovate has other arguments for this tool")],
)
def test_the_report_names_a_tool_only_where_its_name_changes(target: str, expected: str) -> None:
    session = sessiontree.create(cwd="/p", in_memory=True)
    session.append("user", "Read it.")
    session.append("assistant", [{"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a.py"}}])
    done = sessiontree.convert(session, target)
    list(done.lines)
    assert [(note.what, note.why) for note in done.report.notes if note.kind == "mapped"] == [
        ("calls of read", expected)
    ]
