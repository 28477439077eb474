"""A session in PostgreSQL is read and written as the same bytes in a file: damage, branches, any order of writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sessiontree
from sessiontree.errors import SessionTreeError
from sessiontree.stores.contract import read_bytes
from sessiontree.stores.file import FileStore
from sessiontree.stores.postgres.repository import PostgresRepository
from tests.builders import examples
from tests.damage import BUILDERS, DAMAGE


def describe(session: sessiontree.Session) -> list[object]:
    return [
        session.dialect.name,
        session.header,
        session.ids,
        [session.parent(id) for id in session.ids],
        session.leaves(),
        session.leaf,
        [(problem.start, problem.end, problem.kind) for problem in session.problems],
        session.fragments,
        list(session.context().messages),
    ]


@pytest.mark.parametrize("dialect", BUILDERS)
def test_a_damaged_session_is_read_as_from_a_file(repository: PostgresRepository, tmp_path: Path, dialect: str) -> None:
    for number, (kind, damage) in enumerate(DAMAGE.items()):
        data = damage.apply(BUILDERS[dialect]())
        path = tmp_path / "s-1.jsonl"
        path.write_bytes(data)
        store = repository.new(f"s-{number}", timestamp="", cwd="/")
        store.create([data])
        try:
            expected = describe(sessiontree.open(path, dialect=dialect))
        except SessionTreeError as error:
            with pytest.raises(type(error)):
                sessiontree.open(str(store.ref), dialect=dialect)
            continue
        found = describe(sessiontree.open(str(store.ref), dialect=dialect))
        assert found == expected, kind


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.binary(max_size=40), st.integers(-1, 1)),
        st.tuples(st.just("overwrite"), st.binary(min_size=1, max_size=10), st.integers(0, 200)),
        st.tuples(st.just("replace"), st.binary(max_size=60), st.integers(-1, 1)),
        st.tuples(st.just("read"), st.just(b""), st.integers(0, 250)),
        st.tuples(st.just("join"), st.just(b""), st.just(0)),
    ),
    max_size=25,
)


@settings(parent=settings(examples(25)), deadline=None, suppress_health_check=list(HealthCheck))
@given(first=st.binary(min_size=1, max_size=50), steps=STEPS)
def test_any_order_of_writes_gives_the_same_bytes_as_a_file(
    repository: PostgresRepository,
    tmp_path_factory: pytest.TempPathFactory,
    first: bytes,
    steps: list[tuple[str, bytes, int]],
) -> None:
    for stat in list(repository.iter_stats()):
        repository.delete(stat.ref)
    ours = repository.new("one", timestamp="", cwd="/")
    theirs = FileStore(tmp_path_factory.mktemp("file") / "one.jsonl")
    for store in (ours, theirs):
        store.create([first])
    for action, data, number in steps:
        outcomes = [_step(store, action, data, number, repository) for store in (ours, theirs)]
        assert outcomes[0] == outcomes[1], action
        assert ours.size() == theirs.size()
    assert read_bytes(ours, 0, 10_000) == read_bytes(theirs, 0, 10_000)
    assert list(repository.verify()) == []


def _step(store: object, action: str, data: bytes, number: int, repository: PostgresRepository) -> object:
    assert hasattr(store, "append")
    size = store.size()  # type: ignore[attr-defined]
    try:
        match action:
            case "append":
                return store.append(data, expected_size=max(size + number, 0))
            case "replace":
                store.replace([data], expected_size=max(size + number, 0))  # type: ignore[attr-defined]
                return "replaced"
            case "overwrite":
                with store.exclusive():  # type: ignore[attr-defined]
                    expected = read_bytes(store, number, len(data))  # type: ignore[arg-type]
                    store.overwrite(number, data, expected)  # type: ignore[attr-defined]
                return "overwritten"
            case "read":
                return read_bytes(store, number, 70)  # type: ignore[arg-type]
            case _:
                if not isinstance(store, FileStore):
                    repository.vacuum(days=1)
                return None
    except SessionTreeError as error:
        return type(error).__name__
