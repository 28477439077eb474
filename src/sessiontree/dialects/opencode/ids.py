"""OpenCode's ids: a prefix, a time and a counter in 12 hex digits, and 14 letters and digits.

The ids of messages and parts sort by time. Those of sessions sort in reverse: the newest comes first.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from string import ascii_letters, digits

_ALPHABET = digits + ascii_letters
_TIME_BITS = 48
_session_id = re.compile(r"ses_[0-9A-Za-z]+\Z")


def session_id(id: str) -> str:
    """The id of a session: its own, or one made from the id of a session of another client."""
    if _session_id.match(id):
        return id
    compact = id.replace("-", "")
    time = int(compact[:12], 16) if re.match(r"[0-9a-f]{12}", compact) else 0  # of a UUIDv7: milliseconds
    return "ses_" + _digits(~(time * 4096), id)


def item_id(prefix: str, milliseconds: int, count: int, seed: str) -> str:
    """The id of a message or a part. `count` orders those of the same millisecond."""
    return f"{prefix}_" + _digits(milliseconds * 4096 + min(count, 4095), seed)


def _digits(number: int, seed: str) -> str:
    rest = int.from_bytes(blake2b(seed.encode("utf-8", "surrogatepass"), digest_size=12).digest())
    letters = []
    for _ in range(14):
        rest, digit = divmod(rest, len(_ALPHABET))
        letters.append(_ALPHABET[digit])
    return f"{number & ((1 << _TIME_BITS) - 1):012x}{''.join(letters)}"
