"""Coverage-guided fuzzing (atheris) of `lines` and of the parser of every dialect.

.venv/bin/pip install atheris
.venv/bin/python fuzz/coverage_guided.py -max_total_time=300 tests/corpus/pi-family
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["sessiontree"]):
    from sessiontree import plugins
    from sessiontree.core.lines import iter_lines, line_ends
    from sessiontree.core.salvage import salvage
    from sessiontree.dialects.contract import AS_CLIENT
    from sessiontree.session.journal import Journal
    from sessiontree.stores.memory import MemoryStore

DIALECTS = [plugins.load("dialects", name) for name in plugins.names("dialects")]


def test_one_input(data: bytes) -> None:
    """Must not raise for any bytes."""
    assert sum(len(line) for _, line in iter_lines(data)) + data.count(b"\n") == len(data)
    assert line_ends(data, len(data))[-1:] in ([], [len(data)])
    for dialect in DIALECTS:
        for _, line in iter_lines(data):
            salvage(line, dialect.is_record)
            dialect.parse(line)
        journal = Journal(MemoryStore(data), dialect)
        journal.refresh()
        journal.problems()
        dialect.build_context(journal, dialect.find_leaf(journal, AS_CLIENT), AS_CLIENT)


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
