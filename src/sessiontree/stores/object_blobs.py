"""Blobs in an object store: S3 and what speaks its protocol, Google Cloud Storage, Azure, or a folder.

An object is created once and never overwritten, and its name is the SHA-256 of its content, which is compared on every
read. Contents that were read or written lately are kept in memory and, if `$SESSIONTREE_BLOB_CACHE` is a size such as
`2GB`, in files of the cache folder. Only this module imports obstore.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from sessiontree import paths
from sessiontree.errors import DamagedError, StoreError, UsageError, WriteError
from sessiontree.stores.blobs import FileBlobs, blob_name, check_blob_name

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_IN_MEMORY = 64 << 20
_SCHEMES = ("s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "file")
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_size(text: str) -> int:
    """Parse a size such as `500MB`; `UsageError` for other text."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]B|B)?", text.strip().upper())
    if found is None:
        raise UsageError(f"{text!r} is not a size: use a number with KB, MB, GB or TB")
    return int(float(found[1]) * _UNITS[(found[2] or "").removeprefix("B")])


def check_object_url(url: str) -> str:
    """Return the URL of an object store; `UsageError` for any other text."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _SCHEMES or not rest or "@" in rest or ".." in rest.split("/"):
        raise UsageError(
            f"{url[:200]!r} is not an object store: use s3://bucket/prefix, gs://, az:// or file:///folder"
        )
    return url.rstrip("/")


class ObjectBlobs:
    """Blobs below a URL. Credentials come from the environment, as those of the vendors' own tools."""

    def __init__(self, url: str, prefix: str = "", **config: Any) -> None:
        self.url = check_object_url(url)
        self._prefix = f"{prefix}/" if prefix else ""
        self._config = config
        self._opened: ObjectStore | None = None
        self._opening = threading.Lock()
        self._memory = MemoryCache(_IN_MEMORY)
        size = os.environ.get("SESSIONTREE_BLOB_CACHE", "")
        self._files = (
            FileCache(os.path.join(paths.cache_folder(os.environ), "blobs"), parse_size(size)) if size else None
        )

    def put(self, data: bytes) -> str:
        import obstore
        from obstore import exceptions

        name = blob_name(data)
        store = self._store()
        try:
            # Create-only: an existing object with this name is never overwritten.
            with contextlib.suppress(exceptions.AlreadyExistsError):
                obstore.put(store, self._path(name), data, mode="create")
        except exceptions.BaseError as error:
            raise WriteError(f"{self.url}: cannot store a blob: {_cause(error)}") from error
        self._keep(name, data)
        return name

    def get(self, name: str) -> bytes | None:
        import obstore
        from obstore import exceptions

        check_blob_name(name)
        kept = self._memory.get(name)
        if kept is None and self._files is not None:
            kept = self._files.get(name)
        if kept is not None:
            return kept
        try:
            data = bytes(obstore.get(self._store(), self._path(name)).bytes())
        except (exceptions.NotFoundError, FileNotFoundError):
            return None
        except exceptions.BaseError as error:
            raise StoreError(f"{self.url}: cannot be read: {_cause(error)}") from error
        if blob_name(data) != name:
            raise DamagedError(f"{self.url}/{self._path(name)}: damaged: the content does not match its SHA-256 name")
        self._keep(name, data)
        return data

    def _keep(self, name: str, data: bytes) -> None:
        self._memory.put(name, data)
        if self._files is not None:
            self._files.put(name, data)

    def _path(self, name: str) -> str:
        return f"{self._prefix}{name[:2]}/{name}"

    def _store(self) -> ObjectStore:
        with self._opening:
            if self._opened is None:
                try:
                    from obstore.store import from_url
                except ModuleNotFoundError:
                    raise UsageError("object stores need another package: pip install 'sessiontree[objects]'") from None
                if self.url.startswith("file:"):
                    self._opened = from_url(self.url, mkdir=True)
                else:
                    self._opened = from_url(self.url, **self._config)
            return self._opened


def _cause(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


class MemoryCache:
    """Contents by name, up to a total size; the one that was not used for the longest time goes first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held = 0
        self._contents: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str) -> bytes | None:
        with self._lock:
            if name in self._contents:
                self._contents.move_to_end(name)
            return self._contents.get(name)

    def put(self, name: str, data: bytes) -> None:
        with self._lock:
            if name in self._contents or len(data) > self._size:
                return
            self._contents[name] = data
            self._held += len(data)
            while self._held > self._size:
                self._held -= len(self._contents.popitem(last=False)[1])


class FileCache:
    """Contents by name in a folder, up to a total size. A damaged file counts as missing; a failure costs only time."""

    def __init__(self, folder: str, size: int) -> None:
        self._folder = folder
        self._size = size
        self._blobs = FileBlobs(folder, flat=True)

    def get(self, name: str) -> bytes | None:
        with contextlib.suppress(StoreError, DamagedError, OSError):
            found = self._blobs.get(name)
            if found is not None:
                os.utime(os.path.join(self._folder, name))
            return found
        return None

    def put(self, name: str, data: bytes) -> None:
        if len(data) > self._size:
            return
        with contextlib.suppress(StoreError, OSError):
            if os.path.exists(os.path.join(self._folder, name)):
                return
            self._blobs.put(data)
            self._remove_oldest()

    def _remove_oldest(self) -> None:
        with os.scandir(self._folder) as found:
            files = sorted((entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in found)
        held = sum(size for _, size, _ in files)
        for _, size, path in files:
            if held <= self._size:
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            held -= size
