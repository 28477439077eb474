"""`sessiontree explore` end to end: the real program, real git, a model server, a real terminal."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import sessiontree
from sessiontree.core.messages import Usage, message_text
from sessiontree.explore.state import find_exploration
from sessiontree.testing.model_server import ModelServer
from tests.chat.terminals import Terminal, call, scripted, turn
from tests.explore.programs import MODELS, WORDS, Repository, explore_words, model_arguments, turns
from tests.explore.repos import contents, git, seen_by_user


@pytest.fixture
def place(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """One for all tests of commands that must not write."""
    return Repository(tmp_path_factory.mktemp("untouched"))


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository with an exploration of two lanes that has ended; tests restore its session file."""
    place = Repository(tmp_path_factory.mktemp("explored"))
    place.run_json("count", "--model", "demo", "--n", "2")
    return place


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(turns()) as server:
        yield server


BRANCHES = """
○ user Write alpha. [lane 1 · claude-opus-5 · merged]
○ assistant I write alpha. → write alpha.txt
○ result created alpha.txt (1 line, 6 bytes)
○ assistant I look. → read alpha.txt
○ result alpha
○ assistant There is alpha now.

◇ merge ⇠ Another branch

○ user Write beta. [lane 2 · gpt-5 · merged]
○ assistant I write beta. → write beta.txt
○ result created beta.txt (1 line, 5 bytes)
○ assistant I look. → read beta.txt
○ result beta
○ assistant There is beta now. ⇢ merge

○ user Write gamma. [lane 3 · claude-sonnet-5 · dropped]
○ assistant I write gamma. → write gamma.txt
○ result created gamma.txt (1 line, 6 bytes)
○ assistant I look. → read gamma.txt
○ result gamma
○ assistant There is gamma now.

● user Write delta. [lane 4 · gpt-5-mini · kept]
● assistant I write delta. → write delta.txt
● result created delta.txt (1 line, 6 bytes)
● assistant I look. → read delta.txt
● result delta
● assistant There is delta now. ◀ here
"""


@pytest.mark.slow
def test_four_models_in_four_worktrees_compared_two_merged_one_dropped_one_kept(
    place: Repository, server: ModelServer
) -> None:
    before, files = seen_by_user(place.project), contents(place.project)
    leaf_before = place.opened().leaf

    done = place.explore(
        "--prompts", place.prompts(), *model_arguments(), "--check", "test -e alpha.txt", more=server.environment()
    )
    assert done.returncode == 0, done.stderr
    assert {str(one.body["model"]) for one in server.requests} == {model.partition(":")[2] for model in MODELS}
    assert contents(place.project) == files, "lanes work in worktrees of their own"
    assert seen_by_user(place.project) == before
    assert git(place.project, "worktree", "list").count("\n") == 0
    assert place.opened().leaf == leaf_before

    results = place.run_json("compare")["results"]
    assert [one["name"] for one in results] == [model.partition(":")[2] for model in MODELS]
    assert [one["model"] for one in results] == list(MODELS)
    assert [one["answer"] for one in results] == [f"There is {word} now." for word in WORDS]
    assert [[(file["path"], file["added"]) for file in one["files"]] for one in results] == [
        [(f"{word}.txt", 1)] for word in WORDS
    ]
    assert [one["check"] for one in results] == [True, False, False, False]
    assert all(one["tokens"] > 0 and one["turns"] == 3 and one["seconds"] > 0 for one in results)
    assert "+beta\n" in place.explore("diff", "gpt-5").stdout

    merged = place.run_json("merge", "1", "gpt-5")
    assert [one["path"] for one in merged["files"]] == ["alpha.txt", "beta.txt"]
    assert place.opened().leaf == merged["leaf"]
    dropped = place.run_json("drop", "3")
    assert (dropped["verdict"], dropped["leaf"]) == ("dropped", merged["leaf"])
    kept = place.run_json("keep", "4")
    assert (place.project / "alpha.txt").read_text() == "alpha\n"
    assert (place.project / "delta.txt").read_text() == "delta\n"
    assert not (place.project / "gamma.txt").exists()

    fresh = place.opened()
    assert fresh.leaf == kept["leaf"]
    assert [message_text(one) for one in fresh.context().messages][-1] == "There is delta now."
    lanes = find_exploration(fresh).lanes
    assert [lane.verdict and lane.verdict.verdict for lane in lanes] == ["merged", "merged", "dropped", "kept"]
    assert git(place.project, "show", f"{lanes[2].saved}:gamma.txt") == "gamma"
    first, fork, *rows = drawn(place)
    assert (first, fork) == ("● user What shall we do?", "●─╮ assistant Try several ways.")
    assert in_branches(rows) == sorted(branch.splitlines() for branch in BRANCHES.strip().split("\n\n"))
    examined = place.sessiontree("doctor", place.location)
    assert examined.returncode == 0
    assert "no problems found" in examined.stdout
    after = seen_by_user(place.project)
    assert {name: after[name] for name in after if name != "status"} == {
        name: before[name] for name in before if name != "status"
    }


