"""Talk to a model that can read, change and run things in this folder, in a session that is kept.

Works on the sessions of every agent: --session goes on in place, --fork in a copy. With --print one answer is printed
for a script, and what would have to be asked is denied; standard input is then the prompt, or is put behind it. Without
a terminal, each line of standard input is a prompt, a /command or an answer to a question.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.errors import UsageError

if TYPE_CHECKING:
    from sessiontree.app.start import Wanted
    from sessiontree.chat.print_mode import Format

EXAMPLES = """examples:
  sessiontree chat --model demo
  git diff | sessiontree chat -p "what does this change?" --output json

Without --model, the setting `model` counts (`sessiontree config set model anthropic:claude-opus-5`), or the environment
variable SESSIONTREE_MODEL; keys are ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY. /help lists what can be
typed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", metavar="TEXT", nargs="?", help="what to say first")
    parser.add_argument("-p", "--print", action="store_true", dest="prints", help="print one answer, and end")
    parser.add_argument(
        "--output",
        choices=("text", "json", "stream-json"),
        help="with --print: the text (default), one JSON object, or one for each event",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-c", "--continue", action="store_true", dest="goes_on", help="go on with the last session here")
    which.add_argument(
        "-r", "--resume", metavar="SESSION", nargs="?", const="", help="go on with a session; without one: choose"
    )
    which.add_argument("--session", metavar="SESSION", help="go on with a session, by path, id or title")
    which.add_argument("--fork", metavar="SESSION", help="go on in a copy of a session")
    which.add_argument("--no-session", action="store_true", help="keep nothing")
    parser.add_argument("--model", metavar="NAME", help="provider:name, or demo (default: the setting `model`)")
    parser.add_argument(
        "--thinking",
        metavar="LEVEL",
        choices=("off", "minimal", "low", "medium", "high", "xhigh"),
        help="how much to think: off, minimal, low, medium, high, xhigh",
    )
    parser.add_argument(
        "--approval",
        metavar="MODE",
        choices=("default", "autoEdit", "yolo"),
        help="what is asked before it is done: default, autoEdit (files here pass), yolo (all passes)",
    )
    parser.add_argument("--name", metavar="TEXT", help="name the session")
    parser.add_argument("--add-dir", metavar="DIR", action="append", default=[], help="tools may work there, too")


def run(options: Options) -> int:
    import asyncio

    prints = options.prints or options.json or options.output is not None
    if prints and options.resume == "":
        raise UsageError("chat: -r without a SESSION chooses from a list, which --print cannot; name the session")
    wanted = _wanted(options)
    if prints:
        return asyncio.run(_print(options, wanted))
    from sessiontree.chat.conversation import talk as hold_talk

    return asyncio.run(hold_talk(wanted, options.prompt, choose_session=options.resume == ""))


async def _print(options: Options, wanted: Wanted) -> int:
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
    """What was said, with what was piped in behind it; and what was piped in, if that is an image."""
    from sessiontree.agent.text_files import image_type, is_binary

    data = b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()
    if image_type(data) is not None:
        return given or "", data
    if is_binary(data):
        raise UsageError("chat: what is piped in is neither text nor an image (PNG, JPEG, GIF, WebP)")
    piped = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    said = "\n\n".join(part for part in (given, piped.rstrip("\n")) if part and part.strip())
    if not said:
        raise UsageError("chat: --print needs a TEXT, or something on standard input")
    return said, None


def _wanted(options: Options) -> Wanted:
    from sessiontree import paths
    from sessiontree.app.start import Wanted
    from sessiontree.settings import load_settings

    cwd = _working_folder()
    home = paths.home() if options.home is None else os.path.abspath(options.home)
    loaded = load_settings(cwd, home)
    for notice in loaded.warnings:
        stderr.print_line(f"sessiontree: {notice}")
    return Wanted(
        cwd=cwd,
        home=home,
        settings=loaded.settings,
        model=options.model,
        session=_session(options, cwd),
        is_fork=options.fork is not None,
        in_memory=options.no_session,
        thinking=options.thinking,
        approval=options.approval,
        name=options.name,
        added=tuple(map(_added, options.add_dir)),
    )


def _session(options: Options, cwd: str) -> str | None:
    """The path of the session to go on with; None for a new one."""
    from sessiontree.cli.sessions import find_session

    if options.goes_on:
        from sessiontree.cli.continue_ import find_to_continue
        from sessiontree.cli.library_options import open_library

        with open_library(options) as library:
            return find_to_continue(library, cwd).path
    named = options.resume or options.session or options.fork
    return find_session(named, options)[0] if named else None


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise UsageError("the working folder is gone; go to the folder of a project") from None


def _added(folder: str) -> str:
    if not os.path.isdir(folder):
        raise UsageError(f"--add-dir {folder}: there is no such folder")
    return os.path.abspath(folder)
