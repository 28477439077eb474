"""The native dialect: Pi's version 3 with a few entry types of our own."""

from __future__ import annotations

from sessiontree.dialects.native.dialect import NATIVE

__all__ = ["NATIVE"]
