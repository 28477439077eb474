"""Contracts as code, for people who write stores and dialects of their own. Needs no test framework.

    from sessiontree.testing import check_dialect, check_store

    check_store(lambda name: MyStore(name))
    check_dialect(MY_DIALECT, [sample_file_bytes])

A check raises `ContractError`, which names the contract that does not hold and says what was found.
"""

from __future__ import annotations

from sessiontree.testing.contract import ContractError
from sessiontree.testing.dialects import check_dialect
from sessiontree.testing.stores import check_blob_store, check_store

__all__ = ["ContractError", "check_blob_store", "check_dialect", "check_store"]
