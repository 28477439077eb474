"""Large transcripts with a boundary: the context built from the end of the file equals that of the complete file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sessiontree
from sessiontree.session import reader
from tests.builders import examples

CORPUS = Path(__file__).parents[1] / "corpus" / "claude"
SESSION = "5f3c0000-0000-4000-8000-000000000001"


@pytest.fixture(autouse=True)
def every_file_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_LARGE_FILE", 0)


def line(kind: str, uuid: str, parent: str | None, second: int, **fields: Any) -> dict[str, Any]:
    time = f"2026-02-16T{10 + second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}.000Z"
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "type": kind,
        **fields,
        "uuid": uuid,
        "timestamp": time,
        "sessionId": SESSION,
    }


def user(uuid: str, parent: str | None, second: int, text: str, **more: Any) -> dict[str, Any]:
    return line("user", uuid, parent, second, message={"role": "user", "content": text}, **more)


def answer(uuid: str, parent: str | None, second: int, text: str) -> dict[str, Any]:
    message = {
        "id": f"msg_{uuid}",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": text}],
        "usage": {},
    }
    return line("assistant", uuid, parent, second, message=message)


def boundary(uuid: str, before: str, second: int, kept: list[str], anchor: str) -> dict[str, Any]:
    about: dict[str, Any] = {"trigger": "manual", "preTokens": 9}
    if kept:
        about["preservedMessages"] = {"anchorUuid": anchor, "uuids": kept, "allUuids": kept}
    return line(
        "system", uuid, None, second, subtype="compact_boundary", logicalParentUuid=before, compactMetadata=about
    )


def transcript(turns: int = 40, kept: int = 2) -> list[dict[str, Any]]:
    """Some turns, a boundary that keeps the last lines before it, its summary, and two more turns."""
    lines: list[dict[str, Any]] = []
    last: str | None = None
    for turn in range(turns):
        lines.append(user(f"u{turn}", last, 60 * turn, f"question {turn}"))
        lines.append(answer(f"a{turn}", f"u{turn}", 60 * turn + 1, f"answer {turn} " + "x" * 200))
        last = f"a{turn}"
    ids = [entry["uuid"] for entry in lines[len(lines) - kept :]] if kept else []
    lines.append(boundary("b", str(last), 60 * turns, ids, "s"))
    lines.append(user("s", "b", 60 * turns + 1, "summary", isCompactSummary=True))
    lines.append(user("p", "s", 60 * turns + 60, "after"))
    lines.append(answer("q", "p", 60 * turns + 61, "done"))
    return lines


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in lines))
    return path


def both(path: Path) -> tuple[Any, Any, bool]:
    """Return the context, the one built from the complete file, and whether the first was built from parts."""
    quick = sessiontree.open(path)
    context = quick.context()
    by_parts = not quick._is_read
    whole = sessiontree.open(path)
    assert whole.problems is not None  # reads it
    return (
        (list(context.messages), context.path, context.state, quick.leaf, quick.id),
        (
            list(whole.context().messages),
            whole.context().path,
            whole.context().state,
            whole.leaf,
            whole.id,
        ),
        by_parts,
    )


@pytest.mark.parametrize("kept", [0, 1, 4])
def test_the_end_of_a_file_suffices_for_its_context(tmp_path: Path, kept: int) -> None:
    quick, whole, by_parts = both(written(tmp_path / f"{SESSION}.jsonl", transcript(kept=kept)))
    assert by_parts
    assert quick == whole


def test_asking_for_anything_else_reads_the_whole_file(tmp_path: Path) -> None:
    session = sessiontree.open(written(tmp_path / f"{SESSION}.jsonl", transcript()))
    assert session.context().messages[0]
    assert len(session) == 84
    assert session.context("a3").messages[-1]


def test_a_mode_before_the_boundary_counts(tmp_path: Path) -> None:
    lines = transcript()
    lines.insert(7, {"type": "permission-mode", "permissionMode": "plan", "sessionId": SESSION})
    quick, whole, by_parts = both(written(tmp_path / f"{SESSION}.jsonl", lines))
    assert by_parts
    assert quick == whole
    assert quick[2].mode == "plan"


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines.insert(9, {"type": "last-prompt", "leafUuid": "a2", "sessionId": SESSION}),
        lambda lines: lines.append({"type": "last-prompt", "leafUuid": "a2", "explicit": True, "sessionId": SESSION}),
        lambda lines: lines.append(user("r", "a5", 60 * 50, "back to an old place")),
        lambda lines: lines.append(user("r", "gone", 60 * 41 + 3, "a parent that is lost")),
        lambda lines: lines.pop(-1),
        lambda lines: lines[80]["compactMetadata"].update(
            preservedSegment={"headUuid": "a38", "tailUuid": "a39", "anchorUuid": "s"}
        ),
        lambda lines: lines[80]["compactMetadata"].pop("preservedMessages"),
    ],
    ids=["old pin", "pin to an old line", "an old branch", "lost parent", "no answer", "segment", "nothing kept"],
)
def test_what_depends_on_the_rest_of_the_file_is_the_same_too(tmp_path: Path, change: Any) -> None:
    lines = transcript()
    change(lines)
    quick, whole, _ = both(written(tmp_path / f"{SESSION}.jsonl", lines))
    assert quick == whole


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_transcript_of_the_corpus_has_the_same_context_either_way(path: Path) -> None:
    quick, whole, _ = both(path)
    assert quick == whole


@examples(60)
@given(chance=st.randoms(use_true_random=False))
def test_a_damaged_file_has_the_same_context_either_way(tmp_path_factory: pytest.TempPathFactory, chance: Any) -> None:
    data = bytearray(b"".join(json.dumps(entry).encode() + b"\n" for entry in transcript(12)))
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(data))
        match chance.randrange(3):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                del data[at : at + chance.randrange(1, 400)]
            case _:
                # A copy of earlier bytes. A line after the boundary whose copy is before it hides the first one; to
                # notice that, the complete file has to be read.
                data[at:at] = data[chance.randrange(at + 1) : at][: chance.randrange(1, 400)]
    path = tmp_path_factory.mktemp("damaged") / f"{SESSION}.jsonl"
    path.write_bytes(b'{"type":"mode","mode":"normal"}\n' + data)
    quick, whole, _ = both(path)
    assert quick == whole