def drawn(place: Repository) -> list[str]:
    """The drawn tree without ids and times, which differ each time."""
    shown = place.sessiontree("tree", place.location).stdout
    lines = []
    for line in shown.splitlines():
        line = re.sub(r"\s+\d\d:\d\d$", "", line)
        line = re.sub(r"(?<=⇢ )[0-9a-f]{8}", "merge", line)
        line = re.sub(r"[0-9a-f]{8}", "", line)
        line = re.sub(r"(?<=⇠)( +Another branch).*", r"\1", line)  # as much as fits
        lines.append(re.sub(r"(?<=\S) +", " ", line).rstrip())
    return lines


def in_branches(rows: list[str]) -> list[list[str]]:
    """The rows of each branch, and merges, without their lines; sorted, because lanes start and end in any order."""
    branches: list[list[str]] = []
    for row in rows:
        text = " ".join(re.sub("[│─├┤┬┴┼╭╮╰╯]", "", row).split())
        if text[1:].startswith((" user ", " merge ")):
            branches.append([])
        branches[-1].append(text)
    return sorted(branches)


def test_json_streams_events_and_ends_with_the_results(place: Repository) -> None:
    done = place.explore("--prompts", place.prompts(WORDS[:2]), "--model", scripted(place, *turns()), "--json")
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(one["schemaVersion"] == 1 for one in objects)
    *events, last = objects
    assert {one["type"] for one in events} == {"event"}
    kinds = [(one["lane"], one["event"]["type"]) for one in events]
    for lane in (1, 2):
        own = [kind for number, kind in kinds if number == lane]
        assert own[0] == "lane_made"
        assert own[-1] == "lane_ended"
        assert own.count("tool_end") == 2
    assert last["type"] == "results"
    assert [one["state"] for one in last["results"]] == ["done", "done"]
    assert "keep N" not in done.stderr


COMMAND = [turn("I run it.", call("bash", command="touch ran.txt"), when="run it"), turn("It was run.", repeat=True)]


@pytest.mark.slow
def test_commands_are_denied_without_a_terminal_and_pass_with_yolo(place: Repository) -> None:
    denied = place.run_json("run it", "--model", scripted(place, *COMMAND))
    (lane,) = denied["results"]
    assert (lane["state"], lane["files"]) == ("done", [])
    passed = place.run_json("run it", "--model", scripted(place, *COMMAND), "--approval", "yolo")
    assert [one["path"] for one in passed["results"][0]["files"]] == ["ran.txt"]
    assert not (place.project / "ran.txt").exists()


@pytest.mark.slow
def test_access_outside_the_worktree_is_denied_in_every_mode(place: Repository) -> None:
    target = place.project / "a.txt"
    script = scripted(
        place,
        turn("Out.", call("write", path=str(target), content="broken out\n"), when="go"),
        turn("Done.", repeat=True),
    )
    before = target.read_text()
    for mode in ("autoEdit", "yolo"):
        done = place.explore("go", "--model", script, "--approval", mode)
        assert done.returncode == 0, done.stderr
    assert target.read_text() == before


@pytest.mark.slow
def test_a_session_file_that_approves_everything_approves_nothing_in_lanes(place: Repository) -> None:
    with place.opened() as session:
        session.set_config(approval_mode="yolo")
    (lane,) = place.run_json("run it", "--model", scripted(place, *COMMAND))["results"]
    assert (lane["state"], lane["files"]) == ("done", [])
    assert place.explore("run it", "--model", scripted(place, *COMMAND), "--approval", "yolo").returncode == 0


@pytest.mark.slow
def test_folders_of_lanes_are_kept_on_request(place: Repository) -> None:
    place.run_json("count", "--n", "2", "--model", "demo", "--keep-worktrees")
    lanes = find_exploration(place.opened()).lanes
    for lane in lanes:
        assert lane.worktree is not None
        assert (Path(lane.worktree.path) / "demo_words.py").is_file()
        assert (Path(lane.worktree.path) / "staged.txt").read_text() == "changed since\n"
    place.run_json("drop", "1", "2")
    assert not any(Path(lane.worktree.path).exists() for lane in lanes if lane.worktree is not None)


