"""Sessions in PostgreSQL: `postgresql://host/database/SESSION`. Only this package imports psycopg."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiontree.errors import UsageError

if TYPE_CHECKING:
    from sessiontree.stores.postgres.repository import PostgresRepository


def open_postgres_repository(address: str) -> PostgresRepository:
    """The repository at an address; `UsageError` if psycopg is not installed."""
    try:
        from sessiontree.stores.postgres.repository import find_repository
    except ModuleNotFoundError:
        raise UsageError("PostgreSQL needs another package: pip install 'sessiontree[postgres]'") from None
    return find_repository(address)
