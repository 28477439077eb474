"""Each /command: its output, and the session file afterwards. Runs the real program."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import sessiontree
from sessiontree.chat.commands import COMMANDS
from sessiontree.core.entries import BranchSummary, Compaction, ModeChange, ModelChange, ThinkingLevelChange
from sessiontree.core.messages import message_text
from tests.chat.terminals import Done, Place, Terminal, call, check_is_sound, scripted, session_texts, texts, turn


class Begun:
    """A session with two prompts and two answers."""

    def __init__(self, place: Place, *, name: str | None = None) -> None:
        self._place = place
        session = sessiontree.create(place.project, home=place.home)
        self.first = session.append("user", "why is the lexer slow?").id
        self.one = session.append("assistant", [{"type": "text", "text": "One."}]).id
        self.second = session.append("user", "make it faster").id
        self.two = session.append("assistant", [{"type": "text", "text": "Two."}]).id
        if name is not None:
            session.rename(name)
        self.path = Path(session.location)
        self.id = session.id
        session.close()

    def chat(self, *lines: str, model: str | None = None) -> Done:
        """Type lines into a chat that continues the session, then quit."""
        answers = model or scripted(self._place, turn("Three."), turn("Four."))
        return said_to(self._place, "--session", str(self.path), "--model", answers, lines=lines)

    def session(self) -> sessiontree.Session:
        session = sessiontree.open(self.path, home=self._place.home)
        check_is_sound(session)
        return session


def said_to(place: Place, *arguments: str, lines: tuple[str, ...]) -> Done:
    done = place.run(*arguments, typed="".join(f"{line}\n" for line in (*lines, "/quit")))
    assert (done.code, done.err) == (0, "")
    return done


def other(place: Place, begun: Begun) -> sessiontree.Session:
    """The session besides the one that was begun."""
    (found,) = [session for session in place.sessions() if session.id != begun.id]
    check_is_sound(found)
    return found


def test_the_demonstration_writes_into_no_session_of_the_user(place: Place) -> None:
    begun = Begun(place)
    before = begun.path.read_bytes()
    for which in (("-c",), ("--session", begun.id), ("--fork", begun.id), ("-c", "-p")):
        done = place.run(*which, "--model", "demo", "go on", typed="")
        assert done.code == 2
        assert "the demo model is only for new chats" in done.err
    switched = begun.chat("/model demo")
    assert "the demo model is only for new chats" in switched.out
    resumed = said_to(place, "--model", "demo", lines=("hello", f"/resume {begun.id}", "and now?"))
    assert "the demo model is only for new chats" in resumed.out
    assert begun.path.read_bytes() == before
    assert [session.id for session in place.sessions()] == [begun.id]


def test_every_command_has_a_test_named_after_it() -> None:
    tested = {found[1] for name in globals() if (found := re.match(r"test_slash_([a-z]+)_", name))}
    assert tested == set(COMMANDS)


# Sessions


def test_slash_new_starts_a_named_session_and_leaves_the_old_one_unchanged(place: Place) -> None:
    begun = Begun(place)
    before = begun.path.read_bytes()
    done = begun.chat("/new The other one", "hello")
    assert "The other one\n· " in done.out
    assert begun.path.read_bytes() == before
    assert (other(place, begun).name, texts(other(place, begun))) == ("The other one", ["hello", "Three."])


def test_slash_resume_resumes_a_session_by_id_or_from_a_list(place: Place) -> None:
    begun = Begun(place, name="the slow lexer")
    model = scripted(place, turn("Three."), turn("Four."))
    said_to(place, "--model", model, lines=(f"/resume {begun.id}", "go on"))
    done = said_to(place, "--model", model, lines=("/resume", "1", "and on"))
    assert "the slow lexer" in done.out
    assert texts(begun.session())[-4:] == ["go on", "Three.", "and on", "Three."]
    assert len(place.sessions()) == 1


def test_slash_resume_reports_a_session_that_is_not_found(place: Place) -> None:
    assert "✗ no session matches 'nothing-like-it'" in Begun(place).chat("/resume nothing-like-it").out


def test_slash_continue_resumes_the_last_session_of_the_project(place: Place) -> None:
    begun = Begun(place)
    said_to(place, "--model", scripted(place, turn("Three.")), lines=("/continue", "go on"))
    assert texts(begun.session())[-2:] == ["go on", "Three."]


# Several ways at once


def test_slash_explore_runs_lanes_and_moves_to_the_kept_one(place: Place) -> None:
    begun = Begun(place)
    done = begun.chat("/mode yolo", '/explore 2 "find another way"', "keep 1", "and on")
    assert "lane-1" in done.out
    assert "lane-2" in done.out
    session = begun.session()
    assert texts(session)[-2:] == ["and on", "Three."]
    assert any("find another way" in text for text in texts(session))
    said_once = [
        entry for entry in session if "find another way" in json.dumps(session.fields(entry.id).get("message"))
    ]
    assert len(said_once) == 2  # on a branch each


def test_slash_explore_prints_its_usage_on_wrong_arguments(place: Place) -> None:
    assert "✗ expected /explore N" in Begun(place).chat("/explore many ways").out


# The tree


def test_slash_tree_to_a_prompt_moves_before_it_and_returns_its_text_to_the_input(place: Place) -> None:
    begun = Begun(place)
    done = begun.chat(f"/tree {begun.second}", "n", "make it smaller")
    assert f"· now at {begun.one[:8]}" in done.out
    assert "(edit and resend: make it faster)" in done.out
    assert texts(begun.session()) == ["why is the lexer slow?", "One.", "make it smaller", "Three."]
    assert len(begun.session().leaves()) == 2


def test_slash_tree_moves_to_an_answer_and_the_first_prompt_starts_over(place: Place) -> None:
    begun = Begun(place)
    begun.chat(f"/tree {begun.one}", "n", "on from one")
    assert texts(begun.session())[-3:] == ["One.", "on from one", "Three."]
    done = begun.chat(f"/tree {begun.first}", "n", "anew")
    assert "· now before the first message" in done.out
    assert texts(begun.session()) == ["anew", "Three."]


def test_slash_fork_creates_a_session_up_to_a_prompt_and_leaves_the_old_one_unchanged(place: Place) -> None:
    begun = Begun(place)
    before = begun.path.read_bytes()
    done = begun.chat(f"/fork {begun.second}", "make it smaller")
    assert "(edit and resend: make it faster)" in done.out
    assert begun.path.read_bytes() == before
    forked = other(place, begun)
    assert texts(forked) == ["why is the lexer slow?", "One.", "make it smaller", "Three."]
    assert forked.header.forked_from is not None
    assert forked.header.forked_from.session == begun.id


def test_slash_clone_copies_the_branch_and_the_name_with_a_suffix(place: Place) -> None:
    begun = Begun(place, name="the slow lexer")
    before = begun.path.read_bytes()
    done = begun.chat("/clone", "in the copy")
    assert "the slow lexer (branch)\n· " in done.out
    assert begun.path.read_bytes() == before
    assert other(place, begun).name == "the slow lexer (branch)"
    assert texts(other(place, begun)) == [*texts(begun.session()), "in the copy", "Three."]


@pytest.mark.parametrize("how", ["/fork {second}", "/clone", "--fork"])
def test_approvals_stay_with_the_old_session_and_a_notice_reports_that(place: Place, how: str) -> None:
    begun = Begun(place)
    with begun.session() as session:
        session.set_config(approval_mode="yolo", approval_tools=("bash",))
    if how == "--fork":
        lines: tuple[str, ...] = ("write it", "n")
        script = scripted(place, turn("I write.", call("write", path="x", content="x")), turn("No, then."))
        out = said_to(place, "--fork", begun.id, "--model", script, lines=lines).out
    else:
        script = scripted(place, turn("I write.", call("write", path="x", content="x")), turn("No, then."))
        out = begun.chat("y", how.format(second=begun.second), "write it", "n", model=script).out
    assert "approvals were not copied (mode yolo; approved: bash)" in out
    assert "Allow?" in out
    assert not (place.project / "x").exists()
    assert other(place, begun).config.approval_mode == "default"
    assert begun.session().config.approval_mode == "yolo"


def test_slash_clone_of_an_unnamed_session_is_unnamed(place: Place) -> None:
    begun = Begun(place)
    begun.chat("/clone")
    assert other(place, begun).given_name is None


def test_slash_branch_starts_a_branch_labels_its_entry_and_lists_branches(place: Place) -> None:
    begun = Begun(place)
    done = begun.chat(f"/branch {begun.one} parting", "another way", "/branch")
    assert "the next message starts a branch" in done.out
    assert re.search(r"●  \w{8}  parting .* Three\.", done.out)
    assert re.search(rf"○  {begun.two[:8]} .* Two\.", done.out)
    assert begun.session().labels == {begun.one: "parting"}
    assert texts(begun.session())[-2:] == ["another way", "Three."]


def test_slash_switch_moves_to_the_end_of_a_branch_by_label_or_from_a_list(place: Place) -> None:
    begun = Begun(place)
    done = begun.chat("/label the old way", f"/branch {begun.one}", "another way", "/switch the old way", "n")
    assert f"· now at {begun.two[:8]}" in done.out
    assert begun.session().leaf == begun.two
    begun.chat("/switch", "1", "")
    assert texts(begun.session())[-2:] == ["another way", "Three."]


def test_slash_switch_summarizes_the_old_branch_on_request(place: Place) -> None:
    begun = Begun(place)
    model = scripted(place, turn("Three."), turn("By the model.", when="another way"))
    lines = ("/label the old way", f"/branch {begun.one}", "another way", "/switch the old way", "y")
    done = begun.chat(*lines, model=model)
    assert "Summarize the branch you are leaving?" in done.out
    assert "· added a summary of the branch you left" in done.out
    session = begun.session()
    (summary,) = session.entries([session.leaf or ""])
    assert isinstance(summary, BranchSummary)
    assert "By the model." in summary.summary
    assert summary.parent_id == begun.two


def test_slash_switch_along_the_same_branch_offers_no_summary(place: Place) -> None:
    begun = Begun(place)
    done = begun.chat(f"/branch {begun.one}", f"/switch {begun.two}", "and now?")
    assert "Summarize" not in done.out
    assert texts(begun.session())[-3:] == ["Two.", "and now?", "Three."]


@pytest.mark.parametrize("word", ["tree", "switch"])
def test_leaving_a_branch_offers_no_summary_if_a_setting_turns_it_off(place: Place, word: str) -> None:
    (place.home / "settings.json").write_text(json.dumps({"branchSummary": {"skipPrompt": True}}))
    begun = Begun(place)
    done = begun.chat(f"/branch {begun.one}", "another way", f"/{word} {begun.two}", "and now?")
    assert "Summarize" not in done.out
    assert texts(begun.session())[-3:] == ["Two.", "and now?", "Four."]


def test_slash_merge_adds_a_summary_of_another_branch(place: Place) -> None:
    begun = Begun(place)
    model = scripted(place, turn("Three."), turn("By the model.", when="make it faster"))
    done = begun.chat(f"/branch {begun.one}", "another way", f"/merge {begun.two}", model=model)
    assert "· summarized 2 messages at" in done.out
    (summary,) = [entry for entry in begun.session().path() if isinstance(entry, BranchSummary)]
    assert begun.session().leaf == summary.id
    assert "By the model." in summary.summary


def test_slash_diff_compares_two_branches_and_writes_nothing(place: Place) -> None:
    begun = Begun(place)
    begun.chat(f"/branch {begun.one}", "another way")
    before = begun.path.read_bytes()
    done = begun.chat(f"/diff {begun.two}")
    assert f"branches diverge after {begun.one[:8]}" in done.out
    assert re.search(r"another way +│ +• make it faster", done.out)
    assert begun.path.read_bytes() == before


def test_slash_label_without_labels_tells_how_to_add_one(place: Place) -> None:
    assert "no labels yet; /label TEXT labels this message" in Begun(place).chat("/label").out


def test_a_question_with_one_choice_names_one_number(place: Place) -> None:
    begun = Begun(place)
    with begun.session() as session:
        session.branch(at=begun.one).append("user", "another way")
    said = begun.chat("/diff", "2", "").out
    assert "[1, Enter to cancel]" in said
    assert "type a number (1)" in said


def test_slash_label_labels_this_message_or_another_and_lists_labels(place: Place) -> None:
    begun = Begun(place)
    done = begun.chat("/label the end", f"/label the question @{begun.first}", "/label")
    assert begun.session().labels == {begun.two: "the end", begun.first: "the question"}
    assert f"{begun.first[:8]}  the question" in done.out


def test_slash_label_after_a_change_of_model_thinking_or_mode_labels_a_message_that_the_tree_shows(
    place: Place,
) -> None:
    begun = Begun(place)
    model = scripted(place, turn("Three."))
    done = begun.chat("/thinking high", "/mode autoEdit", f"/model {model}", "/label the end", "/tree", "")
    assert begun.session().type_of(begun.session().leaf or "") == "mode_change"
    assert begun.session().labels == {begun.two: "the end"}
    assert re.search(r"Two\..*the end|the end.*Two\.", done.out)
    begun.chat("n", f"/branch {begun.session().leaf} the start")
    assert begun.session().labels == {begun.two: "the start"}


def test_slash_name_sets_the_name_and_an_empty_name_removes_it(place: Place) -> None:
    begun = Begun(place)
    assert "· A better name\n" in begun.chat("/name A  better name").out
    assert begun.session().given_name == "A better name"
    begun.chat("/name")
    assert begun.session().given_name is None


# What is kept


def test_slash_compact_replaces_older_messages_with_a_summary(place: Place) -> None:
    begun = Begun(place)
    long = scripted(
        place, turn("word " * 30_000), turn("Short."), turn("By the model.", when="keep the words", repeat=True)
    )
    done = begun.chat("say much", "say little", "/compact keep the words", model=long)
    assert re.search(r"summarized \d+ messages: [\d,]+ -> [\d,]+ tokens", done.out)
    (compaction,) = [entry for entry in begun.session().path() if isinstance(entry, Compaction)]
    assert "By the model." in compaction.summary
    assert texts(begun.session())[-1] == "Short."


def test_slash_compact_reports_when_there_is_nothing_to_compact(place: Place) -> None:
    begun = Begun(place)
    before = begun.path.read_bytes()
    said = " ".join(begun.chat("/compact").out.split())
    assert "nothing to compact: everything would be kept; keep fewer tokens" in said
    assert begun.path.read_bytes() == before


def test_slash_rewind_shows_a_diff_restores_files_and_can_be_undone(place: Place) -> None:
    begun = Begun(place)
    note = place.project / "note.md"
    model = scripted(place, turn("I write.", call("write", path="note.md", content="hello\n")), turn("Written."))
    begun.chat("/mode autoEdit", "write a note", model=model)
    done = begun.chat("y", "/rewind", "1", "b")
    assert done.out.index("-hello") < done.out.index("[b]oth?") < done.out.index("restored note.md")
    assert not note.exists()
    assert texts(begun.session())[-1] == "Two."
    begun.chat("y", "/rewind undo", "y")
    assert note.read_text() == "hello\n"
    assert texts(begun.session())[-1] == "Written."


# How it works


def test_slash_model_is_recorded_and_used_when_the_session_is_resumed(place: Place) -> None:
    begun = Begun(place)
    better = scripted(place, turn("I am the better one."), name="better")
    done = begun.chat(f"/model {better}", "who are you?")
    assert f"· {better}" in done.out
    change = [entry for entry in begun.session().path() if isinstance(entry, ModelChange)][-1]
    assert f"{change.provider}:{change.model_id}" == better
    said_to(place, "--session", str(begun.path), lines=("y", "and now?"))
    assert texts(begun.session())[-3:] == ["I am the better one.", "and now?", "I am the better one."]


def test_slash_model_with_an_unavailable_model_changes_nothing(place: Place) -> None:
    begun = Begun(place)
    before = begun.path.read_bytes()
    assert "✗ " in begun.chat("/model nobody:knows").out
    assert begun.path.read_bytes() == before


def test_a_resumed_session_reports_an_unavailable_model(place: Place) -> None:
    begun = Begun(place)
    session = begun.session()
    session.append({"type": "model_change", "provider": "nobody", "modelId": "knows"})
    session.close()
    settings = {"SESSIONTREE_MODEL": scripted(place, turn("Three."))}
    done = place.run("--session", str(begun.path), typed="y\ngo on\n/quit\n", more=settings)
    assert "· nobody:knows, the last model of this session, cannot be opened" in done.out
    assert texts(begun.session())[-1] == "Three."


def test_slash_thinking_is_recorded_and_applies_when_the_session_is_resumed(place: Place) -> None:
    begun = Begun(place)
    assert "· thinking: high" in begun.chat("/thinking high", "/thinking high").out
    levels = [entry for entry in begun.session().path() if isinstance(entry, ThinkingLevelChange)]
    assert [entry.thinking_level for entry in levels] == ["high"]
    assert "· thinking: high" in begun.chat("/thinking").out
    assert "✗ unknown thinking level 'much'; use off, minimal, low" in begun.chat("/thinking much").out


def test_slash_mode_is_recorded_and_applies_when_the_session_is_resumed(place: Place) -> None:
    begun = Begun(place)
    assert "· approval: autoEdit" in begun.chat("/mode autoEdit", "/mode autoEdit").out
    session = begun.session()
    assert [entry.mode for entry in session.path() if isinstance(entry, ModeChange)] == ["autoEdit"]
    assert session.config.approval_mode == "autoEdit"
    model = scripted(place, turn("I write.", call("write", path="x", content="x")), turn("Done."))
    done = begun.chat("y", "write", model=model)
    assert "This session skips approvals (mode autoEdit). Allow that again?" in done.out
    assert "approvals are skipped: mode autoEdit" in done.out
    assert "Allow?" not in done.out
    assert (place.project / "x").exists()
    assert (
        "✗ unknown approval mode 'careless'; use plan, default, autoEdit, yolo" in begun.chat("n", "/mode careless").out
    )


def test_slash_approve_approves_tools_for_the_session_and_revokes_them(place: Place) -> None:
    begun = Begun(place)
    assert "· approved for this session: bash, write" in begun.chat("/approve bash write").out
    assert begun.session().config.approval_tools == ("bash", "write")
    assert "· approved for this session: nothing" in begun.chat("n", "/approve none").out
    assert begun.session().config.approval_tools == ()
    assert "✗ no tool is named 'sing'" in begun.chat("/approve sing").out


def test_slash_verbose_shows_tool_output_completely(place: Place) -> None:
    numbers = turn("I count.", call("bash", command="seq 1 40"))
    model = scripted(place, numbers, turn("Short."), numbers, turn("Long."))
    done = said_to(
        place, "--model", model, "--approval", "yolo", lines=("count", "/verbose", "count", "/verbose maybe")
    )
    before, _, after = done.out.partition("· tool output is shown complete")
    assert ("\n  20\n" in before, "\n  20\n" in after) == (False, True)
    assert "use on or off" in after


def test_slash_tools_lists_the_tools_of_the_model(place: Place) -> None:
    out = Begun(place).chat("/tools").out
    for name in ("bash", "edit", "glob", "grep", "ls", "read", "write"):
        assert re.search(rf"^{name} +(nothing|files|anything) +\w", out, re.MULTILINE)


# Looking


def test_slash_usage_counts_the_requests_of_the_session(place: Place) -> None:
    done = Begun(place).chat("go on", "/usage")
    assert re.search(r"requests +1\ninput +[\d,]+ tokens", done.out)


def test_slash_session_describes_the_current_session(place: Place) -> None:
    begun = Begun(place, name="the slow lexer")
    out = begun.chat("/session").out
    assert out.count("the slow lexer\n") == 2  # once at the beginning
    assert f"branches: 1 · at {begun.two[:8]} · {begun.path}" in out


def test_slash_history_lists_and_searches_earlier_prompts(place: Place) -> None:
    begun = Begun(place)
    begun.chat("an older prompt")
    assert re.search(r"  one more prompt\n +\w+  an older prompt\n", begun.chat("one more prompt", "/history").out)
    found = begun.chat("/history older", "/history giraffe").out
    assert re.search(r"\w+  an older prompt\n", found)
    assert "one more prompt" not in found
    assert "· no matching prompt" in found


def test_slash_search_finds_messages_and_requires_words(place: Place) -> None:
    out = Begun(place).chat("/search lexer", "/search giraffe", "/search").out
    assert "    why is the lexer slow?" in out
    assert "· no match" in out
    assert "✗ usage: /search WORDS" in out


def test_slash_export_chooses_the_format_by_extension_and_never_overwrites(place: Place) -> None:
    begun = Begun(place)
    out = begun.chat("/export talk.md", "/export talk.md", "/export talk.docx", "/export").out
    document = (place.project / "talk.md").read_text()
    assert "why is the lexer slow?" in document
    assert "talk.md: file exists; choose another name" in out
    assert "talk.docx: unknown extension; use .md, .html" in out
    assert (place.project / f"session-{begun.id[:8]}.html").read_text().startswith("<!")


@pytest.mark.parametrize("id", ["x/../../y", "..", "\x1b]0;x\x07", "~root", ""])
def test_a_session_id_cannot_choose_the_path_of_an_exported_file(place: Place, id: str) -> None:
    begun = Begun(place)
    begun.path.write_bytes(begun.path.read_bytes().replace(json.dumps(begun.id).encode(), json.dumps(id).encode()))
    (place.project / "session-x").mkdir()
    before = {path for path in place.project.parent.rglob("*") if place.home not in path.parents}
    begun.chat("/export")
    made = {path for path in place.project.parent.rglob("*") if place.home not in path.parents} - before
    assert made == {place.project / "session.html"}


def test_slash_doctor_reports_problems_and_none_in_a_healthy_session(place: Place) -> None:
    begun = Begun(place)
    assert "✓ 4 entries, no problems found" in begun.chat("/doctor").out
    with begun.path.open("ab") as file:
        file.write(b"{torn\n")
    assert re.search(r"✗ \S+  1 ×: ", begun.chat("/doctor").out)


def test_slash_config_shows_settings_and_where_they_come_from(place: Place) -> None:
    (place.home / "settings.json").write_text(json.dumps({"compaction": {"keepRecentTokens": 4321}}))
    out = Begun(place).chat("/config compaction").out
    assert re.search(r"compaction\.keepRecentTokens +4321 +/", out)
    assert re.search(r"compaction\.\w+ +\S+ +default", out)
    assert "retry." not in out


def test_slash_help_lists_all_commands_or_describes_one(place: Place) -> None:
    begun = Begun(place)
    out = begun.chat("/help").out
    for name, command in COMMANDS.items():
        assert re.search(rf"^/{name} .*{re.escape(command.summary[:20])}", out, re.MULTILINE)
    one = begun.chat("/help mode").out
    assert "/mode [MODE]" in one
    assert "/quit" not in one


def test_slash_quit_exits_and_later_lines_are_not_executed(place: Place) -> None:
    begun = Begun(place)
    before = begun.path.read_bytes()
    done = begun.chat("/quit", "never said")
    assert done.out.count("\n> ") == 1
    assert begun.path.read_bytes() == before


# Others


@pytest.mark.parametrize(("typed", "meant"), [("/thinkin", "/thinking"), ("/clon", "/clone"), ("/swich x", "/switch")])
def test_an_unknown_command_is_reported_with_a_suggestion(place: Place, typed: str, meant: str) -> None:
    begun = Begun(place)
    before = begun.path.read_bytes()
    name = typed.split()[0]
    assert f"✗ unknown command {name}; did you mean {meant}?" in begun.chat(typed).out
    assert begun.path.read_bytes() == before


def test_an_unknown_command_like_no_other_gets_no_suggestion(place: Place) -> None:
    assert "✗ unknown command /xyzzy; /help lists all commands" in Begun(place).chat("/xyzzy").out


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("/thi", "/thinking"), ("/mode au", "/mode autoEdit"), ("/approve gl", "/approve glob"), ("/rewind u", "undo")],
)
def test_commands_and_their_arguments_are_completed(place: Place, typed: str, completed: str) -> None:
    with Terminal(place, ["--model", scripted(place, turn("One."))]) as terminal:
        terminal.wait_for_prompt()
        terminal.type(f"{typed}\t")
        terminal.wait_for(completed[len(typed) :] if completed.startswith(typed) else completed)
        terminal.interrupt()  # clears the input
        terminal.answer("/quit")
        assert terminal.end() == 0


def test_a_prompt_that_only_looks_like_a_command_is_sent_unchanged(place: Place) -> None:
    begun = Begun(place)
    begun.chat("  what about a/b and !x?")
    assert [message_text(message) for message in begun.session().context().messages][-2] == "  what about a/b and !x?"
    assert session_texts(place)[-1] == "Three."
