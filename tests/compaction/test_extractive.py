"""The extractive summarizer: facts planted in long sessions survive many compactions."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import sessiontree
from sessiontree import Session
from sessiontree.compaction import EXTRACTIVE, Request, compact
from sessiontree.compaction.extractive import HEADER, MAX_TOKENS
from sessiontree.compaction.sections import parse_sections, render_sections
from sessiontree.compaction.token_estimate import measured_tokens
from sessiontree.core.messages import Assistant, Message, Text, ToolCall, ToolResult, User
from tests.compaction.sessions import DIALECTS, context_texts, file_of, filler
from tests.conversion.conversations import assistant, call, result, text

LANGUAGES = {
    "english": {
        "goal": "Make the exporter write UTF-16 for the archive team",
        "demand": "You must never rename the public functions.",
        "decision": "Decision: keep the old table beside the new one because two readers still use it.",
        "error": "TypeError: encode() got an unexpected keyword 'bom'",
        "task": "update the changelog for 4.2",
        "open": "Now look why the nightly job is late",
    },
    "chinese": {
        "goal": "让导出器支持十六位编码，供档案组使用",
        "demand": "不要改动公共函数的名字。",
        "decision": "我们决定保留旧表，因为还有两个读者在用。",
        "error": "错误：编码器不接受参数 bom",
        "task": "更新四点二版的变更记录",
        "open": "现在看看夜间任务为什么迟到",
    },
    "japanese": {
        "goal": "アーカイブ班のためにエクスポーターを十六ビット対応にする",
        "demand": "公開関数の名前は変えないでください。",
        "decision": "古い表を残すことにしました。読み手がまだ二つあります。",
        "error": "エラー: bom という引数は使えません",
        "task": "四点二の変更履歴を直す",
        "open": "夜間ジョブが遅れる理由を見て",
    },
    "korean": {
        "goal": "보관 팀을 위해 내보내기에서 열여섯 비트 인코딩을 지원하기",
        "demand": "공개 함수 이름은 바꾸지 마세요.",
        "decision": "읽는 쪽이 아직 둘이라서 옛 표를 남기기로 결정했습니다.",
        "error": "오류: bom 인수는 쓸 수 없습니다",
        "task": "사점이 변경 기록 고치기",
        "open": "이제 야간 작업이 왜 늦는지 봐 줘",
    },
}


def long_session(facts: dict[str, str], turns: int, seed: int) -> Session:
    """Hundreds of messages of plain work, with a few facts planted at the beginning and in the middle."""
    random = Random(seed)
    session = sessiontree.create(cwd="/work", in_memory=True)
    session.append("user", f"{facts['goal']}. {facts['demand']}")
    session.append(
        assistant(
            text("A list first."),
            call("plan", "todo_write", {"todos": [{"content": facts["task"], "status": "pending"}]}),
        )
    )
    session.append(result("plan", "todo_write", "ok"))
    for turn in range(turns):
        session.append("user", filler(random, 40))
        calls = [call(f"r{turn}", "read", {"path": f"src/part_{turn % 30}.py"})]
        if turn == turns // 2:
            calls.append(call("fix", "edit", {"path": "src/exporter.py", "oldText": "a", "newText": "b"}))
        session.append(assistant(text(filler(random, 30)), *calls))
        session.append(result(f"r{turn}", "read", filler(random, 120)))
        if turn == turns // 2:
            session.append(result("fix", "edit", "ok"))
            session.append(assistant(text(facts["decision"]), call("run", "bash", {"command": "make export"})))
            failed = filler(random, 90) + f"\n{facts['error']}\nmake: *** [export] 1"
            session.append(result("run", "bash", failed, is_error=True))
        session.append(assistant(text(filler(random, 60))))
    session.append("user", facts["open"])
    session.append(assistant(text(filler(random, 10)), call("look", "bash", {"command": "tail nightly.log"})))
    session.append(result("look", "bash", filler(random, 10)))
    return session


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("rounds", [1, 4])
@pytest.mark.parametrize("turns", [40, 250])
def test_planted_facts_survive_long_sessions_and_many_compactions(language: str, rounds: int, turns: int) -> None:
    facts = LANGUAGES[language]
    session = long_session(facts, turns, seed=turns)
    random = Random(7)
    for _ in range(rounds - 1):
        compact(session, keep=200, strategy="replace")
        for _ in range(12):
            session.append("user", filler(random, 30))
            session.append(assistant(text(filler(random, 50))))
    done = compact(session, strategy="replace")
    sections = parse_sections(done.summary.replace(HEADER, ""))
    assert facts["goal"] in sections["Goal"][0]
    assert facts["demand"].rstrip("。") in "\n".join(sections["Constraints & Preferences"])
    assert any(
        facts["decision"].split("。")[0].removeprefix("Decision: ") in point for point in sections["Key Decisions"]
    )
    assert facts["error"] in "\n".join(sections["Blocked"])
    assert "`make export`" in "\n".join(sections["Blocked"])
    assert facts["task"] in "\n".join(sections["Next Steps"])
    assert facts["open"] in "\n".join(sections["In Progress"])
    assert "src/exporter.py" in done.plan.files.modified
    assert "src/part_3.py" in done.plan.files.read
    assert done.summary.startswith(HEADER)
    assert "No model wrote them" in HEADER
    assert measured_tokens(done.summary.split("<read-files>")[0]) <= MAX_TOKENS


@pytest.mark.parametrize("dialect", DIALECTS)
def test_facts_are_found_in_the_words_of_every_agents_tools(dialect: str, tmp_path: Path) -> None:
    path = file_of(long_session(LANGUAGES["english"], 6, seed=1), dialect, tmp_path)
    session = sessiontree.open(path)
    done = compact(session, strategy="replace")
    assert done.plan.files.modified == ("src/exporter.py",)
    assert "src/part_3.py" in done.plan.files.read
    assert "TypeError: encode()" in context_texts(sessiontree.open(path))[0]
    assert "`make export`" in done.summary


def test_the_same_messages_give_the_same_summary() -> None:
    one, other = (long_session(LANGUAGES["english"], 20, seed=3) for _ in range(2))
    assert compact(one, strategy="replace").summary == compact(other, strategy="replace").summary


def test_a_failure_that_was_fixed_is_not_blocked_any_more() -> None:
    def ran(id: str, is_error: bool, output: str) -> list[Assistant | ToolResult]:
        asked = Assistant(content=(ToolCall(id, "bash", {"command": "make"}),))
        return [asked, ToolResult(tool_call_id=id, tool_name="bash", content=(Text(output),), is_error=is_error)]

    first = EXTRACTIVE(Request("history", [User(content="go"), *ran("a", True, "Error: no rule")]))
    assert "`make` failed: Error: no rule" in parse_sections(first.text)["Blocked"]
    second = EXTRACTIVE(Request("history", ran("b", False, "built"), previous=first.text))
    sections = parse_sections(second.text)
    assert "Blocked" not in sections
    assert "`make` failed: Error: no rule (works since)" in sections["Critical Context"]
    assert "Ran `make`: ok, last line: built" in sections["Critical Context"]


def test_tasks_move_from_next_to_done() -> None:
    def todo(id: str, **status: str) -> Assistant:
        todos = [{"content": name, "status": each} for name, each in status.items()]
        return Assistant(content=(ToolCall(id, "todoWrite", {"todos": todos}),))

    first = EXTRACTIVE(Request("history", [todo("a", dig="in_progress", plant="pending", water="pending")]))
    found = parse_sections(first.text)
    assert (found["In Progress"], found["Next Steps"]) == (["dig"], ["plant", "water"])
    again = [todo("b", dig="completed", plant="in_progress", water="pending")]
    found = parse_sections(EXTRACTIVE(Request("history", again, previous=first.text)).text)
    assert (found["Done"], found["In Progress"], found["Next Steps"]) == (["dig"], ["plant"], ["water"])


def test_a_summary_from_another_summarizer_is_kept_verbatim() -> None:
    previous = "# Handoff\nThe moon base is at 7,4.\n\n## Goal\n- reach the base"
    found = parse_sections(EXTRACTIVE(Request("history", [User(content="go on")], previous=previous)).text)
    assert "The moon base is at 7,4." in found["Earlier Summary"]
    assert found["Goal"] == ["reach the base", "go on"]


def test_omitted_points_are_counted_over_many_summaries() -> None:
    text, total = None, 0
    for number in range(6):
        asked = [User(content=f"request {number}.{one}") for one in range(10)]
        text = EXTRACTIVE(Request("history", asked, previous=text)).text
        total += 10
    goals = parse_sections(text or "")["Goal"]
    assert goals[0] == "request 0.0"
    assert goals[-1] == "request 5.9"
    (note,) = [goal for goal in goals if "not listed" in goal]
    assert int(note.strip("()").split()[0]) + len(goals) - 1 == total


def test_instructions_select_sentences_that_mention_them() -> None:
    messages = [
        Assistant(content="The lexer counts columns from one. Lunch was good."),
        User(content="缓存大小是六十四。"),
    ]
    english = EXTRACTIVE(Request("history", messages, instructions="focus on the lexer")).text
    chinese = EXTRACTIVE(Request("history", messages, instructions="重点写缓存")).text
    assert "The lexer counts columns from one." in parse_sections(english)["Critical Context"]
    assert "缓存大小是六十四。" in parse_sections(chinese)["Critical Context"]


@pytest.mark.parametrize("limit", [60, 200, 1000])
def test_a_summary_never_exceeds_its_limit(limit: int) -> None:
    asked = [User(content="必须保留这一行。" * 60 + f"{number}") for number in range(50)]
    text = EXTRACTIVE(Request("history", asked, max_tokens=limit)).text
    assert measured_tokens(text) <= limit


def test_parsed_and_rendered_sections_are_the_same() -> None:
    text = "## Goal\n- one\n  more of it\n\n## Progress\n\n### Done\n- [x] two\n\n## Next Steps\n1. three"
    assert render_sections(parse_sections(text)) == text


def very_long(turns: int, planted: dict[int, str]) -> list[Message]:
    """Turns of plain work, with a sentence of the model in some of them."""
    random = Random(3)
    fillers = [filler(random, 25) for _ in range(50)]
    messages: list[Message] = []
    for turn in range(turns):
        messages.append(User(content=f"{turn}: {fillers[turn % 50]}"))
        read = ToolCall(f"r{turn}", "read", {"path": f"src/part_{turn % 300}.py"})
        messages.append(Assistant(content=(Text(planted.get(turn, fillers[turn % 49])), read)))
        messages.append(ToolResult(tool_call_id=read.id, tool_name="read", content=(Text(fillers[turn % 47]),)))
        messages.append(Assistant(content=(Text(fillers[turn % 46]),)))
    return messages


def test_facts_at_both_ends_and_in_the_middle_of_a_very_long_history_are_kept() -> None:
    facts = LANGUAGES["english"]
    goal = User(content=f"{facts['goal']}. {facts['demand']}")
    failed = [
        Assistant(content=(ToolCall("run", "bash", {"command": "make export"}),)),
        ToolResult(tool_call_id="run", tool_name="bash", content=(Text(facts["error"]),), is_error=True),
    ]
    work = very_long(10_000, {5_000: facts["decision"]})
    sections = parse_sections(EXTRACTIVE(Request("history", [goal, *work[:-40], *failed, *work[-40:]])).text)
    assert facts["goal"] in sections["Goal"][0]
    assert sections["Constraints & Preferences"] == [facts["demand"]]
    assert sections["Key Decisions"] == [facts["decision"]]
    assert f"`make export` failed: {facts['error']}" in sections["Blocked"]
    (count,) = [int(goal[1:].split()[0]) for goal in sections["Goal"] if "not listed" in goal]
    assert count + len(sections["Goal"]) - 1 == 10_001


def test_of_very_many_demands_the_first_and_the_newest_are_kept_and_the_others_not_counted() -> None:
    asked = [User(content=f"You must never do number {number}.") for number in range(3_000)]
    demands = parse_sections(EXTRACTIVE(Request("history", asked)).text)["Constraints & Preferences"]
    assert demands[:2] == ["You must never do number 0.", "You must never do number 1."]
    assert demands[2].startswith("(at least ")
    assert demands[3:] == [f"You must never do number {number}." for number in range(2_988, 3_000)]
    again = EXTRACTIVE(Request("history", asked[:20], previous=EXTRACTIVE(Request("history", asked)).text))
    (note,) = [point for point in parse_sections(again.text)["Constraints & Preferences"] if "not listed" in point]
    assert note.startswith("(at least ")


@pytest.mark.parametrize(("turn", "is_kept"), [(3_999, True), (3_600, True), (1_000, False)])
def test_a_plan_is_kept_unless_a_thousand_answers_follow(turn: int, is_kept: bool) -> None:
    plan = "Next steps:\n- sweep the cellar\n- paint the door"
    sections = parse_sections(EXTRACTIVE(Request("history", very_long(4_000, {turn: plan}))).text)
    assert ("sweep the cellar" in sections.get("Next Steps", [])) is is_kept


@pytest.mark.parametrize(
    "sentence",
    ["We will use the small cache.", "TRADE-OFF: memory", "“Decision” was the word", "it was chosen", "我们采用小缓存"],
)
def test_a_decision_is_found_in_any_spelling_of_its_words(sentence: str) -> None:
    sections = parse_sections(EXTRACTIVE(Request("history", [Assistant(content=sentence)])).text)
    assert sections["Key Decisions"] == [sentence]
