"""Output on stderr, and the exit codes: 0 ok, 1 failed, 2 usage, 3 damaged input, 4 incomplete, 130 interrupted."""

from __future__ import annotations

import sys

from sessiontree.core.entries import Problem
from sessiontree.errors import ConversionError, DamagedError, NotFoundError, ReadOnlyError, SessionTreeError, UsageError
from sessiontree.views.text import clean

FAILED, USAGE, DAMAGED, INCOMPLETE, INTERRUPTED = 1, 2, 3, 4, 130

EXIT_CODES = """exit codes:
  0  done
  1  failed: for example, no such session or entry, or a write error
  2  usage error
  3  damaged input: not readable as a session
  4  incomplete: the output does not cover everything; a message names what is missing
  130  interrupted"""


def exit_code(error: SessionTreeError) -> int:
    match error:
        case DamagedError():
            return DAMAGED
        case NotFoundError() | ReadOnlyError() | ConversionError():
            return FAILED
        case UsageError():
            return USAGE
        case _:
            return FAILED


def print_line(text: str) -> None:
    print(clean(text), file=sys.stderr)


def print_error(text: str) -> None:
    print_line(f"sessiontree: {text}")


def print_problems(location: str, problems: list[Problem]) -> None:
    """One line about the problems of a file, with the position of the first."""
    if not problems:
        return
    first = problems[0]
    more = f" (and {len(problems) - 1} more; --json lists all)" if len(problems) > 1 else ""
    print_line(f"sessiontree: {location}:{first.line} byte {first.start}: {first.kind}: {first.action}{more}")
