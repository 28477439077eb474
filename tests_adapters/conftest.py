from __future__ import annotations

from tests_adapters.homes import home, server

__all__ = ["home", "server"]
