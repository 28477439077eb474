"""Compiled templates, cached like Python's bytecode: in the same folders, and only where Python may write it."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import sys

from jinja2 import BytecodeCache
from jinja2.bccache import Bucket


class TemplateCache(BytecodeCache):
    """Compiling takes longer than rendering a small page. A stored template is used only if its source is the same."""

    def __init__(self, environment: str) -> None:
        """`environment` is the module that builds the environment, because the compiled code also depends on it."""
        self._folder = os.path.dirname(environment)
        with open(environment, "rb") as file:
            self._stamp = hashlib.blake2b(file.read(), digest_size=4).hexdigest()

    def _path(self, bucket: Bucket) -> str | None:
        name = f"template_{bucket.key[:16]}_{self._stamp}.py"
        try:
            return importlib.util.cache_from_source(os.path.join(self._folder, name))
        except NotImplementedError:  # this Python caches no bytecode
            return None

    def load_bytecode(self, bucket: Bucket) -> None:
        path = self._path(bucket)
        if path is not None:
            with contextlib.suppress(OSError), open(path, "rb") as file:
                bucket.load_bytecode(file)

    def dump_bytecode(self, bucket: Bucket) -> None:
        path = self._path(bucket)
        if path is None or sys.dont_write_bytecode:
            return
        with contextlib.suppress(OSError):  # an installation that this user cannot write to
            os.makedirs(os.path.dirname(path), exist_ok=True)
            beside = f"{path}.{os.getpid()}"
            with open(beside, "wb") as file:
                bucket.write_bytecode(file)
            os.replace(beside, path)
