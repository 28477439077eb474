"""Commands: output and its limits, ending them with all their processes, and secrets removed from their environment."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sessiontree
from sessiontree.agent.process import HEAD, TAIL, run_command
from sessiontree.agent.shell_commands import parse_user_command, run_user_command
from sessiontree.agent.tools.bash import BASH
from sessiontree.core.messages import BashExecution, ToolCall
from sessiontree.secrets.environment import Mask, MaskedStream, is_secret_variable, without_secrets
from tests.agent.builders import BARE, Workplace, is_alive, pid_in, wait_for

SECRET = "tok-9f8e7d6c5b4a"
WITH_SECRET = {**BARE, "ACME_API_TOKEN": SECRET, "DATABASE_URL": "postgres://me:hunter2hunter2@db/x", "EDITOR": "vi"}


def test_stdout_and_stderr_are_combined_in_order(place: Workplace) -> None:
    output = place.run(BASH, command="echo one; echo two >&2; echo three")
    assert output.text == "one\ntwo\nthree"
    assert not output.is_error
    assert output.details["exitCode"] == 0


def test_a_failing_command_is_an_error_with_its_exit_code(place: Workplace) -> None:
    output = place.run(BASH, command="echo out; exit 7")
    assert output.is_error
    assert output.text == "out\n\n[exit code 7]"
    assert "ended by signal 9" in place.run(BASH, command="kill -9 $$").text


def test_it_runs_in_the_project_without_input_and_without_a_terminal(place: Workplace) -> None:
    assert place.run(BASH, command="pwd").text == str(place.project.resolve())
    assert place.run(BASH, command="cat; tty").text.startswith("not a tty")


def test_no_startup_file_is_run_before_the_command(tmp_path: Path) -> None:
    (tmp_path / "rc").write_text("echo surprise")
    place = Workplace(tmp_path, environment={**BARE, "BASH_ENV": str(tmp_path / "rc"), "ENV": str(tmp_path / "rc")})
    assert place.run(BASH, command="echo x").text == "x"


def test_a_nul_or_lone_surrogate_is_refused(place: Workplace) -> None:
    assert "NUL" in place.run(BASH, command="echo a\0b").text
    assert "surrogate" in place.run(BASH, command="echo \ud800").text
    assert "timeout" in place.run(BASH, command="true", timeout=-1).text


def test_colors_and_nul_are_removed_from_the_output(place: Workplace) -> None:
    output = place.run(BASH, command=r"printf '\033[31mred\033[0m \033]0;title\007x\0y\n'")
    assert output.text == "red x\ufffdy"


# Limits


def test_long_output_is_truncated_and_stored_in_a_private_file(place: Workplace) -> None:
    output = place.run(BASH, command="seq 1 50000")
    assert output.text.startswith("1\n2\n")
    assert "\n49999\n50000\n" in output.text
    assert len(output.text) < HEAD + TAIL + 1_000
    spill = Path(output.details["fullOutputPath"])
    assert f"all of it is in {spill}" in output.text
    assert spill.read_text() == "".join(f"{number}\n" for number in range(1, 50001))
    assert spill.stat().st_mode & 0o777 == 0o600
    assert spill.parent.stat().st_mode & 0o777 == 0o700
    assert spill.parent == place.outputs


def test_an_output_just_within_the_limit_creates_no_file(place: Workplace) -> None:
    output = place.run(BASH, command=f"head -c {HEAD + TAIL} /dev/zero | tr '\\0' x")
    assert output.text == "x" * (HEAD + TAIL)
    assert not place.outputs.exists()


def test_an_endless_output_stays_within_bounds(place: Workplace) -> None:
    output = place.run(BASH, command="yes", timeout=0.5)
    assert output.is_error
    assert len(output.text) < HEAD + TAIL + 1_000
    assert "timed out after 0.5 s" in output.text


def test_a_spill_folder_that_cannot_be_created_does_not_end_the_command(place: Workplace) -> None:
    place.outputs.write_text("in the way")
    output = place.run(BASH, command="seq 1 50000")
    assert not output.is_error
    assert output.text.endswith("[the output has 288,894 bytes; the rest was not stored]")


def test_a_call_id_cannot_move_the_file_to_another_folder(place: Workplace) -> None:
    context = msgspec.structs.replace(place.context, call_id="../../evil/x")
    output = asyncio.run(BASH.run({"command": "seq 1 50000"}, context))
    assert Path(output.details["fullOutputPath"]).parent == place.outputs


def test_output_arrives_while_the_command_runs(place: Workplace) -> None:
    updates: list[str] = []

    def update(text: str) -> None:
        updates.append(text)
        (place.project / "go").touch()  # the second line is printed after the first has arrived

    context = msgspec.structs.replace(place.context, update=update)
    command = "echo one; until test -e go; do sleep 0.02; done; echo two"
    asyncio.run(BASH.run({"command": command, "timeout": 30}, context))
    assert updates == ["one\n", "two\n"]


# The end


STUBBORN = (
    "trap '' TERM; echo $$ > {0}/one; "
    "(trap '' TERM; echo $BASHPID > {0}/two; sleep 300 & echo $! > {0}/three; wait) & wait"
)


def test_a_timeout_ends_the_whole_group_even_if_it_ignores_sigterm(place: Workplace, tmp_path: Path) -> None:
    started = time.monotonic()
    output = place.run(BASH, command=STUBBORN.format(tmp_path), timeout=0.5)
    assert output.is_error
    assert "timed out after 0.5 s" in output.text
    assert time.monotonic() - started < 10
    for name in ("one", "two", "three"):
        pid = pid_in(tmp_path / name)
        assert wait_for(lambda pid=pid: not is_alive(pid)), name


def test_a_process_that_left_the_group_is_ended_too(place: Workplace, tmp_path: Path) -> None:
    command = f"setsid bash -c 'echo $$ > {tmp_path}/pid; exec sleep 300' > /dev/null 2>&1 & sleep 300"
    place.run(BASH, command=command, timeout=1)
    pid = pid_in(tmp_path / "pid")
    assert wait_for(lambda: not is_alive(pid))


def test_a_cancellation_ends_the_group_and_is_raised(place: Workplace, tmp_path: Path) -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(BASH.run({"command": STUBBORN.format(tmp_path)}, place.context))
        await asyncio.to_thread(pid_in, tmp_path / "three")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for name in ("one", "two", "three"):
            assert not is_alive(pid_in(tmp_path / name)), name

    asyncio.run(cancelled())


def test_processes_in_the_background_end_with_the_command(place: Workplace, tmp_path: Path) -> None:
    started = time.monotonic()
    output = place.run(BASH, command=f"sleep 300 & echo $! > {tmp_path}/pid; echo done")
    assert time.monotonic() - started < 10
    assert output.text == "done\n\n[it left background processes, which were ended]"
    assert wait_for(lambda: not is_alive(pid_in(tmp_path / "pid")))


def test_commands_run_in_parallel(place: Workplace) -> None:
    names = [f"n{number}" for number in range(12)]

    async def all_of_them() -> list[str]:
        # Each ends when all of them have begun.
        wait = f"until [ $(ls n* | wc -l) = {len(names)} ]; do sleep 0.02; done"
        commands = [{"command": f"touch {name}; {wait}; echo {name}", "timeout": 30} for name in names]
        return [output.text for output in await asyncio.gather(*(BASH.run(one, place.context) for one in commands))]

    assert asyncio.run(all_of_them()) == names


def test_a_deleted_folder_is_an_error_result(place: Workplace) -> None:
    place.project.rmdir()
    output = place.run(BASH, command="true")
    assert output.is_error
    assert "no such file or folder" in output.text


# Secrets


@pytest.mark.parametrize(
    "name", ["ANTHROPIC_API_KEY", "GITHUB_TOKEN", "PGPASSWORD", "aws_secret_access_key", "MY_PAT", "NPM_AUTH", "apikey"]
)
def test_names_of_secret_variables_are_recognized(name: str) -> None:
    assert is_secret_variable(name)


@pytest.mark.parametrize("name", ["PATH", "PWD", "OLDPWD", "KEYBOARD", "SSH_AUTH_SOCK", "EDITOR", "XAUTHORITY", "LANG"])
def test_names_of_other_variables_are_not_secret(name: str) -> None:
    assert not is_secret_variable(name)


def test_commands_do_not_get_secrets_unless_the_user_names_them(tmp_path: Path) -> None:
    place = Workplace(tmp_path, environment=WITH_SECRET)
    shown = place.run(BASH, command="env; env | base64").text
    assert "EDITOR=vi" in shown
    assert "ACME_API_TOKEN" not in shown
    assert "hunter2" not in shown
    assert without_secrets(WITH_SECRET, ["ACME_API_TOKEN"])["ACME_API_TOKEN"] == SECRET


def test_secrets_are_masked_in_every_output(tmp_path: Path) -> None:
    place = Workplace(tmp_path, environment=WITH_SECRET)
    (place.project / "notes").write_text(f"token: {SECRET}\nurl: postgres://me:hunter2hunter2@db/x\n")
    for name, arguments in (
        ("bash", {"command": "cat notes"}),
        ("read", {"path": "notes"}),
        ("grep", {"pattern": "to"}),
    ):
        text = place.call(name, **arguments).text
        assert SECRET not in text
        assert "[secret ACME_API_TOKEN]" in text
    assert "hunter2" not in place.call("read", path="notes").text


def test_a_secret_is_masked_in_the_file_across_pieces_and_in_other_encodings(tmp_path: Path) -> None:
    environment = {**WITH_SECRET, "ACME_API_TOKEN": 'a"b/c+d&e f'}
    spelled = [base64.b64encode(b'a"b/c+d&e f').decode(), "a%22b%2Fc%2Bd%26e%20f", 'a\\"b/c+d&e f', 'a"b/c+d&e f']
    masked = Mask(environment).text("\n".join(spelled))
    assert masked.count("[secret ACME_API_TOKEN]") == 4
    place = Workplace(tmp_path, environment=WITH_SECRET)
    (place.project / "s").write_text(SECRET)
    context = msgspec.structs.replace(place.context, allowed_secrets=("ACME_API_TOKEN",))
    halves = f"printf {SECRET[:5]}; sleep 0.2; printf '{SECRET[5:]}\\n'"
    command = f"head -c 40000 /dev/zero | tr '\\0' x; {halves}; echo $ACME_API_TOKEN"
    output = asyncio.run(BASH.run({"command": command}, context))
    spill = Path(output.details["fullOutputPath"]).read_text()
    assert SECRET not in spill + output.text
    assert spill.count("[secret ACME_API_TOKEN]") == 2


@given(st.lists(st.sampled_from(["a", "b", "abcabc", "abcabcdef", "x" * 30, "\n"]), max_size=30), st.integers(1, 12))
def test_masking_in_pieces_gives_the_same_as_at_once(words: list[str], size: int) -> None:
    mask = Mask({"ONE_TOKEN": "abcabc", "TWO_TOKEN": "abcabcdef"})
    data = "".join(words).encode()
    stream = MaskedStream(mask)
    pieces = [stream.feed(data[at : at + size]) for at in range(0, len(data), size)]
    assert b"".join(pieces) + stream.end() == mask.data(data)


def test_short_values_are_not_masked_because_they_occur_everywhere() -> None:
    assert Mask({"USE_TOKEN": "1", "SECRET_MODE": "true"}).text("1 true") == "1 true"


# Commands of the user


def test_user_commands_are_recognized() -> None:
    assert parse_user_command("hello !x") is None
    assert parse_user_command("!") is None
    one, two = parse_user_command("! ls -l "), parse_user_command("!!env")
    assert one is not None
    assert (one.command, one.exclude_from_context) == ("ls -l", False)
    assert two is not None
    assert (two.command, two.exclude_from_context) == ("env", True)


def test_a_user_command_has_the_full_environment_and_is_stored_masked(tmp_path: Path) -> None:
    place = Workplace(tmp_path, environment=WITH_SECRET)
    place.session.append("user", "hi")
    for line in ("!echo ${#ACME_API_TOKEN} $ACME_API_TOKEN; exit 3", "!!echo aside"):
        command = parse_user_command(line)
        assert command is not None
        asyncio.run(run_user_command(command, place.session, place.context))
    reopened = sessiontree.open(place.session.location, home=place.home)
    first, second = (m for m in reopened.context().messages if isinstance(m, BashExecution))
    assert first.output == f"{len(SECRET)} [secret ACME_API_TOKEN]\n"
    assert first.exit_code == 3
    assert second.exclude_from_context
    assert SECRET not in Path(place.session.location).read_text()


def test_a_cancelled_user_command_is_recorded_with_its_output(place: Workplace, tmp_path: Path) -> None:
    async def cancelled() -> None:
        command = parse_user_command(f"!echo before; echo $$ > {tmp_path}/pid; sleep 300")
        assert command is not None
        task = asyncio.create_task(run_user_command(command, place.session, place.context))
        await asyncio.to_thread(pid_in, tmp_path / "pid")
        task.cancel()
        ran, entry = await task
        assert ran.cancelled
        message = entry.message  # type: ignore[union-attr]
        assert (message.output, message.cancelled, message.exit_code) == ("before\n", True, None)
        assert not is_alive(pid_in(tmp_path / "pid"))

    place.session.append("user", "hi")
    asyncio.run(cancelled())


def test_a_result_is_persisted_without_secrets(tmp_path: Path) -> None:
    from sessiontree.agent.tool_output import result_message

    place = Workplace(tmp_path, environment=WITH_SECRET)
    place.session.append("user", "hi")
    call = ToolCall("c1", "bash", {"command": f"echo {SECRET}"})
    output = asyncio.run(place.calls.call(call))
    place.session.append(result_message(call, output))
    assert SECRET not in Path(place.session.location).read_text()
    assert place.session.context().messages[-1].tool_call_id == "c1"  # type: ignore[union-attr]


def test_secrets_of_this_process_are_not_passed_to_commands(place: Workplace) -> None:
    os.environ["SESSIONTREE_TEST_TOKEN"] = "nobody-may-see-this"
    try:
        ran = asyncio.run(
            run_command("env", cwd=str(place.project), environment=without_secrets(os.environ), mask=Mask(os.environ))
        )
    finally:
        del os.environ["SESSIONTREE_TEST_TOKEN"]
    assert "nobody-may-see-this" not in ran.output
