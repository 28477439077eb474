"""What a session is called while it runs: the name it was given, else its first prompt that means something."""

from __future__ import annotations

from sessiontree.library.partial_reader import first_prompt
from sessiontree.library.summary import LONGEST_TITLE, cut_at_word
from sessiontree.session.session import Session


def title_of(session: Session) -> str:
    """The title by the rule of listings; empty when nothing was said. Untrusted text, on one line."""
    given = session.given_name
    if given:
        return cut_at_word(given, LONGEST_TITLE)
    journal = session.journal
    said = [node for node, kind in enumerate(journal.types) if kind == "message"]
    return cut_at_word(first_prompt(journal, said), LONGEST_TITLE)
