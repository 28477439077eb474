"""`convert`, `fork --to` and `resume` as processes."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

import sessiontree
from sessiontree.conversion.launch import plan_resumption
from tests.cli.conftest import Run
from tests.conversion.conversations import everything
from tests.library.world import IDS, World

DIALECTS = ("claude", "neovate", "omp", "pi", "native")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A native session with everything in it, in a file."""
    path = tmp_path / "source.jsonl"
    path.write_bytes(b"".join(sessiontree.convert(everything(), "native", branch="all").lines))
    return path


@pytest.fixture(autouse=True)
def agents_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point every agent's home folder at a temporary one."""
    home = tmp_path / "user"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in list(os.environ):
        if name.startswith(("CLAUDE", "PI_", "OMP_", "XDG_")):
            monkeypatch.delenv(name)
    return home


def test_convert_without_a_destination_only_shows_the_plan(run: Run, source: Path, agents_at_home: Path) -> None:
    ran = run("convert", str(source), "--to", "claude")
    assert ran.code == 0
    assert ran.lines[0].startswith("target   ")
    assert any(line.startswith("carried  ") for line in ran.lines)
    assert "nothing was written" in ran.err
    assert "--install" in ran.err
    assert list(agents_at_home.rglob("*.jsonl")) == []


@pytest.mark.parametrize("to", DIALECTS)
def test_convert_writes_a_private_file_that_opens_as_the_target(
    run: Run, source: Path, tmp_path: Path, to: str
) -> None:
    out = tmp_path / "out" / f"{to}.jsonl"
    ran = run("convert", str(source), "--to", to, "--branch", "all", "--out", str(out), "--json")
    assert ran.code == 0, ran.err
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert ran.json["size"] == out.stat().st_size
    assert sessiontree.open(out).dialect.name == to
    assert list(out.parent.iterdir()) == [out]


