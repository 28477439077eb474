"""A session that tries to inject code into its exported page, with branches and text in many scripts."""

from __future__ import annotations

import json
from typing import Any

ATTACKS = [
    "</script><script>window.pwned = 'script'</script>",
    "<img src=x onerror=\"window.pwned = 'onerror'\">",
    "<svg onload=\"window.pwned = 'svg'\"><animate onbegin=\"window.pwned = 'svg'\" attributeName=x dur=1s>",
    "<a href=\"javascript:window.pwned='link'\">click</a> [click](javascript:window.pwned='md')",
    "</style><style>body { display: none } @import url(http://example.invalid/x.css);</style>",
    "</title></pre></details></article></main><iframe srcdoc=\"<script>parent.pwned='frame'</script>\">",
    "<meta http-equiv=refresh content='0;url=http://example.invalid/'><base href=http://example.invalid/>",
    "<link rel=stylesheet href=http://example.invalid/x.css><img src=http://example.invalid/x.png>",
    "<!--<script>window.pwned = 'comment'</script>-->",
    "\" autofocus onfocus=\"window.pwned='focus'\" x=\"' onmouseover='window.pwned=1",
    "\u202egnp.exe\u202c \u2066hidden\u2069 \u200f \ufeff",
    "```html\n<script>window.pwned = 'fence'</script>\n```",
    "<math href=\"javascript:window.pwned='math'\"><mtext><style><img src=x onerror=\"window.pwned='mathml'\"></style>"
    "</mtext></math>",
    '<p style="position: fixed; inset: 0; background: url(http://example.invalid/c.png)">css</p>{{ 7 * 7 }}',
    "\x1b[31mred\x1b[0m \x1b]8;;javascript:window.pwned='ansi'\x07link\x1b]8;;\x07 \x1b[2J\x1b[H",
]
LONG_LINE = "<b>bold</b> & " * 75_000
"""More than a megabyte without a line break."""
CJK = "これは折り返されなければならない長い文章です。漢字仮名交じり文には空白がありません。" * 12
UNBROKEN = "https://example.invalid/" + "a-very-long-address-without-any-space" * 12


def session() -> bytes:
    """The lines of a native session."""
    attack = "\n".join(ATTACKS)
    lines: list[dict[str, Any]] = [
        {
            "type": "session",
            "version": 3,
            "id": "019c0000-0000-7000-8000-00000000000a",
            "timestamp": "2026-02-16T10:00:00.000Z",
            "cwd": f"/work/{ATTACKS[0]}",
            "title": f"Hostile {ATTACKS[0]}",
            "sessiontree": 1,
        }
    ]

    def add(id: str, parent: str | None, kind: str = "message", **fields: Any) -> None:
        lines.append({"type": kind, "id": id, "parentId": parent, "timestamp": "2026-02-16T10:00:01.000Z", **fields})

    def say(id: str, parent: str | None, role: str, content: Any, **fields: Any) -> None:
        add(id, parent, message={"role": role, "content": content, "timestamp": 1771236001000, **fields})

    call = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": attack, ATTACKS[1]: CJK}}
    say("m0", None, "user", "Please look at the parser. 漢字のファイルも読んでください。")
    say("m1", "m0", "assistant", [{"type": "thinking", "thinking": attack}, {"type": "text", "text": attack}, call])
    say("m2", "m1", "toolResult", attack, toolCallId="c1", toolName=ATTACKS[1], isError=True)
    read = {"type": "toolCall", "id": "c2", "name": "read", "arguments": {"path": "minified.js"}}
    say("m2a", "m2", "assistant", [{"type": "text", "text": LONG_LINE}, read])
    say("m2b", "m2a", "toolResult", LONG_LINE, toolCallId="c2", toolName="read", isError=False)
    say("m3", "m2b", "assistant", f"{CJK}\n\n{UNBROKEN}\n\n```\n{UNBROKEN}\n```")
    say("b1", "m3", "user", "the road not taken " + ATTACKS[0])
    say("b2", "b1", "assistant", [{"type": "text", "text": "what came of it"}])
    add("l1", "m3", "leaf", targetId="m3")
    say("n1", "m3", "user", f"{ATTACKS[3]} {CJK[:60]}")
    say("n2", "n1", "assistant", [{"type": "image", "data": "PHN2Zz4=", "mimeType": "image/svg+xml"}])
    add("k1", "n2", "label", targetId="n1", label=ATTACKS[1])
    for at in range(30):
        say(f"q{at}", f"q{at - 1}" if at else "n2", "user" if at % 2 == 0 else "assistant", f"turn {at}: " + CJK[:80])
    return b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)
