"""What the pages show and do."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from sessiontree.app.actions.table import ACTIONS
from sessiontree.app.actions.tags import plan_tag
from sessiontree.archive.archive_home import Home
from sessiontree.errors import UsageError
from sessiontree.library.library import Library
from sessiontree.session.open import create
from sessiontree.session.session import Session
from sessiontree.web.action_routes import check_arguments
from sessiontree.web.site import key_of
from tests.export.subagents import session_with_branch, session_with_own_session, write_transcript
from tests.web.conftest import Site, until


@pytest.fixture
def session(home: Path, library: Library) -> Session:
    session = create(str(home / "projects" / "shop"), home=library.home)
    session.rename("Two ways")
    session.append("user", "question")
    session.append("assistant", "**answer**")
    fork = session.leaf
    session.append("user", "the first way")
    session.append("assistant", "first")
    session.move(fork)
    session.append("user", "the second way")
    session.append("assistant", "second")
    session.flush()
    library.refresh()
    return session


def address(session: Session) -> str:
    return f"/s/{key_of(session.location)}"


def test_the_list_takes_the_queries_of_the_terminal_ui(known: Site) -> None:
    def count(query: str) -> int:
        return len(re.findall('class="session"', known.get(f"/rows?{query}").text))

    everything = count("")
    assert everything >= 5
    assert 0 < count("q=agent:pi") < everything
    assert count("q=agent:pi+-agent:pi") == 0
    assert count("health=damaged") == 1
    assert count("group=agent") == everything
    assert known.get("/complete?q=agent:pi").json() == {"completed": "agent:pi "}


def test_tags_and_models_filter_the_list(known: Site, session: Session, library: Library) -> None:
    plan = known.post(f"{address(session)}/plan", {"action": "tag", "arguments": {"add": ["wip"]}}).json()
    assert known.post("/do", {"plan": plan["plan"]}).json()["done"] is True
    assert "Two ways" in known.get("/rows?q=tag:wip").text
    assert "Two ways" not in known.get("/rows?q=-tag:wip").text
    assert "Two ways" not in known.get("/rows?q=model:sonnet").text


def test_a_branch_is_shown_without_the_others_and_abandoned_entries_are_marked(known: Site, session: Session) -> None:
    page = known.get(address(session)).text
    assert "<strong>answer</strong>" in page
    assert "second" in page
    assert "the first way" not in page
    other = next(id for id in session.leaves() if id != session.leaf)
    page = known.get(f"{address(session)}?entry={other}").text
    assert "the first way" in page
    assert 'class="user abandoned"' in page


def test_what_a_compaction_replaced_opens_above_it(known: Site, session: Session) -> None:
    session.append({"type": "compaction", "summary": "in short", "firstKeptEntryId": session.leaf, "tokensBefore": 10})
    session.flush()
    page = known.get(address(session)).text
    fold = page[page.index('<details class="compacted"') : page.index("</article>\n</details>")]
    assert "3 entries replaced by a summary" in fold
    assert "question" in fold
    assert "in short" not in fold


def test_a_long_session_is_shown_in_windows_without_gaps(known: Site, home: Path, library: Library) -> None:
    session = create(str(home), home=library.home)
    for at in range(500):
        session.append("user", f"prompt <{at}>")
        session.append("assistant", f"reply <{at}>")
    session.flush()
    library.refresh()
    start, found = 0, []
    for _ in range(50):
        answer = known.get(f"{address(session)}/cards?start={start}")
        found += re.findall(r"(?:prompt|reply) &lt;(\d+)&gt;", answer.text)
        start = int(answer.headers["x-end"])
        if start == int(answer.headers["x-total"]):
            break
    assert [int(number) for number in found] == [number for number in range(500) for _ in range(2)]
    before = known.get(f"{address(session)}/cards?before=1000")
    assert before.headers["x-end"] == "1000"
    assert "reply &lt;499&gt;" in before.text


def test_an_action_is_planned_done_and_undone(known: Site, session: Session) -> None:
    plan = known.post(f"{address(session)}/plan", {"action": "rename", "arguments": {"name": "Another name"}}).json()
    assert "Two ways" in known.get(address(session)).text, "a plan changes nothing"
    done = known.post("/do", {"plan": plan["plan"]}).json()
    assert "<h1>Another name</h1>" in known.get(address(session)).text
    assert known.post("/do", {"plan": plan["plan"]}).status == 404, "a plan is carried out once"
    assert known.post("/do", {"plan": done["undo"]}).status == 200
    assert "<h1>Two ways</h1>" in known.get(address(session)).text


def test_a_plan_is_refused_when_the_session_has_changed(known: Site, session: Session) -> None:
    wanted = {"action": "switch", "arguments": {"entry": session.ids[0]}}
    plan = known.post(f"{address(session)}/plan", wanted).json()
    session.append("user", "meanwhile")
    session.flush()
    assert known.post("/do", {"plan": plan["plan"]}).status == 409


def test_archived_sessions_can_be_restored(known: Site, session: Session, library: Library) -> None:
    plan = known.post(f"{address(session)}/plan", {"action": "archive"}).json()
    assert known.post("/do", {"plan": plan["plan"]}).json()["done"] is True
    assert known.get(address(session)).status == 404
    item = re.search('data-restore="([^"]+)"', known.get("/archive").text)
    assert item is not None
    plan = known.post("/restore", {"action": "restore", "item": item[1]}).json()
    assert known.post("/do", {"plan": plan["plan"]}).json()["done"] is True
    assert known.get(address(session)).status == 200


def test_arguments_of_a_page_are_checked_and_name_no_files() -> None:
    assert check_arguments(ACTIONS["label"], {"entry": "e", "text": ""}) == {"entry": "e"}
    for name, given in (
        ("convert", {"to": "pi", "path": "/etc/x"}),
        ("repair", {"path": "/etc/x"}),
        ("tag", {"add": "wip"}),
        ("label", {"text": "x"}),
        ("merge", {"entry": "e", "how": "other"}),
        ("pin", {"pinned": "yes"}),
    ):
        with pytest.raises(UsageError):
            check_arguments(ACTIONS[name], given)


def test_what_a_model_receives_and_what_is_left_out(known: Site, session: Session) -> None:
    session.append({"type": "compaction", "summary": "in short", "firstKeptEntryId": session.leaf, "tokensBefore": 10})
    session.flush()
    page = known.get(f"{address(session)}/context?form=anthropic").text
    assert "in short" in page
    assert "3 messages of the branch are left out" in page
    assert "the second way" in page[page.index("Left out") :]


def test_entries_of_another_writer_arrive_once_and_in_order(known: Site, session: Session) -> None:
    count = len(session)
    stream = known.events(f"{address(session)}/events?from=0")
    assert next(stream)[0] == "hello"
    first = [next(stream)[1]["id"] for _ in range(count)]
    assert first == session.ids[:count]
    for at in range(700):
        session.append("user", f"more {at}")
    session.flush()
    arrived = []
    while len(arrived) < 700:
        name, fields = next(stream)
        if name == "entry":
            arrived.append(fields["node"])
    assert arrived == list(range(count, count + 700))
    stream.close()
    again = known.events(f"{address(session)}/events?from=0-{count + 600}")
    assert next(again)[0] == "hello"
    assert [next(again)[1]["node"] for _ in range(100)] == list(range(count + 600, count + 700))
    again.close()


def test_a_new_session_is_reported_to_open_lists(known: Site, session: Session, home: Path, library: Library) -> None:
    stream = known.events("/events")
    assert next(stream)[0] == "hello"
    other = create(str(home), home=library.home)
    other.append("user", "just started")
    other.flush()
    until(lambda: next(stream)[0] == "library" and "just started" in known.get("/rows").text)
    stream.close()


def test_costs_agree_with_the_command_line(known: Site, library: Library) -> None:
    from sessiontree.views.listing import session_cost

    rows = known.get("/rows").text
    for summary in library.sessions():
        row = rows[rows.index(key_of(summary.ref)) :]
        shown = re.search('<span title="cost">([^<]*)</span>', row)
        assert shown is not None
        assert shown[1].replace("$", "") == (session_cost(summary).text() if summary.messages else "-")
        assert ("$" in shown[1]) == bool(summary.messages)


def test_other_commands_import_nothing_of_the_web_page() -> None:
    import subprocess
    import sys

    program = (
        "import sys; from sessiontree.cli import parser; import sessiontree.cli.list, sessiontree.cli.export, "
        "sessiontree.cli.serve, sessiontree.export; "
        "print([name for name in ('starlette', 'uvicorn', 'jinja2', 'markdown_it', 'pygments') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip() == "[]"


def test_a_download_masks_secrets_and_the_home_folder(known: Site, session: Session, home: Path) -> None:
    session.append("user", f"password=hunter2 in {home}/x")
    session.flush()
    plain = known.get(f"{address(session)}/download?format=md")
    assert plain.headers["content-disposition"].startswith("attachment")
    assert "hunter2" in plain.text
    masked = known.get(f"{address(session)}/download?format=md&redact=1").text
    assert "hunter2" not in masked
    assert str(home) not in masked


def test_a_sub_agent_opens_inside_the_call_that_started_it(known: Site, home: Path, library: Library) -> None:
    in_file = write_transcript(home / ".claude" / "projects" / "-work-nested")
    on_branch = session_with_branch(home, Path(library.home))
    library.refresh()
    for location in (str(in_file), on_branch.location):
        page = known.get(f"/s/{key_of(location)}").text
        source = re.search('class="subagent" data-source="([^"]+)"', page)
        assert source is not None
        cards = known.get(html.unescape(source[1])).text
        assert "the nested <strong>answer</strong>" in cards
        assert "delegate this" not in cards
        assert "abandoned" not in cards


@pytest.mark.parametrize("dialect", ["native", "claude"])
def test_sub_agents_in_sessions_of_their_own_open_inside_their_calls(
    known: Site, home: Path, library: Library, dialect: str
) -> None:
    folder = home / ".claude" / "projects" / "-work"
    session = session_with_own_session(folder, Path(library.home), dialect)
    library.refresh()
    page = known.get(address(session)).text
    sources = re.findall('class="subagent" data-source="([^"]+)"', page)
    assert len(sources) == 2
    for source, words in zip(sources, ("first", "second"), strict=True):
        assert f"the {words} <strong>answer</strong>" in known.get(html.unescape(source)).text


def test_a_comparison_shows_the_cards_of_both_branches(known: Site, session: Session) -> None:
    session.append(
        "assistant",
        [{"type": "toolCall", "id": "c1", "name": "write", "arguments": {"path": "x.py", "content": "x = 1"}}],
    )
    session.append("toolResult", "written to x.py", toolCallId="c1", toolName="write", isError=False)
    session.flush()
    page = known.get(f"{address(session)}/compare").text
    left, right = page.split("<section>")[1:]
    for words in ('<article class="user"', "the second way", '<details class="call"', "written to x.py"):
        assert words in left, words
    assert "the first way" in right
    assert "question" not in left + right, "what both have is not repeated"


def test_tags_that_another_program_changes_appear_in_open_lists(
    known: Site, session: Session, library: Library
) -> None:
    known.get("/rows")
    stream = known.events("/events")
    assert next(stream)[0] == "hello"
    plan_tag(Home(library.home).tags, session, ["elsewhere"]).do()
    until(lambda: next(stream)[0] == "library" and ">elsewhere</span>" in known.get("/rows").text)
    stream.close()


def test_pages_of_a_group_start_with_its_heading_and_keep_all_filters(
    known: Site, home: Path, library: Library
) -> None:
    for at in range(60):
        one = create(str(home / "projects" / "many"), home=library.home)
        one.append("user", f"prompt {at}")
        one.flush()
    library.refresh()
    page = known.get("/rows?group=project&health=ok&start=50").text
    assert page.index("<h2>") < page.index('class="session"')
    assert re.search('rel="prev" href="[^"]*group=project&amp;health=ok&amp;start=0"', page)


def test_messages_that_the_agent_loses_are_shown_and_marked_on_request(
    known: Site, session: Session, library: Library
) -> None:
    path = Path(session.location)
    lines = path.read_bytes().splitlines(keepends=True)
    lost = next(at for at, line in enumerate(lines) if b"**answer**" in line)
    path.write_bytes(b"".join(lines[:lost] + lines[lost + 1 :]))
    library.refresh()
    page = known.get(address(session)).text
    assert ">question<" not in page
    assert known.get(f"{address(session)}/outline").headers["x-lost"] == "1"
    page = known.get(f"{address(session)}?recovered=1").text
    assert 'class="user recovered"' in page
    assert ">question<" in page
    assert 'class="user recovered"' in known.get(f"{address(session)}/cards?start=0&recovered=1").text
    assert "recovered=1&amp;entry=" in known.get(f"{address(session)}/outline?recovered=1").text


def test_the_list_is_shown_if_tags_cannot_be_read(known: Site, session: Session, library: Library) -> None:
    Path(library.home, "marks.json").write_text("{bad")
    until(lambda: "tags are not shown" in known.get("/rows").text)
    assert "Two ways" in known.get("/rows").text


def test_a_session_in_a_folder_that_cannot_exist_is_shown(known: Site, home: Path, library: Library) -> None:
    path = home / ".pi" / "agent" / "sessions" / "--odd--" / "s.jsonl"
    path.parent.mkdir(parents=True)
    common = {"timestamp": "2026-02-16T11:59:00.000Z"}
    header = {"type": "session", "version": 3, "id": "11111111-1111-4111-8111-111111111111", "cwd": "/p\0x"}
    message = {"role": "user", "content": "an odd folder"}
    rows = [{**header, **common}, {"type": "message", "id": "a", "parentId": None, "message": message, **common}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    library.refresh()
    until(lambda: "an odd folder" in known.get("/").text)
    assert "an odd folder" in known.get(f"/s/{key_of(str(path))}").text
    assert known.get("/stats").status == 200
