"""Requests with which the screens close. The command line carries them out in the terminal."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct


class Resume(Struct, frozen=True):
    """Resume a session in an agent; by default in its own."""

    ref: str
    agent: str | None = None

    def arguments(self) -> tuple[str, ...]:
        """The arguments of the command line."""
        return ("resume", self.ref) if self.agent is None else ("resume", self.ref, "--in", self.agent)


class Chat(Struct, frozen=True):
    """Continue a session in the chat."""

    ref: str

    def arguments(self) -> tuple[str, ...]:
        return ("chat", "--session", self.ref)


Request: TypeAlias = Resume | Chat
