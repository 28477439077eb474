"""The command line: one module per command, `stdout` for data, `stderr` for talk.

Front ends own no behaviour: a command reads its arguments, calls the library, and prints what `views` made of it.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

_MANY = 100_000


def enter() -> NoReturn:
    """The entry point of `sessiontree` and `stree`: one command is the whole process.

    Objects that lead back to themselves are looked for less often: ours hardly do, and looking is a tenth of the time
    of a short command. At the end they are not taken apart one by one, another tenth: the system takes them all.
    """
    gc.set_threshold(_MANY)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - None if whoever started us has closed it
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 - likewise
    code = main()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # it was said already, and Python would say it again
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        sys.exit(code)
    atexit._run_exitfuncs()
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    _import_msgspec()
    from sessiontree.cli import stderr
    from sessiontree.cli.parser import parse
    from sessiontree.errors import SessionTreeError

    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
        code = options.run(options)
        sys.stdout.flush()
    except SessionTreeError as error:
        stderr.print_error(str(error))
        return stderr.exit_code(error)
    except BrokenPipeError:
        # The reader went away (`| head`): not an error, but Python must not try to flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return stderr.INTERRUPTED
    except OSError as error:  # what is printed cannot be written (a full disk), or the system refuses something else
        stderr.print_error(str(error))
        return stderr.FAILED
    return int(code or 0)


def _import_msgspec() -> None:
    """Import msgspec without `typing_extensions`, where it is installed.

    msgspec takes from there what `typing` has since Python 3.11, and importing it takes longer than many a command.
    Only the command line does this: it is the whole process, and nobody else's use of msgspec is touched.
    """
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # as the import system has it: not to be found
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]
