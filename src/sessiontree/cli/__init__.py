"""The command line: one module per command, data on stdout, messages on stderr.

Front ends implement no behavior: a command parses its arguments, calls the library and prints what `views`
rendered.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

_GC_THRESHOLD = 100_000


def enter() -> NoReturn:
    """Entry point of `sessiontree` and `stree`."""
    # Our objects rarely form reference cycles; collecting them takes a tenth of a short command's time.
    gc.set_threshold(_GC_THRESHOLD)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - None if the parent closed it
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 - likewise
    code = main()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # reported already; without this Python reports it again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        sys.exit(code)
    # Skip the interpreter's teardown, another tenth of the time.
    atexit._run_exitfuncs()
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _import_msgspec()
    from sessiontree.cli import stderr
    from sessiontree.cli.parser import parse
    from sessiontree.errors import SessionTreeError

    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
        chosen = os.environ.get("SESSIONTREE_HOME", "")
        if ":" in chosen and getattr(options, "home", "") is None:
            from sessiontree.paths import home_address, is_address

            options.home = home_address() if is_address(chosen) else None
        code = options.run(options)
        sys.stdout.flush()
    except SessionTreeError as error:
        stderr.print_error(str(error))
        return stderr.exit_code(error)
    except BrokenPipeError:
        # The reader closed the pipe (`| head`): not an error, but Python must not flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return stderr.INTERRUPTED
    except OSError as error:  # for example, stdout is a file on a full disk
        stderr.print_error(str(error))
        return stderr.FAILED
    return int(code or 0)


def _import_msgspec() -> None:
    """Import msgspec without `typing_extensions`.

    msgspec uses it, if installed, for what `typing` has since Python 3.11, and importing it takes longer than many
    commands. Only the command line does this, as it is the whole process.
    """
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # makes the import fail with ImportError
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]
