"""Images in a chat are stored inline, however they were added, so that Pi's loader finds them."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import sessiontree
from sessiontree.core.messages import Image, blocks_of
from sessiontree.session.session import Session
from tests.chat.serving import checked, newest
from tests.chat.terminals import SECONDS, Place, Terminal, call, scripted, turn

PIPED, READ = (b"\x89PNG\r\n\x1a\n" + bytes([letter]) * 3000 for letter in b"pr")


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def images_of(session: Session) -> list[str]:
    blocks = [block for message in session.context().messages for block in blocks_of(getattr(message, "content", ""))]
    return [block.data for block in blocks if isinstance(block, Image)]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_piped_and_read_images_are_stored_inline_and_sent_again_on_resume(place: Place) -> None:
    (place.project / "b.png").write_bytes(READ)
    script = scripted(place, turn("One.", call("read", path="b.png")), turn("Two."))
    command = [sys.executable, "-m", "sessiontree", "chat", "-p", "look", "--model", script]
    subprocess.run(command, input=PIPED, cwd=place.project, env=place.environment, check=True, timeout=SECONDS)
    assert place.run("-c", "-p", "again?", "--model", scripted(place, turn("Yes."), name="more")).code == 0
    assert [one.text for one in checked(place)][::5] == ["look\n\n[Image #1]", "Yes."]
    messages = [line["message"] for line in lines_of(newest(place)) if line["type"] == "message"]
    assert messages[0]["content"][1]["data"] == encoded(PIPED)
    assert [block["data"] for block in messages[2]["content"] if block["type"] == "image"] == [encoded(READ)]
    assert images_of(place.session()) == [encoded(PIPED), encoded(READ)]


def test_piped_data_that_is_neither_text_nor_an_image_is_refused(place: Place) -> None:
    command = [sys.executable, "-m", "sessiontree", "chat", "-p", "look", "--model", scripted(place, turn("Seen."))]
    for data, code in ((b"\x7fELF\0\0\0", 2), ("caf\xe9\n".encode("latin-1"), 0)):
        done = subprocess.run(
            command,
            input=data,
            cwd=place.project,
            env=place.environment,
            timeout=SECONDS,
            capture_output=True,
            check=False,
        )
        assert (done.returncode, b"neither text nor an image" in done.stderr) == (code, code == 2)
    assert [one.text for one in checked(place)] == ["look\n\ncaf\ufffd", "Seen."]


def test_a_pasted_image_is_stored_inline_and_in_a_blob_of_the_settings(place: Place) -> None:
    (place.project / "shot.png").write_bytes(PIPED)
    with Terminal(place, ["--model", scripted(place, turn("Seen."))]) as terminal:
        terminal.wait_for_prompt()
        terminal.type(f"look at \x1b[200~{place.project / 'shot.png'}\x1b[201~")
        terminal.wait_for("[Image #1]")
        terminal.type("\r")
        terminal.wait_for("Seen.")
        terminal.enter("/mode autoEdit")
        terminal.wait_for("autoEdit")
        terminal.enter("/quit")
        assert terminal.end() == 0
    session = place.session()
    assert images_of(session) == [encoded(PIPED)]
    assert Path(session.location).read_bytes().count(encoded(PIPED).encode()) == 1
    assert session.config.pasted_image_map == {"#1": f"data:image/png;base64,{encoded(PIPED)}"}
    assert session.problems == []


def test_a_session_with_blobs_is_continued_with_inline_images(place: Place) -> None:
    with sessiontree.create(place.project, home=place.home) as session:
        session.append("user", [{"type": "image", "data": encoded(PIPED), "mimeType": "image/png"}])
        session.append(role="assistant", content=[{"type": "text", "text": "Seen."}])
    (place.project / "b.png").write_bytes(READ)
    script = scripted(place, turn("One.", call("read", path="b.png")), turn("Two."))
    assert place.run("--session", session.id, "-p", "and this?", "--model", script).code == 0
    written = Path(session.location).read_bytes()
    assert (encoded(PIPED).encode() in written, encoded(READ).encode() in written) == (False, True)
    assert images_of(place.session()) == [encoded(PIPED), encoded(READ)]


def test_a_session_that_requires_blobs_gets_them_from_a_chat_too(place: Place) -> None:
    with sessiontree.create(place.project, home=place.home, large_content="blobs") as session:
        session.append("user", "hello")
        session.append(role="assistant", content=[{"type": "text", "text": "Hello."}])
    (place.project / "b.png").write_bytes(READ)
    script = scripted(place, turn("One.", call("read", path="b.png")), turn("Two."))
    assert place.run("--session", session.id, "-p", "and this?", "--model", script).code == 0
    assert encoded(READ).encode() not in Path(session.location).read_bytes()
    assert images_of(place.session()) == [encoded(READ)]
