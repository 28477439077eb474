"""Mistakes in the Python API: refused at once, with an error of ours that names the next step."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

import pytest

import sessiontree
from sessiontree.branches.merge import merge
from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import Text, ToolResult, User
from sessiontree.errors import InvalidEntryError, NotFoundError, SessionTreeError, UsageError
from sessiontree.providers import render
from tests.library.world import IDS, World


@pytest.fixture
def session(tmp_path: Path) -> sessiontree.Session:
    return sessiontree.create(tmp_path, home=tmp_path / "home", appear="now")


@pytest.mark.parametrize(
    ("role", "hint"),
    [("usr", "did you mean 'user'"), ("tool_result", "did you mean 'toolResult'"), ("x", "use assistant, bash")],
)
def test_an_unknown_role_is_refused_with_a_suggestion(session: sessiontree.Session, role: str, hint: str) -> None:
    for arguments in ((role, "hello"), ({"role": role, "content": "hello"},)):
        with pytest.raises(InvalidEntryError, match=hint):
            session.append(*arguments)  # type: ignore[arg-type]
    assert len(session) == 0


@pytest.mark.parametrize("content", ["", "  \n", None, []])
def test_an_empty_prompt_is_refused(session: sessiontree.Session, content: Any) -> None:
    for arguments in (("user", content), ({"role": "user", "content": content},)):
        with pytest.raises(InvalidEntryError, match="the prompt is empty"):
            session.append(*arguments)
    assert len(session) == 0


@pytest.mark.parametrize("content", [5, ["hello"], [{"text": "hello"}], {"type": "text", "text": "hello"}, b"hello"])
def test_content_that_is_neither_text_nor_blocks_is_refused(session: sessiontree.Session, content: Any) -> None:
    for arguments in (("user", content), ({"role": "assistant", "content": content},)):
        with pytest.raises(InvalidEntryError, match="a text, or a list of blocks with a `type` each"):
            session.append(*arguments)
    with pytest.raises(InvalidEntryError, match="a mapping, a message or a role, not int"):
        session.append(content if isinstance(content, int) else 7)  # type: ignore[arg-type]
    assert len(session) == 0


def test_a_message_object_is_appended_as_it_is(session: sessiontree.Session) -> None:
    session.append(User(content="hello"))
    session.branch().append("user", [{"type": "text", "text": "again"}])
    assert [message.text for message in session.context().messages] == ["hello"]
    assert session.entries(session.leaves())[0] != session.entry(session.path_ids()[0])


def test_a_value_that_is_neither_a_message_nor_an_entry_is_refused(session: sessiontree.Session) -> None:
    with pytest.raises(InvalidEntryError, match="a mapping, a message or a role, not Text"):
        session.append(Text("hello"))  # type: ignore[arg-type]
    assert len(session) == 0


@pytest.mark.parametrize("value", [object(), MappingProxyType({1: object()}), deque([object()])])
def test_a_value_that_json_cannot_hold_is_refused(session: sessiontree.Session, value: object) -> None:
    for arguments in ({"role": "user", "content": "hello", "note": value}, {"type": "custom", "data": [value]}):
        with pytest.raises(InvalidEntryError, match="an entry has JSON values only, not object"):
            session.append(arguments)
    assert len(session) == 0


def test_an_entry_with_several_messages_is_refused(session: sessiontree.Session) -> None:
    results = ToolResult(tool_call_id="a"), ToolResult(tool_call_id="b")
    with pytest.raises(InvalidEntryError, match="has one message; append each of its messages"):
        session.append(MessageEntry(message=results[0], more_messages=results[1:]))  # type: ignore[arg-type]
    assert len(session) == 0


def test_an_entry_that_is_nested_too_deeply_is_refused(session: sessiontree.Session) -> None:
    data: list[Any] = []
    for _ in range(100_000):
        data = [data]
    with pytest.raises(InvalidEntryError, match="the entry is nested too deeply"):
        session.append({"type": "custom", "data": data})
    assert len(session) == 0


def test_append_names_the_roles_in_its_types() -> None:
    for append in (sessiontree.Session.append, sessiontree.Branch.append):
        hints = get_type_hints(append)
        assert "'toolResult'" in str(hints["entry"])
        assert "Any" not in str(hints["content"]).replace("Mapping[str, typing.Any]", "")


@pytest.mark.parametrize("wrong", [{"durability": "never"}, {"appear": "later"}, {"large_content": "outside"}])
def test_a_wrong_option_is_refused_at_once(tmp_path: Path, wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(UsageError, match=f"{name}=.*expected '"):
        sessiontree.create(tmp_path, home=tmp_path, **wrong)


def test_a_wrong_way_to_merge_or_render_is_refused(session: sessiontree.Session) -> None:
    first = session.append("user", "one")
    session.append("user", "two")
    other = session.branch(first.id)
    other.append("user", "three")
    with pytest.raises(UsageError, match="how='replay': expected 'summary', 'append'"):
        merge(session, str(other.leaf), how="replay")  # type: ignore[arg-type]
    messages = session.context().messages
    with pytest.raises(UsageError, match="form='openai-responses': expected 'anthropic', 'openai', 'openai-chat'"):
        render(messages, "openai-responses")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="unanswered='keep': expected 'complete', 'strip'"):
        render(messages, "openai", unanswered="keep")  # type: ignore[arg-type]
    assert len(session) == 3


def test_every_public_error_has_one_base_class() -> None:
    errors = [getattr(sessiontree, name) for name in sessiontree.__all__ if name.endswith("Error")]
    assert errors
    assert all(issubclass(error, SessionTreeError) for error in errors)


def test_nothing_is_written_after_close(session: sessiontree.Session) -> None:
    session.append("user", "hello")
    leaf, branch = session.leaf, session.branch()
    session.close()
    session.close()
    size = Path(session.location).stat().st_size
    for use in (
        lambda: session.append("user", "again"),
        lambda: branch.append("user", "again"),
        lambda: session.move(None),
        lambda: session.rename("x"),
        lambda: session.label(str(leaf), "x"),
        lambda: session.set_config(approval_mode="yolo"),
    ):
        with pytest.raises(UsageError, match="the session was closed; open it again"):
            use()
    assert Path(session.location).stat().st_size == size
    assert "closed" in repr(session)


def test_nothing_is_read_after_close(session: sessiontree.Session) -> None:
    session.append("user", "hello")
    leaf, id, branch = str(session.leaf), session.id, session.branch()
    session.close()
    for use in (
        lambda: session.leaf,
        lambda: session.name,
        lambda: len(session),
        lambda: leaf in session,
        lambda: list(session),
        lambda: session.entry(leaf),
        lambda: session.context(),
        lambda: session.context(leaf),
        lambda: session.path_ids(),
        lambda: session.problems,
        lambda: session.known_problems,
        lambda: session.refresh(),
        lambda: branch.context(),
        lambda: session.fork(),
    ):
        with pytest.raises(SessionTreeError, match="the session was closed; open it again"):
            use()
    assert session.id == id
    assert Path(session.location).exists()


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ({"role": "usr", "content": "hello"}, "did you mean 'user'"),
        ({"content": "hello"}, "needs a `role`"),
    ],
)
def test_the_message_of_an_entry_is_checked_like_a_message(
    session: sessiontree.Session, message: dict[str, Any], error: str
) -> None:
    for use in (session.append, session.branch().append):
        with pytest.raises(InvalidEntryError, match=error):
            use({"type": "message", "message": message})
    assert len(session) == 0
    session.append({"type": "message", "message": {"role": "fileMention", "files": []}})  # a role of one client


def test_a_session_describes_itself_in_a_shell(session: sessiontree.Session) -> None:
    session.append("user", "hello")
    assert ", 1 entry)" in repr(session)
    session.rename("解析器")
    shown = repr(session)
    assert session.id in shown
    assert "'解析器'" in shown
    assert session.location in shown
    assert str(session.leaf) in repr(session.branch())


def test_an_id_opens_a_session_of_any_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    path = world.claude(IDS[0], "/work", ["mend the parser"])
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.setenv("SESSIONTREE_CACHE", str(tmp_path / "cache"))
    for wanted in (IDS[0], IDS[0][:8]):
        with sessiontree.open(wanted, home=tmp_path / "own") as session:
            assert session.location == str(path)
    with pytest.raises(NotFoundError):
        sessiontree.open("no-such-session", home=tmp_path / "own")


def test_an_unknown_id_is_reported_as_searched_for_among_the_sessions_of_every_agent(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no session id in the folders of any agent starts with 'nope'"):
        sessiontree.open("nope", home=tmp_path)
