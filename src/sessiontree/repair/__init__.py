"""What is wrong with a session, said in findings, and mending it without losing a byte.

`examine` only reads. `plan_repair` only reads, too: it says which lines would change and how, and checks that what it
plans reads back whole. `carry_out` writes: what had to leave the file to a side-car, the old file to a backup.
"""

from __future__ import annotations

from sessiontree.repair.findings import Finding, examine
from sessiontree.repair.repair import Plan, carry_out, plan_repair

__all__ = ["Finding", "Plan", "carry_out", "examine", "plan_repair"]