def test_blocks_of_a_file_are_prompts_of_several_lines(place: Repository) -> None:
    file = place.home / "blocks.txt"
    file.write_text("first\nstill first\n---\n\n  second\n---\n")
    place.run_json("--prompts", str(file), "--model", "demo")
    lanes = find_exploration(place.opened()).lanes
    assert [lane.record.prompt for lane in lanes] == ["first\nstill first", "second"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "pass a PROMPT for all lanes"),
        (["x", "--prompts", "p.txt"], 2, "pass a PROMPT for all lanes"),
        (["--prompts", "nowhere.txt"], 1, "no such file"),
        (["--prompts", ".gitignore", "--n", "3"], 2, "not allowed with"),
        (["x", "--budget", "12 apples"], 2, "invalid budget '12 apples'"),
        (["x", "--budget", "1k", "--budget", "2k"], 2, "two budgets of tokens"),
        (["x", "--n", "0"], 2, "at least 1 is needed"),
        (["x", "--n", "20"], 2, "the limit is 16"),
        (["x", "--n", "1", "--model", "a:one"], 2, "2 models for 1 lane: demo would be unused; use --n 2"),
        (
            ["--prompts", "../two.txt", "--model", "a:one", "--model", "a:two"],
            2,
            "demo would be unused; give each a prompt",
        ),
        (["x", "--check", ""], 2, "--check: the value is empty"),
        (["x", "--fork-on", " "], 2, "--fork-on: the command is empty"),
        (["resume", "--check", " "], 2, "--check: the command is empty"),
        (["x", "--at", "nowhere"], 1, "nowhere"),
        (["x", "--fork-on-repeats", "1"], 2, "at least 2 are needed"),
        (["x", "--fork-below", "7"], 2, "from 0 to 1"),
        (["resume"], 1, "no exploration"),
        (["keep", "1"], 1, "no exploration"),
        (["--compare", "--list"], 2, "not allowed with"),
        (["resume", "--parallel", "4"], 2, "unrecognized arguments: --parallel 4"),
        (["x", "--run", "y"], 2, "no option --run"),
    ],
)
def test_invalid_arguments_are_refused_in_one_line_and_nothing_is_written(
    untouched: Repository, arguments: list[str], code: int, words: str
) -> None:
    (untouched.project.parent / "two.txt").write_text("one\ntwo\n")
    before = Path(untouched.location).read_bytes()
    is_new = not {"resume", "keep", "--compare"} & set(arguments)
    done = untouched.explore(*arguments, *(["--model", "demo"] if is_new else []))
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert Path(untouched.location).read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["keep", "1", "x"], "unrecognized arguments: x"),
        (["keep", "1", "--at", "zzzz", "--n", "2"], "unrecognized arguments: --at zzzz --n 2"),
        (["keep", "1", "--parallel", "4"], "unrecognized arguments: --parallel 4"),
        (["drop", "2", "--check", "false"], "unrecognized arguments: --check false"),
        (["list", "--budget", "zzzz"], "unrecognized arguments: --budget zzzz"),
        (["merge", "1", "2", "--no-files"], "unrecognized arguments: --no-files"),
        (["diff", "1", "--keep-worktrees"], "unrecognized arguments: --keep-worktrees"),
        (["keep"], "the following arguments are required: LANE"),
        (["--keep", "1", "--keep", "2"], "--keep can be given once"),
        (["--diff", "1", "--diff", "2"], "--diff can be given once"),
    ],
)
def test_an_option_of_another_subcommand_is_refused_and_nothing_is_done(
    explored: Repository, arguments: list[str], words: str
) -> None:
    before, files = Path(explored.location).read_bytes(), contents(explored.project)
    done = explored.explore(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert words in done.stderr
    assert Path(explored.location).read_bytes() == before
    assert contents(explored.project) == files


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["--compare"], ["compare"]),
        (["--list", "--json"], ["list", "--json"]),
        (["--diff", "1"], ["diff", "1"]),
        (["--drop", "1", "--drop", "2", "--keep-worktrees"], ["drop", "1", "2", "--keep-worktrees"]),
        (["--merge", "1", "--merge", "2", "--instructions", "all"], ["merge", "1", "2", "--instructions", "all"]),
        (["--keep", "1", "--no-files"], ["keep", "1", "--no-files"]),
        (["--resume", "RUN", "--budget", "400k"], ["resume", "--run", "RUN", "--budget", "400k"]),
        (["--again", "2", "--run", "RUN"], ["resume", "--again", "2", "--run", "RUN"]),
    ],
)
def test_mode_flags_of_earlier_versions_work_and_name_the_new_form(
    explored: Repository, old: list[str], new: list[str]
) -> None:
    run = find_exploration(explored.opened()).run
    old, new = ([run if word == "RUN" else word for word in words] for words in (old, new))
    file = Path(explored.location)
    before = file.read_bytes()
    done = explored.explore(*old)
    file.write_bytes(before)
    again = explored.explore(*new)
    file.write_bytes(before)
    first, *others = done.stderr.splitlines()
    words = shlex.join(["explore", *explore_words(explored.location, new)])
    assert first == f"sessiontree: {old[0]} is deprecated; use `sessiontree {words}`"
    assert again.returncode == done.returncode
    if "--keep-worktrees" not in old and old[0] not in ("--merge", "--keep"):  # these print the ids of new entries
        assert (again.stdout, again.stderr.splitlines()) == (done.stdout, others)


