"""The command line: one module per command, `stdout` for data, `stderr` for talk.

Front ends own no behaviour: a command reads its arguments, calls the library, and prints what `views` made of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. (The entry point of `sessiontree` and `stree`.)"""
    from sessiontree.cli import talk
    from sessiontree.cli.parser import parse
    from sessiontree.errors import SessionTreeError

    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
        code = options.run(options)
        sys.stdout.flush()
    except SessionTreeError as error:
        talk.say_error(str(error))
        return talk.exit_code(error)
    except BrokenPipeError:
        # The reader went away (`| head`): not an error, but Python must not try to flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return talk.INTERRUPTED
    return int(code or 0)
