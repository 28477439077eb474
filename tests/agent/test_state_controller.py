"""The controller: actions of a user, independent of the front end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

import sessiontree
from sessiontree.agent.approval import Reply
from sessiontree.agent.controller import Controller
from sessiontree.agent.events import AgentEnd, Event, TextDelta, ToolStart
from sessiontree.agent.shell_commands import UserCommand
from sessiontree.agent.state import State
from sessiontree.app.actions.compact import plan_compact
from sessiontree.app.actions.rewind import plan_rewind
from sessiontree.core.entries import BranchSummary, ModeChange, ModelChange, ThinkingLevelChange
from sessiontree.core.messages import Image, User, message_text
from sessiontree.errors import NotFoundError, SummaryError, UsageError
from sessiontree.models import Facts, Model, ScriptedModel, ScriptTurn
from sessiontree.search.prompt_spool import SpooledPrompt
from sessiontree.settings import Compaction as CompactionSettings
from sessiontree.settings import Prune, Settings
from tests.agent.builders import BARE, Answers
from tests.agent.runs import call, check_is_sound, transcript, turn
from tests.compaction.sessions import file_of, worked_session

PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)


class Named(ScriptedModel):
    """A scripted model with a name."""

    def __init__(self, name: str, *turns: ScriptTurn) -> None:
        super().__init__(turns)
        self._name = name

    @property
    def name(self) -> str:
        return self._name


class Desk:
    """A controller in a temporary folder, with scripted models."""

    def __init__(self, folder: Path, *turns: ScriptTurn, **more: Any) -> None:
        self.folder = folder
        (folder / "project").mkdir(exist_ok=True)
        self.answers = Answers()
        self.asked: list[str] = []
        self.model = ScriptedModel(turns)
        more.setdefault("model", self.model)
        more.setdefault("confirm", self.confirm)
        self.controller = Controller(
            folder / "project",
            home=folder / "home",
            approver=self.answers,
            environment={**BARE, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")},
            find_model=self.find_model,
            **more,
        )

    async def confirm(self, question: str) -> bool:
        return bool(question)

    def find_model(self, name: str) -> Model:
        self.asked.append(name)
        if name.startswith("gone:"):
            raise UsageError("no such provider")
        return Named(name, turn(f"I am {name}.", repeat=True))

    async def say(self, prompt: str | None, **more: Any) -> list[Event]:
        return [event async for event in self.controller.send(prompt, **more)]


def go(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_the_first_prompt_starts_a_session_with_a_title_and_updates_the_state(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("Hello to you.", call("ls", path=".")), turn("All seen."))
    states: list[State] = []
    desk.controller.store.subscribe(lambda new, _: states.append(new))

    async def scene() -> None:
        desk.controller.set_input("Say hello, please")
        events = await desk.say("Say hello, please")
        assert isinstance(events[-1], AgentEnd)
        await desk.controller.close()

    go(scene())
    state = desk.controller.state
    assert state.title == "Say hello, please"
    assert state.input == ""
    assert state.usage.requests == 2
    assert (state.is_running, state.tasks, state.answer) == (False, (), "")
    assert state.session is not None
    stored = sessiontree.open(state.session.location)
    assert list(state.messages) == list(stored.context().messages)
    assert any(one.answer == "Hello to you." for one in states)
    assert any(one.tasks and one.tasks[0].call.name == "ls" for one in states)
    assert any(one.is_running for one in states)
    check_is_sound(stored)


def test_a_prompt_is_added_to_the_history(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("Yes."))
    go(desk.say("Remember me"))
    (line,) = (tmp_path / "home" / "history-new.jsonl").read_bytes().strip().splitlines()
    typed = msgspec.json.decode(line, type=SpooledPrompt)
    assert (typed.prompt, typed.session) == ("Remember me", desk.controller.session.id)
    assert typed.cwd == str(tmp_path / "project")


def test_an_exception_in_a_model_ends_the_run_and_not_the_app(tmp_path: Path) -> None:
    class Faulty(ScriptedModel):
        async def stream(self, request: Any, /) -> Any:
            async for event in super().stream(request):
                yield event
                if len(request.messages) == 1:
                    raise ZeroDivisionError("in the model")

    desk = Desk(tmp_path, model=Faulty([turn("Half."), turn("Whole.")]))

    async def scene() -> None:
        failed = (await desk.say("One"))[-1]
        assert isinstance(failed, AgentEnd)
        assert (failed.reason, failed.why) == ("error", "ZeroDivisionError: in the model")
        assert desk.controller.run is None
        done = (await desk.say("Two"))[-1]
        assert isinstance(done, AgentEnd)
        assert (done.reason, done.text) == ("done", "Whole.")

    go(scene())
    check_is_sound(desk.controller.session)


@pytest.mark.parametrize(("answer", "compactions", "questions"), [("no", 0, 1), ("once", 2, 2), ("always", 2, 1)])
def test_a_session_of_another_agent_is_only_compacted_with_consent(
    tmp_path: Path, answer: Literal["no", "once", "always"], compactions: int, questions: int
) -> None:
    path = file_of(worked_session(), "pi", tmp_path)
    settings = Settings(
        compaction=CompactionSettings(
            summarizer="extractive", reserve_tokens=2_000, keep_recent_tokens=100, prune=Prune(enabled=False)
        )
    )
    long = "words " * 5_000
    model = ScriptedModel([turn("Yes."), turn("Yes."), turn("Yes.")], Facts(window=6_000, output=500, source="test"))
    desk = Desk(tmp_path, model=model, settings=settings)
    desk.answers.reply = Reply(answer)

    async def scene() -> None:
        await desk.controller.resume(str(path))
        for _ in range(2):
            await desk.say(long)

    go(scene())
    session = desk.controller.session
    assert [question.tool for question in desk.answers.questions] == ["compact"] * questions
    assert session.count("compaction") >= compactions if compactions else session.count("compaction") == 0


def test_selecting_a_prompt_goes_before_it_and_returns_its_text(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("One."), turn("Two."), turn("Other."))

    async def scene() -> None:
        await desk.say("First")
        await desk.say("Second")
        second = desk.controller.fork_points()[0]
        desk.controller.set_input("half a thought")
        selected = await desk.controller.select(second.id)
        assert selected.text == "Second"
        assert desk.controller.state.input == "Second\n\nhalf a thought"
        assert message_text(desk.controller.state.messages[-1]) == "One."
        desk.controller.set_input("")
        await desk.say("Second, otherwise")

    go(scene())
    session = desk.controller.session
    assert [text for _, text in transcript(session)] == ["First", "One.", "Second, otherwise", "Other."]
    assert len(session.leaves()) == 2
    check_is_sound(session)


def test_selecting_another_entry_moves_there_and_none_moves_to_the_beginning(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("One."), turn("Two."))

    async def scene() -> None:
        await desk.say("First")
        answer = desk.controller.session.leaf
        root = desk.controller.fork_points()[0].id
        await desk.say("Second")
        assert answer is not None
        selected = await desk.controller.select(answer)
        assert (selected.leaf, selected.text, desk.controller.state.input) == (answer, None, "")
        selected = await desk.controller.select(root)
        assert (selected.leaf, selected.text) == (None, "First")
        assert list(desk.controller.state.messages) == []
        selected = await desk.controller.select(None)
        assert selected.leaf is None

    go(scene())
    assert sessiontree.open(desk.controller.session.location).leaf is None


def test_the_current_model_summarizes_a_branch_that_is_left(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("One."), turn("Two."), turn("## Goal\n\n- No tabs, says the model."))

    async def scene() -> None:
        await desk.say("First")
        answer = desk.controller.session.leaf
        await desk.say("Second: we must never use tabs")
        selected = await desk.controller.select(answer, summary="tabs")
        assert selected.summary is not None
        entry = desk.controller.session.entry(selected.summary)
        assert isinstance(entry, BranchSummary)
        assert "No tabs, says the model." in entry.summary
        assert desk.controller.session.leaf == selected.summary

    go(scene())
    assert "never use tabs" in message_text(desk.model.requests[2].messages[-1])
    check_is_sound(desk.controller.session)


def long_conversation(desk: Desk) -> None:
    for number in range(20):
        desk.controller.session.append("user", f"Question {number}: " + "words " * 300)
        desk.controller.session.append("assistant", [{"type": "text", "text": f"Answer {number}."}])


def plan_compaction(desk: Desk) -> Any:
    controller, summarizer = desk.controller, desk.controller.summarizer()
    return controller.plan(
        lambda: plan_compact(controller.session, controller.settings, keep=500, summarizer=summarizer)
    )


def test_the_current_model_writes_the_summary_of_a_compaction_and_stays_open(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("## Goal\n\n- All questions."), turn("I am still here."))

    async def scene() -> None:
        await desk.controller.new()
        long_conversation(desk)
        done = await desk.controller.carry_out(await plan_compaction(desk))
        assert (done.result.summarizer, done.result.reports) == (desk.model.name, ())
        assert "All questions." in done.result.summary
        await desk.say("Are you there?")

    go(scene())
    assert transcript(desk.controller.session)[-1] == ("assistant", "I am still here.")


def test_a_summary_that_fails_is_an_error_and_the_history_stays_as_it_was(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("half of it", stop="length"))

    async def scene() -> None:
        await desk.controller.new()
        long_conversation(desk)
        before = Path(desk.controller.session.location).read_bytes()
        with pytest.raises(SummaryError, match="incomplete"):
            await plan_compaction(desk)
        assert Path(desk.controller.session.location).read_bytes() == before

    go(scene())


def test_the_fallback_setting_replaces_a_summary_that_fails_and_reports_that(tmp_path: Path) -> None:
    settings = Settings(compaction=CompactionSettings(fallback="extractive"))
    desk = Desk(tmp_path, turn("half of it", stop="length"), settings=settings)

    async def scene() -> None:
        await desk.controller.new()
        long_conversation(desk)
        done = (await desk.controller.carry_out(await plan_compaction(desk))).result
        assert done.summarizer == "extractive"
        assert "incomplete; the summary is extractive instead" in done.reports[0]
        assert done.entry.details["summarizer"] == "extractive"

    go(scene())


def test_an_interrupt_ends_the_request_for_a_summary_and_nothing_is_written(tmp_path: Path) -> None:
    settings = Settings(compaction=CompactionSettings(fallback="extractive"))
    desk = Desk(tmp_path, turn("too late", first_delay=600.0), settings=settings)

    async def scene() -> None:
        await desk.controller.new()
        long_conversation(desk)
        assert not desk.controller.interrupt()
        planning = asyncio.create_task(plan_compaction(desk))
        while not desk.model.requests:
            await asyncio.sleep(0)
        assert desk.controller.interrupt()
        with pytest.raises(SummaryError, match="interrupted"):
            await planning
        assert desk.controller.session.count("compaction") == 0

    go(scene())


def test_the_list_of_prompts_has_the_newest_first_with_short_previews(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("Yes.", repeat=True))
    long = "word " * 40

    async def scene() -> None:
        await desk.say("First")
        await desk.say(long)

    go(scene())
    points = desk.controller.fork_points()
    assert [point.preview for point in points][1] == "First"
    assert len(points[0].preview) <= 80
    assert points[0].preview.endswith("word…")
    assert points[0].time > points[1].time


def test_a_fork_is_a_new_session_and_a_clone_has_everything(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("One."), turn("Two."))

    async def scene() -> None:
        await desk.say("First")
        await desk.say("Second")
        first = desk.controller.session
        notified: list[State] = []
        desk.controller.set_input("typed")
        desk.controller.store.subscribe(lambda new, _: notified.append(new), "session", "leaf", "messages", "input")
        forked = await desk.controller.fork(desk.controller.fork_points()[0].id)
        assert forked.location != first.location
        assert len(notified) == 1  # one change, whole
        assert notified[0].input == "Second\n\ntyped"
        assert [text for _, text in transcript(forked)] == ["First", "One."]
        await desk.controller.resume(first.location)
        cloned = await desk.controller.clone()
        assert [text for _, text in transcript(cloned)] == ["First", "One.", "Second", "Two."]

    go(scene())
    check_is_sound(desk.controller.session)


def test_switching_the_session_preserves_the_input(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("One."))

    async def scene() -> None:
        await desk.say("First")
        id = desk.controller.session.id
        desk.controller.set_input("unsaved")
        await desk.controller.new("Another")
        assert (desk.controller.state.title, desk.controller.state.input) == ("Another", "unsaved")
        await desk.controller.resume(id)
        assert (desk.controller.session.id, desk.controller.state.input) == (id, "unsaved")
        with pytest.raises(NotFoundError):
            await desk.controller.resume("there-is-no-such-session")

    go(scene())


def test_the_last_session_of_the_project_is_continued(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("One."))
    go(desk.say("First"))
    other = Desk(tmp_path, turn("Two."))

    async def scene() -> None:
        await other.controller.resume_last()
        assert other.controller.session.id == desk.controller.session.id
        await other.say("Second")

    go(scene())
    assert [text for _, text in transcript(other.controller.session)] == ["First", "One.", "Second", "Two."]
    (tmp_path / "empty").mkdir()
    empty = Desk(tmp_path / "empty")
    with pytest.raises(NotFoundError, match="start a new one"):
        go(empty.controller.resume_last())


def test_choices_are_recorded_and_restored_when_the_session_is_resumed(tmp_path: Path) -> None:
    desk = Desk(tmp_path, model=None)
    desk.controller.store.set(model="one:a")

    async def scene() -> None:
        await desk.say("First")
        await desk.controller.set_model("two:b")
        await desk.controller.set_thinking("high")
        await desk.controller.set_mode("plan")
        await desk.controller.set_approval("autoEdit")
        await desk.controller.approve("bash")
        await desk.controller.set_thinking("high")
        await desk.say("Second")

    go(scene())
    session = desk.controller.session
    changes = [entry for entry in session.path() if isinstance(entry, ModelChange | ThinkingLevelChange | ModeChange)]
    assert [type(entry).__name__ for entry in changes] == [
        "ModelChange", "ModelChange", "ThinkingLevelChange", "ModeChange",
    ]  # fmt: skip
    assert transcript(session)[-1][1] == "I am two:b."
    again = Desk(tmp_path, model=None)
    go(again.controller.resume(session.id))
    state = again.controller.state
    assert (state.model, state.thinking, state.mode) == ("two:b", "high", "plan")
    assert (state.approval, state.approved) == ("autoEdit", ("bash",))
    assert state.usage == session.usage()
    go(again.controller.revoke())
    assert again.controller.state.approved == ()
    check_is_sound(session)


def test_a_model_that_cannot_be_opened_is_reported_and_another_can_be_chosen(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("One."))

    async def scene() -> None:
        await desk.controller.new()
        desk.controller.session.append({"type": "model_change", "provider": "gone", "modelId": "x"})
        desk.controller.session.append("user", "Hello")
        other = Desk(tmp_path, model=None)
        await other.controller.resume(desk.controller.session.location)
        assert "cannot be opened" in other.controller.state.notice
        with pytest.raises(UsageError, match="no model is chosen"):
            await other.say("Hello?")
        await other.controller.set_model("two:b")
        await other.say("Hello?")
        assert transcript(other.controller.session)[-1][1] == "I am two:b."

    go(scene())


def test_a_pasted_image_is_preserved_when_its_prompt_is_sent_again_in_a_fork(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("Seen."), turn("Again."))

    async def scene() -> None:
        await desk.controller.new()
        await desk.say(f"Look: {desk.controller.paste_image(PNG * 100)}")
        await desk.controller.fork(desk.controller.fork_points()[0].id)
        assert desk.controller.state.input == "Look: [Image #1]"
        await desk.say(desk.controller.state.input)

    go(scene())
    first, second = (request.messages[0] for request in desk.model.requests)
    assert isinstance(first, User)
    assert isinstance(second, User)
    assert first.content == second.content
    assert isinstance(second.content[1], Image)
    check_is_sound(desk.controller.session)


def test_large_pastes_are_placeholders_for_the_user_and_text_for_the_model(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("Seen."), turn("Again."))
    pasted = "\n".join(f"line {number}" for number in range(120))

    async def scene() -> None:
        await desk.controller.new()
        text, image = desk.controller.paste_text(pasted), desk.controller.paste_image(PNG)
        assert (text, image) == ("[Pasted text #1 +120 lines]", "[Image #1]")
        assert desk.controller.paste_text("short") == "short"
        with pytest.raises(UsageError, match="not an image"):
            desk.controller.paste_image(b"not one")
        await desk.say(f"Look: {text} and {image}. [Image #7]")
        config = desk.controller.session.config
        assert config.pasted_text_map == {"#1": pasted}
        assert config.pasted_image_map["#1"].startswith("data:image/png;base64,")

    go(scene())
    session = desk.controller.session
    (asked,) = desk.model.requests[0].messages
    assert isinstance(asked, User)
    assert pasted in message_text(asked)
    assert message_text(asked).endswith(". [Image #7]")
    assert [type(block).__name__ for block in asked.content] == ["Text", "Image", "Text"]
    assert isinstance(asked.content[1], Image)
    assert desk.controller.fork_points()[0].preview == "Look: [Pasted text #1 +120 lines] and [Image #1]. [Image #7]"
    selected = go(desk.controller.select(desk.controller.fork_points()[0].id))
    assert selected.text == "Look: [Pasted text #1 +120 lines] and [Image #1]. [Image #7]"
    again = Desk(tmp_path, turn("Again."))

    async def resumed() -> None:
        await again.controller.resume(session.id)
        assert again.controller.paste_text(pasted) == "[Pasted text #2 +120 lines]"
        await again.say(selected.text)

    go(resumed())
    assert pasted in message_text(again.model.requests[0].messages[0])
    check_is_sound(again.controller.session)


def test_a_run_can_be_steered_and_interrupted_and_its_branch_cannot_be_moved(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("I look.", call("ls", path=".")), turn("Long " * 20, delay=0.02))

    async def scene() -> None:
        async for event in desk.controller.send("Go"):
            if isinstance(event, ToolStart):
                desk.controller.steer("Quickly")
                assert desk.controller.state.queued == 1
                with pytest.raises(UsageError, match="a run is in progress"):
                    await desk.controller.new()
                with pytest.raises(UsageError, match="a run is in progress"):
                    await desk.controller.select(None)
            if isinstance(event, TextDelta) and event.text.startswith("Long"):
                desk.controller.follow_up("And then?")
                assert desk.controller.interrupt()
        assert not desk.controller.interrupt()
        with pytest.raises(UsageError, match="no run is in progress"):
            desk.controller.steer("Too late")

    go(scene())
    assert "Quickly" in [text for _, text in transcript(desk.controller.session)]
    assert desk.controller.state.queued == 0
    assert desk.controller.state.input == "And then?"  # queued and not transcript
    check_is_sound(desk.controller.session)


def test_leaving_the_loop_interrupts_the_run(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("Long " * 50, delay=0.02), turn("Again."))

    async def scene() -> None:
        going = desk.controller.send("Go")
        async for event in going:
            if isinstance(event, TextDelta):
                break
        await going.aclose()
        assert desk.controller.run is None
        assert not desk.controller.state.is_running
        await desk.say("Again")

    go(scene())
    check_is_sound(desk.controller.session)


def test_files_are_rewound_with_the_conversation_and_that_can_be_undone(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("I write.", call("write", path="note.md", content="hello\n")), turn("Written."))
    note = tmp_path / "project" / "note.md"

    async def scene() -> None:
        await desk.say("Write a note")
        prompt = desk.controller.fork_points()[0].id
        controller = desk.controller
        plan = await controller.plan(lambda: plan_rewind(controller.session, controller.workspace, prompt))
        assert "-hello" in plan.expected.diff
        done = await controller.carry_out(plan, prompt=prompt)
        assert not note.exists()
        assert desk.controller.state.input == "Write a note"
        assert list(desk.controller.state.messages) == []
        assert done.undo is not None
        await controller.carry_out(done.undo)
        assert note.read_text() == "hello\n"
        assert message_text(desk.controller.state.messages[-1]) == "Written."

    go(scene())
    check_is_sound(desk.controller.session)


def test_a_user_command_is_recorded_and_in_the_context(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("I see."))

    async def scene() -> None:
        await desk.controller.command(UserCommand("echo from the shell"))
        await desk.say("What did it print?")

    go(scene())
    assert any("from the shell" in message_text(message) for message in desk.model.requests[0].messages)


def test_manual_compaction_labels_and_names(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("One. " + "words " * 3000), turn("Two. " + "words " * 24_000), turn("Three."))

    async def scene() -> None:
        await desk.say("First")
        await desk.controller.label("start")
        await desk.controller.rename("  A   name ")
        await desk.say("Second")
        settings = desk.controller.settings
        plan = await desk.controller.plan(lambda: plan_compact(desk.controller.session, settings, instructions="words"))
        assert (await desk.controller.carry_out(plan)).result.entry is not None
        assert desk.controller.state.title == "A name"
        await desk.controller.switch("start")
        assert message_text(desk.controller.state.messages[-1]).startswith("One.")
        await desk.say("Third")

    go(scene())
    assert list(desk.controller.session.labels.values()) == ["start"]
    check_is_sound(desk.controller.session)


def test_entries_of_other_processes_are_noticed(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("One."))

    async def scene() -> None:
        await desk.say("First")
        other = sessiontree.open(desk.controller.session.location)
        other.rename("By another")
        other.close()
        assert len(await desk.controller.refresh()) == 1
        assert desk.controller.state.title == "By another"

    go(scene())


def test_calls_without_a_result_are_in_the_state_and_can_be_resolved(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("Gladly."))

    async def scene() -> None:
        await desk.controller.new()
        session = desk.controller.session
        session.append("user", "Go.")
        session.append("assistant", [{"type": "toolCall", "id": "c1", "name": "ls", "arguments": {}}])
        other = Desk(tmp_path, turn("Gladly."))
        await other.controller.resume(session.location)
        assert [one.id for one in other.controller.state.pending] == ["c1"]
        before = Path(session.location).read_bytes()
        other.controller.set_input("Go on.")
        (*_, refused) = await other.say("Go on.")
        assert isinstance(refused, AgentEnd)
        assert refused.reason == "pending"
        assert other.controller.state.input == "Go on."  # not lost
        assert [one.id for one in other.controller.state.pending] == ["c1"]
        assert Path(session.location).read_bytes() == before
        events = await other.say(None, pending="skip")
        assert isinstance(events[-1], AgentEnd)
        assert events[-1].text == "Gladly."
        assert other.controller.state.pending == ()
        check_is_sound(other.controller.session)

    go(scene())


def test_the_state_has_the_source_and_the_description_of_the_session(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("Yes.", repeat=True))

    async def scene() -> None:
        controller = desk.controller
        await desk.say("First")
        assert (controller.state.source, controller.state.description) == ("new", "")
        controller.session.set_config(summary="Everything about the lexer")
        location = controller.session.location
        await controller.clone()
        assert controller.state.source == "forked"
        await controller.resume(location)
        assert (controller.state.source, controller.state.description) == ("resumed", "Everything about the lexer")
        await controller.new()
        assert (controller.state.source, controller.state.description) == ("new", "")

    go(scene())


def test_front_ends_share_what_is_shown(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.controller.set_verbose(True)
    desk.controller.set_status_line("tests are running")
    desk.controller.expand("tasks")
    state = desk.controller.state
    assert (state.verbose, state.status_line, state.expanded_view) == (True, "tests are running", "tasks")