def test_convert_never_overwrites(run: Run, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "taken.jsonl"
    out.write_text("mine")
    ran = run("convert", str(source), "--to", "pi", "--out", str(out))
    assert ran.code == 1
    assert "already exists; nothing was written" in ran.err
    assert out.read_text() == "mine"


@pytest.mark.parametrize("to", DIALECTS)
def test_install_writes_where_the_agent_looks_and_prints_how_to_resume(
    run: Run, source: Path, to: str, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    made = run("convert", str(source), "--to", to, "--install", "--cwd", str(work), "--json").json
    path = Path(made["path"])
    assert path.is_file()
    assert path.is_relative_to(tmp_path)
    assert made["cwd"] == str(work)
    assert made["resume"]
    assert abs(path.stat().st_mtime - os.stat(source).st_mtime) < 600


def test_strict_fails_if_data_would_be_dropped_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "thinking.jsonl"
    session = sessiontree.create(cwd="/", path=path)
    session.append("user", "hello")
    session.append(
        {"role": "assistant", "provider": "openai", "content": [{"type": "thinking", "thinking": "hm"}], "model": "x"}
    )
    session.close()
    out = tmp_path / "out.jsonl"
    ran = run("convert", str(path), "--to", "claude", "--out", str(out), "--strict")
    assert ran.code == 1
    assert "thinking" in ran.err
    assert not out.exists()


def test_an_unknown_target_lists_the_known_ones(run: Run, source: Path) -> None:
    ran = run("convert", str(source), "--to", "emacs")
    assert ran.code == 2
    assert "claude" in ran.err
    assert ran.out == ""


def test_forking_at_a_prompt_prints_its_text(run: Run, source: Path) -> None:
    session = sessiontree.open(source)
    prompt = next(
        id for id in session.path_ids() if session.fields(id).get("message", {}).get("content") == "Fix it, please."
    )
    made = run("fork", str(source), "--at", prompt, "--json").json
    assert made["prompt"] == "Fix it, please."
    assert prompt not in sessiontree.open(made["path"]).ids


def test_forking_at_the_first_prompt_gives_an_empty_session(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    session = sessiontree.create(cwd="/", path=path)
    first = session.append("user", "hello")
    session.append("assistant", "hi")
    session.close()
    made = run("fork", str(path), "--at", first.id, "--json").json
    assert (made["prompt"], made["entries"], made["forkedFrom"]["entry"]) == ("hello", 0, None)


@pytest.mark.parametrize("to", DIALECTS)
def test_a_fork_in_another_dialect_records_its_origin(run: Run, source: Path, to: str, tmp_path: Path) -> None:
    ran = run("fork", str(source), "--to", to, "--cwd", str(tmp_path), "--json")
    assert ran.code == 0, ran.err
    forked = sessiontree.open(ran.json["path"])
    origin = sessiontree.open(source)
    assert origin.id in json.dumps([forked.header.parent_session, str(forked.header.forked_from)]) or (
        forked.header.parent_session == str(source)
    )


def contents(*folders: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


def test_resume_with_print_writes_nothing_and_prints_a_command_that_works(
    run: Run, source: Path, tmp_path: Path
) -> None:
    before = contents(tmp_path)
    ran = run("resume", str(source), "--in", "claude", "--cwd", str(tmp_path), "--print")
    assert ran.code == 0, ran.err
    assert ran.out == f"sessiontree resume {source} --in claude --cwd {tmp_path}\n"
    assert "carried  " in ran.err
    planned = run("resume", str(source), "--in", "claude", "--cwd", str(tmp_path), "--print", "--json").json
    assert planned["installed"] is None
    assert planned["planned"]["report"]
    assert contents(tmp_path) == before


def test_resuming_again_reuses_the_copy_until_the_session_changes(
    run: Run, source: Path, tmp_path: Path, agents_at_home: Path
) -> None:
    arguments = ("resume", str(source), "--in", "claude", "--cwd", str(tmp_path))
    first = run(*arguments, "--install")
    assert first.out.startswith(f"cd {tmp_path} && claude --resume ")
    assert run(*arguments, "--install").out == first.out
    assert run(*arguments, "--print").out == first.out
    assert len(list(agents_at_home.rglob("*.jsonl"))) == 1
    with sessiontree.open(source) as session:
        session.append("user", "one more")
    assert run(*arguments, "--install").out != first.out
    assert len(list(agents_at_home.rglob("*.jsonl"))) == 2


def test_the_loss_report_is_shown_before_the_agent_starts(
    run: Run, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "pi").write_text("#!/bin/sh\necho the agent runs >&2\n")
    (tools / "pi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    err = run("resume", str(source), "--in", "pi", "--cwd", str(tmp_path)).err
    assert err.index("carried  ") < err.index("the agent runs")


def test_copies_are_listed_under_their_origin(run: Run, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with sessiontree.create(tmp_path, home=home) as origin:
        origin.append("user", "convert me")
    with sessiontree.create(tmp_path, home=home) as other:
        other.append("user", "another one")
    run("resume", origin.location, "--in", "claude", "--cwd", str(tmp_path), "--install")
    rows = run("list", "--project", str(tmp_path), "--json").json["sessions"]
    assert [(row["title"], row["relation"]) for row in rows if row["title"] == "convert me"] == [
        ("convert me", None),
        ("convert me", "copy"),
    ]
    at = next(number for number, row in enumerate(rows) if row["relation"] == "copy")
    assert (rows[at]["agent"], rows[at]["depth"], rows[at - 1]["path"]) == ("claude", 1, origin.location)
    assert "└ ⇄ convert me" in run("list", "--project", str(tmp_path)).out


def test_an_installed_conversion_is_listed_under_its_origin_and_reused_if_it_is_complete(
    run: Run, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with sessiontree.create(tmp_path, home=home) as origin:
        first = origin.append("user", "convert me").id
        origin.append("user", "one branch")
    ran = run("convert", origin.location, "--to", "claude", "--install", "--json")
    assert ran.code == 0, ran.err
    rows = run("list", "--project", str(tmp_path), "--json").json["sessions"]
    assert [(row["agent"], row["relation"]) for row in rows] == [("native", None), ("claude", "copy")]
    resumed = run("resume", origin.location, "--in", "claude", "--print", "--json").json
    assert resumed["reused"] == ran.json["path"]

    with sessiontree.open(origin.location) as session:
        session.branch(at=first).append("user", "another branch")
    run("convert", origin.location, "--to", "claude", "--install")
    assert run("resume", origin.location, "--in", "claude", "--print", "--json").json["reused"] is None
    run("resume", origin.location, "--in", "pi", "--recovered", "--install")
    rows = run("list", "--project", str(tmp_path), "--json").json["sessions"]
    assert sorted(row["agent"] for row in rows if row["relation"] == "copy") == ["claude", "claude", "pi"]
    assert run("resume", origin.location, "--in", "pi", "--print", "--json").json["reused"] is None


def test_damaged_records_of_copies_stop_no_command_and_are_replaced(run: Run, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with sessiontree.create(tmp_path, home=home) as origin:
        origin.append("user", "convert me")
    (home / "copies.json").write_text("{bad")
    assert "convert me" in run("list", "--all").out
    arguments = ("resume", origin.location, "--in", "claude", "--cwd", str(tmp_path), "--install")
    first = run(*arguments)
    assert first.code == 0, first.err
    assert run(*arguments).out == first.out
    assert (home / "copies.json.damaged").read_text() == "{bad"


def test_a_title_still_names_the_session_after_it_was_copied_for_another_agent(run: Run, tmp_path: Path) -> None:
    with sessiontree.create(tmp_path, home=tmp_path / "home") as origin:
        origin.append("user", "convert me")
    arguments = ("resume", "convert me", "--in", "claude", "--cwd", str(tmp_path), "--install")
    first = run(*arguments)
    assert first.code == 0, first.err
    again = run(*arguments)
    assert (again.code, again.out) == (0, first.out), again.err
    assert run("info", "convert", "--json").json["path"] == origin.location


def test_resume_without_a_session_names_the_newest(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no sessions" in run("resume").err
    with sessiontree.create(tmp_path, home=tmp_path / "home") as session:
        session.append("user", "go on with me")
    ran = run("resume")
    assert ran.code == 2
    assert "go on with me" in ran.err
    assert ran.err.rstrip().endswith(f"sessiontree resume {session.location}")


@pytest.mark.parametrize(
    ("target", "noted"), [("claude", "aside"), ("gemini", "dropped"), ("neovate", "aside"), ("native", "")]
)
def test_entries_that_are_dropped_or_kept_aside_are_not_reported_as_carried(
    target: str, noted: str, run: Run, tmp_path: Path
) -> None:
    session = sessiontree.create(cwd=str(tmp_path), home=str(tmp_path / "home"), appear="now")
    session.append({"type": "model_change", "provider": "anthropic", "modelId": "m"})
    session.append("user", "Hello")
    session.append("assistant", [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Hi."}])
    report = run("convert", session.location, "--to", target, "--json").json["report"]
    found = {note["kind"] for note in report["notes"] if "model_change" in note["what"]}
    assert found == ({noted} if noted else set())
    assert ("model_change" in report["carried"]) == (not noted)
    assert ("thinking" in report["carried"]) == (target != "claude")  # it has no signature
    assert report["carried"]["user"] == 1


def test_all_branches_in_a_format_without_branches_name_the_way_to_convert_another_one(run: Run, source: Path) -> None:
    ran = run("convert", str(source), "--to", "codex", "--branch", "all")
    assert (ran.code, ran.out) == (2, "")
    assert "sessiontree fork SESSION --at ENTRY --to codex" in ran.err


def test_resume_in_the_native_format_names_the_command_that_continues_here(run: Run, tmp_path: Path) -> None:
    source = World(tmp_path).claude(IDS[0], str(tmp_path), ["mend the parser"])
    ran = run("resume", str(source), "--in", "native")
    assert ran.code == 2
    assert f"sessiontree chat --session {IDS[0]}" in ran.err
    assert "choose one with --in" not in ran.err


def test_resume_reports_an_agent_that_is_not_installed(
    run: Run, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agents_at_home: Path
) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    ran = run("resume", str(source), "--in", "omp", "--cwd", str(tmp_path))
    assert ran.code == 1
    assert "omp is not installed" in ran.err
    assert list(agents_at_home.rglob("*.jsonl")) == []


def test_resume_starts_the_agent_in_the_folder_of_the_session(
    run: Run, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "pi").write_text('#!/bin/sh\necho "$PWD" "$@"\n')
    (tools / "pi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    ran = run("resume", str(source), "--in", "pi", "--cwd", str(tmp_path))
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"{tmp_path} --session ")


def test_a_renamed_file_is_resumed_by_its_own_name(tmp_path: Path) -> None:
    world = World(tmp_path)
    made = world.pi(IDS[0], "/work", ["mend the parser"])
    environment = {"HOME": str(world.home)}
    where = world.home / ".pi" / "agent" / "sessions"
    assert where in made.parents
    renamed = made.rename(made.with_name("parser work.jsonl"))
    session = sessiontree.open(renamed)
    planned = plan_resumption(session, environment=environment)
    assert (planned.plan, planned.copy) == (None, None)
    assert str(renamed) in planned.command, "Pi is given the path, not the name that the file would have had"
    elsewhere = renamed.rename(tmp_path / "parser work.jsonl")
    moved = plan_resumption(sessiontree.open(elsewhere), environment=environment)
    assert moved.plan is not None, "Pi does not look there, so that it gets a copy"
