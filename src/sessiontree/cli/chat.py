"""Chat with a model that can read files, edit them and run commands in this folder. The session is saved.

Works with every agent's sessions: --session continues one in place, --fork in a copy. With the `tui` extra, the chat is
full-screen on terminals that support it; --plain works line by line, as do dumb terminals. --print prints one answer
for scripts and denies everything that needs approval; standard input is the prompt, or is appended to it. Without a
terminal, each line of standard input is a prompt, a /command or an answer.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import add_client_view_options, find_session
from sessiontree.cli.ui import missing_reason, run_full_screen
from sessiontree.dialects.contract import ReadOptions
from sessiontree.errors import UsageError

if TYPE_CHECKING:
    from sessiontree.app.start import StartOptions
    from sessiontree.chat.print_mode import Format

EXAMPLES = """examples:
  sessiontree chat --model demo
  git diff | sessiontree chat -p "what does this change?" --output json

The default model is the setting `model` (`sessiontree config set model anthropic:claude-opus-5`) or the environment
variable SESSIONTREE_MODEL. API keys are read from ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY. In a chat, /help
lists the commands."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", metavar="TEXT", nargs="?", help="the first prompt")
    parser.add_argument("-p", "--print", action="store_true", dest="prints", help="print one answer and exit")
    parser.add_argument(
        "--output",
        choices=("text", "json", "stream-json"),
        help="with --print: text (default), one JSON object, or one per event",
    )
    parser.add_argument("--plain", action="store_true", help="chat line by line instead of full-screen")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "-c",
        "--continue",
        action="store_true",
        dest="continues",
        help="continue this folder's last session, or start one",
    )
    which.add_argument(
        "-r", "--resume", metavar="SESSION", nargs="?", const="", help="resume a session; without SESSION, choose one"
    )
    which.add_argument("--session", metavar="SESSION", help="continue a session: path, id or title")
    which.add_argument("--fork", metavar="SESSION", help="continue in a copy of a session")
    which.add_argument("--no-session", action="store_true", help="do not save the session")
    add_run_options(parser)
    parser.add_argument("--name", metavar="TEXT", help="name the session")
    add_client_view_options(parser)
    parser.add_argument(
        "--add-dir", metavar="DIR", action="append", default=[], help="another folder that tools may use; repeatable"
    )


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Options of commands that run an agent: its model, and what it may do without asking."""
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="provider:name, or demo, which only reads and saves no session (default: the setting `model`)",
    )
    parser.add_argument(
        "--thinking",
        metavar="LEVEL",
        choices=("off", "minimal", "low", "medium", "high", "xhigh"),
        help="thinking level: off, minimal, low, medium, high, xhigh",
    )
    parser.add_argument(
        "--approval",
        metavar="MODE",
        choices=("plan", "default", "autoEdit", "yolo"),
        help="approval mode: plan (only read until you approve a plan), default (ask), autoEdit (edit files here "
        "without asking), yolo (never ask)",
    )


def run(options: Options) -> int:
    import asyncio

    prints = options.prints or options.json or options.output is not None
    if prints and options.resume == "":
        raise UsageError("chat: --print cannot ask; name the session after -r")
    wanted = start_options(options)
    if prints:
        return asyncio.run(_print(options, wanted))
    if not options.plain and missing_reason() is None:
        return run_full_screen(options, wanted)
    from sessiontree.chat.conversation import run_chat

    return asyncio.run(run_chat(wanted, options.prompt, choose_session=options.resume == ""))


async def _print(options: Options, wanted: StartOptions) -> int:
    from sessiontree.chat.print_mode import print_answer

    prompt, image = _prompt(options.prompt)
    format: Format = options.output or ("json" if options.json else "text")
    end = await print_answer(wanted, prompt, format, output.print_json, stderr.print_error, image=image)
    match end.reason:
        case "done":
            return 0
        case "interrupted":
            return stderr.INTERRUPTED
        case _:
            return stderr.FAILED


def _prompt(given: str | None) -> tuple[str, bytes | None]:
    """The prompt with piped text appended, and piped data if it is an image."""
    data = b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()
    piped = ""
    if data:
        from sessiontree.agent.text_files import is_binary
        from sessiontree.providers.turns import image_type

        if image_type(data) is not None:
            return given or "", data
        if is_binary(data):
            raise UsageError("chat: standard input is neither text nor an image (PNG, JPEG, GIF, WebP)")
        piped = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    prompt = "\n\n".join(part for part in (given, piped.rstrip("\n")) if part and part.strip())
    if not prompt:
        raise UsageError("chat: --print needs TEXT or standard input")
    return prompt, None


def start_options(options: Options) -> StartOptions:
    """The options of a chat from parsed arguments."""
    from sessiontree.app.start import StartOptions, is_unsaved_demo
    from sessiontree.settings import load_settings
    from sessiontree.stores.repositories import home_folder

    if (options.snips or options.as_of != "now") and not _is_resumed(options):
        raise UsageError("chat: --snips and --as-of need a session to resume (-r, -c, --session or --fork)")
    cwd = _working_folder()
    home = home_folder(options.home)
    loaded = load_settings(cwd, home)
    for notice in loaded.warnings:
        stderr.print_line(f"sessiontree: {notice}")
    session = _session(options, cwd)
    is_new = session is None and options.resume is None
    return StartOptions(
        cwd=cwd,
        home=home,
        settings=loaded.settings,
        model=options.model,
        session=session,
        is_fork=options.fork is not None,
        in_memory=options.no_session or (is_new and is_unsaved_demo(options.model, loaded.settings)),
        repository=options.home,
        thinking=options.thinking,
        approval=options.approval,
        name=options.name,
        added=tuple(map(_check_folder, options.add_dir)),
        read_options=ReadOptions(as_of=options.as_of, snips=options.snips),
    )


def _is_resumed(options: Options) -> bool:
    return options.continues or options.resume is not None or bool(options.session or options.fork)


def _session(options: Options, cwd: str) -> str | None:
    """The path of the session to continue; None for a new one."""
    if options.continues:
        from sessiontree.cli.continue_ import find_to_continue
        from sessiontree.cli.library_options import open_library

        with open_library(options) as library:
            found = find_to_continue(library, cwd)
        if found is None:
            stderr.print_line("no session in this folder to continue; starting a new one")
        return None if found is None else found.ref
    named = options.resume or options.session or options.fork
    return find_session(named, options)[0] if named else None


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise UsageError("the working folder was deleted; change to another folder") from None


def _check_folder(folder: str) -> str:
    if not os.path.isdir(folder):
        raise UsageError(f"--add-dir {folder}: folder does not exist")
    return os.path.abspath(folder)
