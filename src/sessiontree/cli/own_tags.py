"""The tags that the user gave to sessions, for commands that show them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeAlias

from sessiontree.cli import stderr
from sessiontree.errors import DamagedError
from sessiontree.stores.contract import DocumentStore

TAG_DOCUMENT = "marks.json"
FindTags: TypeAlias = Callable[[str, str, bool], tuple[str, ...]]


def find_own_tags(documents: DocumentStore) -> FindTags:
    """Return a function from the id and the reference of a session, and whether it is a file, to its tags."""
    if documents.read(TAG_DOCUMENT) is None:
        return lambda *_: ()
    from sessiontree.archive.tags import TagFile  # only with tags, so that listings start fast without

    try:
        find = TagFile(documents).lookup()
    except DamagedError as error:
        stderr.print_line(f"{error}; tags are not shown")
        return lambda *_: ()
    return lambda id, ref, is_file: find(id, os.path.realpath(ref) if is_file else ref).tags
