"""`python -m benchmarks.tokens FILE...`: measure the error of the token estimates against real tokenizers.

A FILE is a vocabulary: a `tokenizer.json` (read with the package `tokenizers`; the PyPI package anthropic 0.38.0 ships
one), or the ranks of a tiktoken encoding, one "base64 rank" per line (read with `tiktoken`; `--pattern` gives the
encoding's pattern). Neither package is one of our dependencies: run this in a separate environment that has them,
msgspec, and this repository on its path. Nothing is downloaded.

The texts are this project's documentation and code, JSON lines of generated sessions, and sentences about programming
in Chinese, Japanese and Korean that were written for this.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

from sessiontree.compaction.token_estimate import measured_tokens, utf16_length

ROOT = Path(__file__).parents[1]
Count = Callable[[str], int]

O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How the encoding o200k_base splits a text before it finds tokens."""

CHINESE = """
解析器读取每一行，并在失败的地方报告字节偏移。 测试表明，当两个进程同时追加时，缓存会保留过期的行。
我们决定先加锁再检查文件大小，然后重试。 迁移会增加一列，但不会重写整张表。 请不要修改公共接口，
只需要修复最后一行丢失的问题。 会话文件是追加写入的，所以旧的内容永远不会被覆盖。
这个函数在处理空字符串时抛出了异常，我已经补充了对应的单元测试。 如果上下文窗口不够用，
就把较早的部分压缩成摘要。 构建失败的原因是依赖版本冲突，升级之后问题就解决了。 下一步需要检查夜间任务的日志，
看看为什么它总是晚十分钟。 用户希望保留原来的排序方式，同时支持按时间过滤。 分支合并之后，
两边修改过的文件都会列在说明里。
"""
JAPANESE = """
パーサーは各行を読み込み、失敗した位置をバイト単位で報告します。 二つのプロセスが同時に追記すると、
キャッシュに古い行が残ることがテストで分かりました。 先にロックを取ってからサイズを確認し、
それから再試行することにしました。 移行では列を一つ追加しますが、表全体は書き直しません。
公開インターフェースは変更しないでください。最後の行が失われる問題だけを直してください。
セッションファイルは追記のみなので、古い内容が上書きされることはありません。
この関数は空文字列を渡すと例外を投げていたので、対応する単体テストを追加しました。
コンテキストの長さが足りなくなったら、古い部分を要約に置き換えます。
ビルドが失敗した原因は依存関係のバージョンの衝突で、更新したら解決しました。 次は夜間ジョブのログを調べて、
いつも十分遅れる理由を確認します。 並び順はそのままにして、時間で絞り込めるようにしてほしいとのことです。
ブランチを統合すると、両方で変更されたファイルが説明に並びます。
"""
KOREAN = """
파서는 각 줄을 읽고 실패한 위치를 바이트 단위로 알려 줍니다. 두 프로세스가 동시에 덧붙이면 캐시에 오래된 줄이
남는다는 것을 테스트로 확인했습니다. 먼저 잠금을 얻고 파일 크기를 확인한 다음 다시 시도하기로 했습니다.
마이그레이션은 열을 하나 추가하지만 표 전체를 다시 쓰지는 않습니다. 공개 인터페이스는 바꾸지 말고 마지막 줄이
사라지는 문제만 고쳐 주세요. 세션 파일은 덧붙이기만 하므로 예전 내용이 덮어써지는 일은 없습니다. 이 함수는 빈
문자열을 받으면 예외를 던졌기 때문에 해당 단위 테스트를 추가했습니다. 컨텍스트 길이가 모자라면 오래된 부분을
요약으로 바꿉니다. 빌드가 실패한 원인은 의존성 버전 충돌이었고 업데이트한 뒤에 해결되었습니다. 다음에는 야간
작업의 로그를 살펴보고 왜 항상 십 분 늦는지 확인해야 합니다. 사용자는 정렬 순서를 그대로 두고 시간으로 거를 수
있기를 바랍니다. 브랜치를 합치면 양쪽에서 바뀐 파일이 설명에 나옵니다.
"""


def texts() -> dict[str, str]:
    """Samples of each kind of text: tens of thousands of characters each, except for the last three."""
    from benchmarks.generate import Shape, generated

    session = generated(Shape(size=400_000, entries=300, branches=3, compactions=1))
    code = "\n".join(path.read_text() for path in sorted((ROOT / "src" / "sessiontree").glob("*.py"))[:12])
    return {
        "English prose": _prose(),
        "Python code": code[:60_000],
        "JSON lines": session.read_bytes()[:60_000].decode("utf-8", "ignore"),
        "Chinese": CHINESE,
        "Japanese": JAPANESE,
        "Korean": KOREAN,
        "Chinese and code, mixed": _mixed(CHINESE, code),
    }


def _prose() -> str:
    """Paragraphs of the documentation without its tables, code and links."""
    lines: list[str] = []
    for page in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        lines += [line for line in page.read_text().splitlines() if line[:1].isalpha() and "`" not in line]
    return "\n".join(lines)


def _mixed(prose: str, code: str) -> str:
    random = Random(1)
    pieces = [*prose.split(), *(part for part in code.split("\n\n")[:40])]
    random.shuffle(pieces)
    return "\n".join(pieces)


def load(path: Path, pattern: str) -> Count:
    """The tokenizer of a vocabulary file."""
    if path.suffix == ".json":
        tokenizers: Any = importlib.import_module("tokenizers")
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
        return lambda text: len(tokenizer.encode(text).ids)
    tiktoken: Any = importlib.import_module("tiktoken")
    ranks = {base64.b64decode(line.split()[0]): int(line.split()[1]) for line in path.read_bytes().splitlines() if line}
    encoding = tiktoken.Encoding(path.stem, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return lambda text: len(encoding.encode_ordinary(text))


def table(tokenizers: dict[str, Count]) -> Iterable[str]:
    """One row for each kind of text: characters per token, and the error of each estimate."""
    names = list(tokenizers)
    yield "| text | " + " | ".join(f"{name}: characters per token, Pi's, measured" for name in names) + " |"
    yield "|---|" + "---|" * len(names)
    for kind, text in texts().items():
        cells = []
        for count in tokenizers.values():
            real = count(text)
            pi, ours = -(-utf16_length(text) // 4), measured_tokens(text)
            cells.append(f"{len(text) / real:.2f}, {pi / real - 1:+.0%}, {ours / real - 1:+.0%}")
        yield f"| {kind} | " + " | ".join(cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tokens", description=__doc__)
    parser.add_argument("vocabularies", metavar="FILE", type=Path, nargs="+")
    parser.add_argument("--pattern", default=O200K, help="the pattern of a tiktoken encoding (default: o200k_base)")
    arguments = parser.parse_args()
    for line in table({path.stem: load(path, arguments.pattern) for path in arguments.vocabularies}):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
