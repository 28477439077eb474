"""Tables of lanes at any width: nothing important is cut off, and no line is too wide."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sessiontree.agent.limits import RunUsage
from sessiontree.explore.compare import Result
from sessiontree.explore.lane import Lane
from sessiontree.explore.lane_table import cut_middle, draw_progress, draw_results, shorten_models
from sessiontree.explore.records import LaneRecord
from sessiontree.git.trees import FileChange
from sessiontree.session.reader import Reader
from sessiontree.views.text import columns
from tests.explore.lanes import new_session
from tests.explore.programs import Repository

WIDTHS = (40, 60, 80, 100, 140)
MODELS = ("anthropic:claude-opus-4-5", "openai:gpt-5", "scripted:/tmp/somewhere/deep/inside/script-of-lane-3.json")
CHINESE = "解析器は一度に一ブロックずつ読みます。구문 분석기가 빨라졌습니다。完成。"


def result(number: int, **more: Any) -> Result:
    values: dict[str, Any] = {
        "lane": number,
        "name": f"lane-{number}",
        "model": MODELS[(number - 1) % len(MODELS)],
        "prompt": "make it fast",
        "state": "done",
        "why": "",
        "answer": f"Lane {number} has made it fast.",
        "files": (FileChange(f"src/parser_{number}.py", 123, 45, "changed"), FileChange("new.py", 7, 0, "added")),
        "check": True,
        "check_output": "",
        "turns": 10 + number,
        "tokens": 123_456 * number,
        "cost": 1.5 * number,
        "seconds": 100.0 * number,
        "leaf": f"leaf000{number}",
        "verdict": None,
        **more,
    }
    return Result(**values)


def lane(session: Reader, number: int, *, model: str | None = None, **more: Any) -> Lane:
    record = LaneRecord("5d9bd8a2", number, f"lane-{number}", "make it fast", model or MODELS[number - 1])
    made = Lane(session, record, "start")
    made.state, made.last_tool = "running", "bash {}"
    made.spent = RunUsage(turns=7, input=48_000, cost=0.31, seconds=72.0)
    for field, value in more.items():
        setattr(made, field, value)
    return made


@pytest.fixture
def lanes(tmp_path: Path) -> list[Lane]:
    session = new_session(tmp_path)
    return [
        lane(session, 1, last_tool='bash {"command":"pytest -q tests/test_parser.py"}'),
        lane(session, 2, state="stopped", why="stopped by a person"),
        lane(session, 3, state="done", text=CHINESE),
    ]


def fits(lines: Sequence[str], width: int) -> bool:
    return all(columns(line) <= width for line in lines)


# The comparison


@pytest.mark.parametrize("width", WIDTHS)
def test_every_width_shows_state_check_files_tokens_cost_time_and_answer(width: int) -> None:
    compared = [
        result(1),
        result(2, state="stopped", check=False, check_output="E  it is slow\n", answer=CHINESE),
        result(3, state="failed", why="the model refused", verdict="dropped"),
    ]
    lines = list(draw_results(compared, width))
    assert fits(lines, width)
    shown = "\n".join(lines)
    for words in (
        *("done", "stopped", "failed (dropped)", "passed", "failed", "+130 -45", "11", "12", "13"),
        *("123k", "247k", "370k", "$1.50", "$3.00", "$4.50", "1m40s", "3m20s", "5m00s"),
        *("Lane 1 has made it fast.", "Lane 3 has made it fast.", "解析器", "完成。", "E  it is slow"),
        *("the model refused", "parser_1.py", "parser_2.py", "new.py", "gpt-5", "claude-opus-4-5"),
    ):
        assert words in shown, f"{words} at {width}"


def test_narrow_terminals_show_blocks_with_the_state_of_each_lane() -> None:
    long = result(1, name="解析器" * 30, state="stopped", verdict="dropped")
    lines = list(draw_results([long, result(2)], 40))
    assert fits(lines, 40)
    assert re.fullmatch(r"1 解析器.*… · stopped \(dropped\)", next(line for line in lines if line.startswith("1")))
    assert "2 lane-2 · done" in lines


def test_providers_are_omitted_before_a_table_becomes_blocks() -> None:
    rows = {width: list(draw_results([result(1), result(2)], width))[1] for width in (120, 80)}
    assert "anthropic:claude-opus-4-5" in rows[120]
    assert "claude-opus-4-5" in rows[80]
    assert "anthropic" not in rows[80]


def test_two_models_never_look_the_same() -> None:
    assert shorten_models(["a:gpt-5", "b:gpt-5"], 20) == ["a:gpt-5", "b:gpt-5"]
    assert shorten_models(["a:claude-opus-4-5", "a:claude-sonnet-4-5"], 10) == ["claude-op…", "claude-so…"]
    paths = shorten_models(["x:/a/long/way/to/1.json", "x:/a/long/way/to/2.json"], 14)
    assert paths == ["/a/long…1.json", "/a/long…2.json"]
    assert (
        shorten_models(["a:one-and-the-same-1-beginning-and-end", "a:one-and-the-same-2-beginning-and-end"], 9) is None
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_a_model_that_all_lanes_have_is_shown_once(width: int, tmp_path: Path) -> None:
    same = [result(number, model="anthropic:claude-opus-4-5") for number in (1, 2, 3)]
    session = new_session(tmp_path)
    alike = [lane(session, number, model="anthropic:claude-opus-4-5") for number in (1, 2, 3)]
    for lines in (list(draw_results(same, width)), draw_progress(alike, width)):
        assert lines[0] == "model: anthropic:claude-opus-4-5"
        assert "\n".join(lines).count("claude") == 1
        assert "MODEL" not in "\n".join(lines)


def test_empty_columns_are_omitted() -> None:
    bare = [result(number, cost=0.0, check=None, files=None) for number in (1, 2)]
    for width in WIDTHS:
        shown = "\n".join(draw_results(bare, width))
        assert not {"CHECK", "FILES", "$"} & set(re.findall(r"[A-Z]+|\$", shown))


def test_an_unknown_cost_is_a_question_mark() -> None:
    unknown = [result(number, cost=0.0) for number in (1, 2)]
    (heading, first, *_) = draw_results(unknown, 200)
    assert first[: heading.index("COST") + len("COST")].endswith(" ?")


@pytest.mark.parametrize("width", WIDTHS)
def test_long_answers_show_six_lines_and_a_command_for_the_rest(width: int) -> None:
    answer = "\n".join(f"Line {number}." for number in range(1, 21))
    lines = list(draw_results([result(1, answer=answer, files=())], width, session="019c2f3a"))
    quoted = [line for line in lines if line.startswith("  │ ")]
    assert quoted == [f"  │ Line {number}." for number in range(1, 7)]
    state = " ".join(" ".join(lines).split())
    command = "sessiontree show 019c2f3a --leaf leaf0001"
    assert f"… 14 more lines: {command}" in state
    assert any(line.endswith(command) for line in lines), "in one piece, for users who copy it"
    assert fits([line for line in lines if not line.endswith(f"  {command}")], width)


@pytest.mark.parametrize("width", WIDTHS)
def test_costs_below_a_dollar_are_distinct_in_every_table(width: int, tmp_path: Path) -> None:
    session, costs = new_session(tmp_path), {1: 0.0134, 2: 0.0150, 3: 0.00002}
    grown = [lane(session, number, spent=RunUsage(turns=1, cost=cost)) for number, cost in costs.items()]
    compared = [result(number, cost=cost) for number, cost in costs.items()]
    for lines in (draw_progress(grown, width), list(draw_results(compared, width))):
        assert all(text in "\n".join(lines) for text in ("$0.0134", "$0.0150", "<$0.0001"))
        assert fits(lines, width)


def test_the_command_for_the_rest_is_safe_whatever_a_file_contains() -> None:
    evil = result(1, answer="a\n" * 20, leaf="x; rm -rf ~ \x1b[2J")
    (line,) = [line for line in draw_results([evil], 140, session="'my session'") if "more lines" in line]
    assert line.endswith("sessiontree show 'my session' --leaf 'x; rm -rf ~ ␛[2J'")


@pytest.mark.parametrize("width", WIDTHS)
def test_an_answer_is_wrapped_by_columns_and_nothing_of_it_is_lost(width: int) -> None:
    lines = [line[4:] for line in draw_results([result(1, answer=CHINESE)], width) if line.startswith("  │ ")]
    assert "".join(lines).replace(" ", "") == CHINESE.replace(" ", "")
    assert fits(lines, width - 4)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_last_lines_of_a_failed_check_are_shown_below_its_lane(width: int) -> None:
    output = "".join(f"line {number}\n" for number in range(1, 31)) + "\x1b[31m1 failed\x1b[0m\n\n"
    compared = [result(1, check_output="all is well"), result(2, check=False, check_output=output)]
    lines = list(draw_results(compared, width))
    assert fits(lines, width)
    below = lines[next(at for at, line in enumerate(lines) if line.startswith("2 lane-2")) :]
    printed = [line for line in below if line.startswith("  │ ")][-5:]
    assert printed == [*(f"  │ line {number}" for number in (27, 28, 29, 30)), "  │ ␛[31m1 failed␛[0m"]
    assert "last 5 of 31 lines of output" in " ".join(" ".join(below).split())
    assert "all is well" not in "\n".join(lines), "what a check printed that passed says nothing new"


def test_a_stopped_check_is_shown_with_its_reason_and_output() -> None:
    ended = result(1, check=None, check_why="stopped early", check_output="begun\n")
    lines = list(draw_results([ended], 80))
    assert "  check: stopped early; output:" in lines
    assert "  │ begun" in lines
    assert "unknown" in lines[2]
    silent = "\n".join(draw_results([result(1, check=False)], 80))
    assert "check failed; no output" in silent


def test_an_empty_answer_is_shown_as_no_answer() -> None:
    assert "  (no answer)" in list(draw_results([result(1, answer=" \n")], 80))


def test_the_end_of_a_long_path_is_kept() -> None:
    assert cut_middle("src/deep/folder/parser.py", 15) == "src/dee…rser.py"
    assert cut_middle("解析器/字句解析.py", 12) == "解析器…析.py"
    assert columns(cut_middle(CHINESE, 11)) <= 11


def test_headings_and_secondary_text_are_styled_and_the_rest_is_not() -> None:
    lines = list(draw_results([result(1)], 100, bold=lambda text: f"<b>{text}", dim=lambda text: f"<d>{text}"))
    assert [line for line in lines if line.startswith("<b>")] == ["<b>1 lane-1"]
    assert [line for line in lines if line.startswith("<d>")] == [next(line for line in lines if "STATE" in line)]


# While they grow


@pytest.mark.parametrize("width", WIDTHS)
def test_progress_shows_state_turns_tokens_and_activity_at_every_width(lanes: list[Lane], width: int) -> None:
    lines = draw_progress(lanes, width)
    assert fits(lines, width)
    shown = "\n".join(lines)
    for words in ("running", "stopped", "done", "STATE", "1m12s", "bash {", "stopped by a pers", "解析器は", "gpt-5"):
        assert words in shown, f"{words} at {width}"
    assert shown.count("48k") == 3
    assert shown.count("$0.31") == 3


def test_each_lane_has_one_row_at_80_columns_and_two_at_40(lanes: list[Lane]) -> None:
    counts = set()
    for doing in ("", "bash {}", CHINESE * 9, "two\nlines\nof it", "\x1b[2J"):
        for one in lanes:
            one.last_tool = one.why = one.text = doing
        counts.add((len(draw_progress(lanes, 80)), len(draw_progress(lanes, 40))))
        assert fits(draw_progress(lanes, 40), 40)
    assert counts == {(1 + 3, 1 + 6)}


def test_short_labels_are_names_or_models(lanes: list[Lane]) -> None:
    lanes[1].record = msgspec.structs.replace(lanes[1].record, name="quick")
    _, first, _, second, *_ = draw_progress(lanes, 40)
    assert first.startswith("1 claude-")
    assert second.startswith("2 quick ")


@pytest.mark.parametrize("width", [40, 80])
def test_ended_lanes_are_left_out_first_if_there_are_too_few_rows(tmp_path: Path, width: int) -> None:
    session = new_session(tmp_path)
    many = [lane(session, number, model="test:one", state="done") for number in range(1, 13)]
    many[8].state = "running"
    for most in range(2, 30):
        lines = draw_progress(many, width, most=most)
        assert len(lines) <= most
        shown = [line for line in lines if "done" in line or "running" in line]
        assert len(shown) == 12 or lines[-1] == f"… {12 - len(shown)} more lane{'s' if len(shown) < 11 else ''}"
        assert most < 6 or any("running" in line for line in lines)


def test_without_a_lane_there_is_nothing_to_draw() -> None:
    assert draw_progress([], 80) == []
    assert list(draw_results([], 80)) == []


# Through the program


@pytest.mark.slow
def test_the_compare_command_fits_any_width(tmp_path: Path) -> None:
    place = Repository(tmp_path)
    place.run_json("count", "--n", "2", "--model", "demo", "--check", "echo it is wrong; exit 1")
    for width in WIDTHS:
        done = place.explore("compare", more={"COLUMNS": str(width)})
        lines = done.stdout.splitlines()
        assert fits(lines, width)
        assert done.stdout.count("  │ it is wrong\n") == 2
        assert "Done: words are counted" in done.stdout
        assert "model: demo" in lines


def test_the_command_that_shows_the_rest_of_an_answer_shows_it(tmp_path: Path) -> None:
    place = Repository(tmp_path)
    with place.opened() as session:
        session.append("user", "long?")
    script = place.home / "long.json"
    script.write_text('{"turns": [{"text": "' + "".join(f"Line {number}.\\n" for number in range(20)) + '"}]}')
    place.run_json("go", "--model", f"scripted:{script}")
    state = place.explore("compare").stdout
    command = re.search(r"more lines:\s+sessiontree (show) \S+ (--leaf) (\S+)", state)
    assert command is not None, state
    shown = place.sessiontree(command[1], place.location, command[2], command[3])
    assert "Line 7." not in state
    assert "Line 19." in shown.stdout
