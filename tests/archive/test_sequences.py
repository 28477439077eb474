"""Any sequence of operations keeps every line that was ever written."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import sessiontree
from sessiontree.archive.archive_home import Home, session_info
from sessiontree.archive.move import move, plan_move
from sessiontree.archive.prune_branch import plan_prune, prune
from sessiontree.archive.restore import restore
from sessiontree.archive.shrink import shrink
from sessiontree.archive.sync import FolderSync
from sessiontree.archive.truncate import truncate
from sessiontree.errors import SessionTreeError
from tests.archive.machine import (
    archived_lines,
    claude_message,
    current_lines,
    home_of,
    native_lines,
    write_claude,
    write_native,
)
from tests.archive.test_shrink import claude_with_progress, long_session
from tests.builders import examples, message_line

STEPS = ("archive", "keep", "restore", "shrink", "shrink dead", "tail", "prune", "mv", "sync", "write", "write there")


class Machine:
    """A machine with three sessions and a shared folder, and a record of every line written to either."""

    def __init__(self, tmp: Path) -> None:
        self.tmp, self.shared = tmp, tmp / "shared"
        self.home: Home = home_of(tmp)
        write_native(tmp, native_lines())
        write_native(
            tmp, [line.replace(b"0000000a", b"0000000c") for line in long_session(compacted=True)], name="2026_c"
        )
        write_claude(tmp, claude_with_progress())
        self.lines = current_lines(self.home)
        self.lines_there: set[bytes] = set()
        self.count = 0

    def files(self, top: Path) -> list[Path]:
        return sorted(path for path in top.rglob("*.jsonl") if "subagents" not in path.parts and not path.is_symlink())

    def here(self) -> list[Path]:
        return sorted(path for root in self.home.roots for path in self.files(Path(root)))

    def do(self, step: str, which: int) -> None:
        files = self.files(self.shared) if step == "write there" else self.here()
        items = self.home.archive.items()
        try:
            if step == "restore" and items:
                restore(self.home.archive, items[which % len(items)])
            elif step == "sync":
                list(FolderSync(self.home, str(self.shared)).run(both_ways=True))
            elif files and step != "restore":
                self.apply(step, files[which % len(files)], which)
        except SessionTreeError:
            pass  # an error loses nothing

    def apply(self, step: str, path: Path, which: int) -> None:
        archive, session = self.home.archive, sessiontree.open(path)
        match step:
            case "archive":
                archive.archive(session_info(session))
            case "keep":
                archive.keep(session_info(session))
            case "shrink" | "shrink dead":
                shrink(archive, session, dead_branches=step == "shrink dead")
            case "tail":
                truncate(archive, session, min_size=1000, tail_size=3000)
            case "prune":
                dead = [id for id in session.ids if id not in session.path_ids()]
                prune(archive, session, plan_prune(session, (dead or session.ids)[which % len(dead or session.ids)]))
            case "mv":
                plan = plan_move(session, f"/work/{which % 3}", self.home.allowed_paths, self.home.environment)
                move(archive, session, plan)
            case "write" | "write there":
                self.count += 1
                leaves = [leaf for leaf in session.leaves() if not leaf.startswith("p")]
                say = claude_message if session.dialect.name == "claude" else message_line
                line = say(f"w{self.count}", leaves[which % len(leaves)], f"written {self.count}")
                with path.open("ab") as file:
                    file.write(line)
                (self.lines if step == "write" else self.lines_there).add(line.rstrip(b"\n"))


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 50)), min_size=4, max_size=24))
@examples(60)
def test_every_line_ever_written_is_kept(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        for step, which in steps:
            machine.do(step, which)
        had = current_lines(machine.home) | archived_lines(machine.home)
        assert machine.lines <= had, "on this machine alone"
        there = {line for path in machine.files(machine.shared) for line in path.read_bytes().split(b"\n")}
        assert machine.lines_there <= had | there
        for path in machine.here():
            kinds = {problem.kind for problem in sessiontree.open(path).problems}
            assert not kinds & {"undecodable", "torn-tail", "fused-records", "glued-stub", "missing-parent"}, kinds


@given(st.lists(st.tuples(st.sampled_from(STEPS[:8]), st.integers(0, 50)), min_size=2, max_size=10))
@examples(40)
def test_undoing_everything_in_reverse_order_restores_every_file_byte_for_byte(
    steps: list[tuple[str, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        before = {path: path.read_bytes() for path in machine.here()}
        for step, which in steps:
            items = machine.home.archive.items()
            if step == "restore" and items and items[which % len(items)].kind == "kept":
                continue  # restoring a copy has no undo, and its file would be in the way
            machine.do(step, which)
        for item in reversed(machine.home.archive.items()):
            if item.kind != "kept":
                restore(machine.home.archive, item)
        assert {path: path.read_bytes() for path in machine.here()} == before