def test_a_subcommand_after_an_option_is_not_taken_for_a_session(place: Repository) -> None:
    done = place.sessiontree("explore", "--json", "list", place.location)
    assert (done.returncode, done.stdout) == (2, "")
    assert "put the subcommand first" in done.stderr


def test_a_diff_written_to_a_file_is_a_patch_for_any_bytes(place: Repository) -> None:
    writes = call("bash", command=r"printf 'caf\351\n' > latin.txt; printf '\000\001\002' > some.bin; rm run.sh")
    script = scripted(place, turn("I write.", writes, when="go"), turn("Done.", repeat=True))
    place.run_json("go", "--model", script, "--approval", "yolo")
    patch = place.home / "lane.patch"
    with patch.open("wb") as file:
        subprocess.run(
            [sys.executable, "-m", "sessiontree", "explore", "diff", place.location, "1"],
            stdout=file,
            cwd=place.project,
            env=place.environment,
            check=True,
        )
    git(place.project, "apply", str(patch))
    assert (place.project / "latin.txt").read_bytes() == b"caf\xe9\n"
    assert (place.project / "some.bin").read_bytes() == bytes(range(3))
    assert not (place.project / "run.sh").exists()


def test_a_byte_order_mark_is_not_part_of_the_first_prompt(place: Repository) -> None:
    file = place.home / "marked.txt"
    file.write_bytes("\ufefffirst\nsecond\n".encode())
    place.run_json("--prompts", str(file), "--model", "demo")
    assert [lane.record.prompt for lane in find_exploration(place.opened()).lanes] == ["first", "second"]


