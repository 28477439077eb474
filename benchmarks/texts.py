"""Texts of generated sessions, cut from a few pools.

The pools are built once from our own words and templates: prose in several languages, code, tool output, and base64
signatures. The kind of a text determines its length; `stretch` scales all of them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from random import Random

_POOL = 400_000
_LONGEST = 20_000


class Texts:
    """Pools of texts, and pieces of suitable length."""

    def __init__(self, random: Random) -> None:
        self.stretch = 1.0
        self._random = random
        self._prose = _pool(random, _sentence)
        self._code = _pool(random, _code_lines)
        self._output = _pool(random, _output_line)
        self._signature = base64.b64encode(random.randbytes(_POOL)).decode()

    def prose(self, typical: int) -> str:
        return self._cut(self._prose, typical)

    def code(self, typical: int) -> str:
        return self._cut(self._code, typical)

    def output(self, typical: int) -> str:
        return self._cut(self._output, typical)

    def signature(self, typical: int) -> str:
        return self._cut(self._signature, typical)

    def _cut(self, pool: str, typical: int) -> str:
        """A piece of a pool: mostly short, at times many times the typical length."""
        length = min(_LONGEST, max(1, int(self.stretch * typical * self._random.lognormvariate(-0.5, 1.0))))
        start = self._random.randrange(len(pool) - _LONGEST)
        return pool[start : start + length]

    def paths(self, count: int) -> list[str]:
        words = self._random.choices(_NOUNS, k=2 * count)
        return [f"src/{words[2 * at]}/{words[2 * at + 1]}_{at}.py" for at in range(count)]


def _pool(random: Random, piece: Callable[[Random], str]) -> str:
    pieces: list[str] = []
    length = 0
    while length < _POOL:
        pieces.append(piece(random))
        length += len(pieces[-1])
    return "".join(pieces)


_NOUNS = ("parser", "ledger", "buffer", "cursor", "lattice", "schema", "window", "socket", "planner", "kernel", "shard")
_VERBS = ("reads", "writes", "keeps", "drops", "moves", "checks", "opens", "closes", "merges", "splits", "retries")
_FOREIGN = (
    "先把解析器的测试跑一遍，再看缓存是否正确。",
    "このバッファは呼び出し側が解放します。",
    "설정 파일을 다시 읽고 결과를 비교해 주세요.",
    "Die Prüfung läuft über alle Schlüssel – außer den leeren.",
    "Готово ✅ 🎉",
    "déjà vérifié 👍🏽",
)


def _sentence(random: Random) -> str:
    if random.random() < 0.02:
        return random.choice(_FOREIGN) + " "
    first, second, third = random.choices(_NOUNS, k=3)
    verb, other = random.choices(_VERBS, k=2)
    return random.choice(
        (
            f"The {first} {verb} the {second} before the {third} {other} it. ",
            f'I looked at `{first}.{second}()`: it {verb} "{third}" twice, which is why the {first} {other}. ',
            f"- [ ] {first} {verb} every {second}\n",
            f"Next: make sure the {first} never {other} a {second} that the {third} still {verb}.\n\n",
            f"It's the {first}'s {second}, not the {third}'s. ",
        )
    )


def _code_lines(random: Random) -> str:
    first, second, third = random.choices(_NOUNS, k=3)
    number = random.randint(2, 4_096)
    comment = f"    # {random.choice(_FOREIGN)}\n" if random.random() < 0.03 else ""
    return random.choice(
        (
            f'def {first}_{second}(self, {third}: str = "{first}\\n") -> dict[str, int]:\n'
            f'    """Return the {second} of a {third}."""\n{comment}'
            f"    return {{\"{first}\": {number}, '{second}': len({third})}}\n\n",
            f"\tif err := {first}.{second.title()}(ctx, {number}); err != nil {{\n"
            f'\t\treturn fmt.Errorf("{third} %q: %w", name, err)\n\t}}\n',
            f"  const {first} = await {second}.map(({third}) => `${{{third}.id}}/{number}`);\n",
            f'<div class="{first}-{second}" data-{third}="{number}">{first} &amp; {second}</div>\n',
        )
    )


def _output_line(random: Random) -> str:
    first, second = random.choices(_NOUNS, k=2)
    number = random.randint(1, 99_999)
    return random.choice(
        (
            f"src/{first}/{second}.py:{number}:\tself._{first}.{second}(limit={number})\n",
            f"tests/test_{first}.py::test_{second}_{number} PASSED  [ {number % 100}%]\n",
            f'{{"level":"info","at":"2026-01-05T08:{number % 60:02d}:00Z","msg":"{first} \\"{second}\\" done"}}\n',
            f"-rw-r--r--  1 ada ada {number:>8} Jan  5 08:{number % 60:02d} {first}_{second}.txt\n",
            f"\x1b[32m✓\x1b[0m {first} › {second} ({number} ms)\n" if number % 9 == 0 else f"ok {number} {first}\n",
        )
    )
