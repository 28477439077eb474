"""Contract checks for authors of stores, repositories and dialects. They need no test framework.

    from sessiontree.testing import check_dialect, check_repository, check_source, check_store

    check_store(lambda name: MyStore(name))
    check_repository(lambda name: MyRepository(name))
    check_dialect(MY_DIALECT, [sample_file_bytes])
    check_source(MY_DIALECT, "sample/chats.db")

A failed check raises `ContractError`, which names the contract and the value found.
"""

from __future__ import annotations

from sessiontree.testing.contract import ContractError
from sessiontree.testing.dialects import check_dialect
from sessiontree.testing.sources import check_source
from sessiontree.testing.stores import check_blob_store, check_documents, check_repository, check_store

__all__ = [
    "ContractError",
    "check_blob_store",
    "check_dialect",
    "check_documents",
    "check_repository",
    "check_source",
    "check_store",
]
