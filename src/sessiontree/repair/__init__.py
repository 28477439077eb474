"""Find problems in a session, and repair it without losing a byte.

`examine` and `plan_repair` only read. A plan lists the changed lines, and is checked by reading its result back.
`carry_out` writes the new file, the removed bytes to a sidecar file and the old file to a backup.
"""

from __future__ import annotations

from sessiontree.repair.findings import Finding, examine, is_damaged
from sessiontree.repair.repair import Plan, carry_out, plan_repair

__all__ = ["Finding", "Plan", "carry_out", "examine", "is_damaged", "plan_repair"]