def test_prompts_from_a_closed_standard_input_are_refused(place: Repository) -> None:
    command = [sys.executable, "-m", "sessiontree", "explore", place.location, "--prompts", "-", "--model", "demo"]
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
    done = subprocess.run(closed, capture_output=True, text=True, env=place.environment, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "standard input is closed" in done.stderr


@pytest.mark.slow
def test_a_lane_that_is_named_twice_is_dropped_once(place: Repository) -> None:
    place.run_json("count", "--model", "demo", "--n", "2")
    assert place.run_json("drop", "2", "2", "lane-2")["lanes"] == [2]


def test_a_project_without_a_repository_or_a_commit_gets_a_next_step(place: Repository, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    for prepare, words in ((lambda: None, "git init"), (lambda: git(plain, "init", "-q"), "git commit --allow-empty")):
        prepare()
        session = sessiontree.create(plain, home=place.home, appear="now")
        session.close()
        done = place.sessiontree("explore", session.location, "go", "--model", "demo")
        assert done.returncode == 2
        assert words in done.stderr
        assert "--no-worktrees" in done.stderr
    done = place.sessiontree("explore", session.location, "go", "--model", "demo", "--no-worktrees")
    assert done.returncode == 0, done.stderr
    assert not (plain / "demo_words.py").exists(), "in a folder that is shared, changes are asked about"


@pytest.mark.slow
def test_after_a_kill_each_lane_continues_and_commands_in_the_file_are_not_run(place: Repository) -> None:
    slow = [
        turn("I write.", call("write", path="w.txt", content="w\n"), when="go"),
        turn("Slowly.", when="created w.txt", first_delay=60.0),
    ]
    again = [turn("I have come to my end.", repeat=True)]
    script = scripted(place, *slow)
    command = [sys.executable, "-m", "sessiontree", "explore", place.location, "go", "--n", "2", "--model", script]
    child = subprocess.Popen(
        [*command, "--check", "touch checked.txt", "--parallel", "2"],
        cwd=place.project,
        env=place.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 40
    while place.location and Path(place.location).read_text().count("created w.txt") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    scripted(place, *again)
    done = place.explore("resume")
    assert done.returncode == 0, done.stderr
    assert "--check 'touch checked.txt'" in done.stderr
    results = place.run_json("compare")["results"]
    assert [one["state"] for one in results] == ["done", "done"]
    assert [[file["path"] for file in one["files"]] for one in results] == [["w.txt"], ["w.txt"]]
    assert [one["check"] for one in results] == [None, None]
    assert git(place.project, "worktree", "list").count("\n") == 0
    assert place.explore("resume").returncode == 2


@pytest.mark.slow
def test_lanes_at_a_limit_continue_only_with_a_larger_budget(place: Repository) -> None:
    writes = call("write", path="w.txt", content="w\n")
    first = turn("I write.", writes, when="go", usage=Usage(1_000, 0, total_tokens=1_000))
    script = scripted(place, first, turn("There it is.", when="created w.txt"))
    done = place.explore("go", "--model", script, "--budget", "500")
    hint = re.search(r"`sessiontree (explore resume [^`]*)`", done.stderr)
    assert hint is not None
    assert shlex.split(hint[1])[-4:] == ["--model", script, "--budget", "N"], "typed as it is, it uses the same model"
    assert (done.returncode, "--budget N" in done.stderr) == (1, True)
    done = place.explore("resume")
    assert (done.returncode, "a larger --budget" in done.stderr) == (2, True)
    (result,) = place.run_json("resume", "--again", "1", "--budget", "500k")["results"]
    assert (result["state"], result["answer"]) == ("done", "There it is.")
    assert [file["path"] for file in result["files"]] == ["w.txt"], "its folder was gone, and its work was not"


@pytest.mark.slow
def test_a_program_that_is_terminated_leaves_lanes_that_can_be_resumed(place: Repository) -> None:
    script = scripted(place, turn("Slow.", first_delay=60.0, repeat=True))
    child = subprocess.Popen(
        [sys.executable, "-m", "sessiontree", "explore", place.location, "go", "--n", "2", "--model", script],
        cwd=place.project,
        env=place.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 40
    while Path(place.location).read_text().count("This is attempt") < 6:  # in the plan, in the records, and in messages
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.terminate()
    _, err = child.communicate(timeout=40)
    assert child.returncode == 130
    assert "explore resume" in err.splitlines()[-1]
    scripted(place, turn("I have come to my end.", repeat=True))
    done = place.explore("resume")
    assert done.returncode == 0, done.stderr
    results = place.run_json("compare")["results"]
    assert [(one["state"], one["answer"]) for one in results] == [("done", "I have come to my end.")] * 2


# On a terminal


@pytest.mark.slow
def test_the_table_is_drawn_in_place_and_a_lane_is_kept_at_the_end(place: Repository) -> None:
    slow = [msgspec.structs.replace(one, first_delay=0.3) for one in turns()]
    with place.terminal("--prompts", place.prompts(), "--model", scripted(place, *slow)) as terminal:
        terminal.wait_for("Ctrl-C: stop a lane")
        terminal.wait_for("│ There is alpha now.")
        terminal.wait_for("decide later]")
        terminal.answer("nonsense")
        terminal.wait_for("keep 2 · merge 1 3")
        terminal.wait_for("decide later]")
        terminal.answer("diff 2")
        terminal.wait_for("+beta")
        terminal.wait_for("decide later]")
        terminal.answer("keep 9")
        terminal.wait_for("no lane '9'")
        terminal.wait_for("decide later]")
        terminal.answer("keep 2")
        terminal.wait_for("kept: 2")
        assert terminal.end() == 0
    assert "\x1b[7A" in terminal.raw, "the table of four lanes, with its three other lines, is written over itself"
    assert (place.project / "beta.txt").read_text() == "beta\n"
    assert message_text(place.opened().context().messages[-1]) == "There is beta now."


def test_a_terminal_closed_during_the_question_leaves_the_decision_for_later(place: Repository) -> None:
    with place.terminal("count", "--model", "demo") as terminal:
        terminal.wait_for("decide later]")
        terminal.process.send_signal(signal.SIGHUP)
        assert terminal.end() == 0
        assert "Traceback" not in terminal.shown
    assert [one["verdict"] for one in place.run_json("compare")["results"]] == [None]
    assert git(place.project, "worktree", "list").count("\n") == 0


def test_an_approval_question_names_its_lane(place: Repository) -> None:
    script = scripted(place, *COMMAND)
    with place.terminal("run it", "--model", script, "--model", script) as terminal:
        first = terminal.wait_for("Allow?")
        assert "lane " in first
        assert "touch ran.txt" in first
        terminal.answer("y")
        terminal.wait_for("Allow?")
        terminal.answer("n not today")
        terminal.wait_for("decide later]")
        terminal.answer("")
        assert terminal.end() == 0
    ran = [bool(one["files"]) for one in place.run_json("compare")["results"]]
    assert sorted(ran) == [False, True]


def test_ctrl_c_at_a_question_denies_it_and_asks_which_lane_to_stop(place: Repository) -> None:
    script = scripted(place, COMMAND[0], turn("Slow.", first_delay=60.0, repeat=True))
    with place.terminal("run it", "--model", script) as terminal:
        terminal.wait_for("Allow?")
        terminal.interrupt()
        terminal.wait_for("Stop which lane?")
        terminal.answer("1")
        terminal.wait_for("decide later]")
        terminal.answer("")
        assert terminal.end() == 1
    (result,) = place.run_json("compare")["results"]
    assert (result["state"], result["files"]) == ("stopped", [])


@pytest.mark.slow
def test_ctrl_c_asks_which_lane_to_stop_and_twice_stops_all(place: Repository) -> None:
    script = scripted(place, turn("Slow.", first_delay=60.0, repeat=True))
    with place.terminal("go", "--n", "3", "--model", script) as terminal:
        terminal.wait_for("running")
        terminal.interrupt()
        terminal.wait_for("Stop which lane?")
        terminal.answer("2")
        terminal.wait_for("stopped")
        terminal.interrupt()
        terminal.wait_for("Stop which lane?")
        terminal.interrupt()
        terminal.wait_for("decide later]")
        terminal.answer("leave")
        terminal.wait_for("left: 1, 2, 3")
        assert terminal.end() == 130
    assert [one["state"] for one in place.run_json("compare")["results"]] == ["stopped"] * 3


@pytest.mark.slow
def test_chat_explores_and_moves_to_the_kept_branch(place: Repository) -> None:
    with Terminal(place, ["--session", place.location, "--model", scripted(place, *turns())]) as terminal:
        terminal.enter('/explore 1 "Write gamma."')
        terminal.wait_for("decide later]")
        terminal.answer("keep 1")
        terminal.wait_for("kept: 1")
        terminal.enter("Write delta.")
        terminal.wait_for("Allow?")
        terminal.answer("y")
        terminal.wait_for("There is delta now.")
        terminal.enter("/quit")
        assert terminal.end() == 0
    texts = [message_text(one) for one in place.opened().context().messages]
    assert "There is gamma now." in texts
    assert texts[-1] == "There is delta now."
    assert (place.project / "gamma.txt").read_text() == "gamma\n"


def test_chat_explores_with_a_scripted_model(place: Repository) -> None:
    script = scripted(place, turn("So says the script.", repeat=True))
    with Terminal(place, ["--session", place.location, "--model", script]) as terminal:
        terminal.enter('/explore 1 "go"')
        terminal.wait_for("decide later]")
        terminal.answer("")
        terminal.enter("/quit")
        assert terminal.end() == 0
    (lane,) = find_exploration(place.opened()).lanes
    assert (lane.text, lane.record.model) == ("So says the script.", script)


@pytest.mark.slow
def test_in_chat_ctrl_c_stops_lanes_and_the_conversation_continues(place: Repository) -> None:
    script = scripted(place, turn("Slow.", first_delay=60.0, when="go"), turn("Here I am.", repeat=True))
    with Terminal(place, ["--session", place.location, "--model", script]) as terminal:
        terminal.enter("/explore nonsense")
        terminal.wait_for("expected /explore N")
        terminal.enter('/explore 2 "go"')
        terminal.wait_for("running")
        terminal.interrupt()
        terminal.wait_for("Stop which lane?")
        terminal.answer("all")
        terminal.wait_for("decide later]")
        terminal.answer("")
        terminal.enter("/quit")
        assert terminal.end() == 0
    assert [one["state"] for one in place.run_json("compare")["results"]] == ["stopped"] * 2
    assert git(place.project, "worktree", "list").count("\n") == 0
