"""The content of cards: Markdown, code, edits, answers in several entries, compactions."""

from __future__ import annotations

import json
import re
import time

import pytest

from sessiontree.core.jsonio import render_json
from sessiontree.export.html.code_highlighter import highlight
from sessiontree.export.html.markdown_renderer import render_message
from sessiontree.export.html.page import embedded_json
from tests.builders import chain, entry, header, opened
from tests.export.conversations import call, exported, message, text


def test_markdown_becomes_markup_and_code_is_highlighted() -> None:
    page = exported(
        header() + message("a", None, "assistant", "# Title\n\n- **one**\n\n```python\nx = 1\n```\n\n|a|\n|-|\n|b|"),
        "html",
    )
    assert "<h3>Title</h3>" in page
    assert "<li><strong>one</strong></li>" in page
    assert '<span class="hn">1</span>' in page
    assert "<td>b</td>" in page


@pytest.mark.parametrize(
    "link",
    [
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](data:text/html,<script>alert(1)</script>)",
        "[x](file:///etc/passwd)",
        "<javascript:alert(1)>",
        "[x](&#106;avascript:alert(1))",
        "[x][1]\n\n[1]: vbscript:x",
        "[x](//attacker.example)",
        "![x](http://attacker.example/x.png)",
        "<img src=x onerror=alert(1)>",
        "<svg><script>alert(1)</script></svg>",
        "<math><mi xlink:href='javascript:1'>x</mi></math>",
    ],
)
def test_only_links_to_the_web_and_to_mail_become_links(link: str) -> None:
    shown = str(render_message(link))
    assert not re.search(r"<(?:img|svg|math|script)", shown)
    for address in re.findall(r'href="([^"]*)"', shown):
        assert address.startswith(("http://", "https://", "mailto:"))
    assert 'href="http' not in shown or link.startswith("!")


def test_links_say_nothing_about_where_they_are() -> None:
    assert 'rel="noopener noreferrer nofollow" target="_blank"' in render_message("[x](https://example.org/)")
    assert 'href="mailto:a@b.c"' in render_message("<mailto:a@b.c>")


@pytest.mark.parametrize(
    "slow", ["[" * 100_000, "*a " * 60_000, "`" * 150_000, "> " * 90_000, "x<" * 500_000, "- " * 50_000, "a\n" * 90_000]
)
def test_hostile_markdown_is_rendered_quickly(slow: str) -> None:
    started = time.process_time()
    assert render_message(slow)
    assert time.process_time() - started < 20


def test_unknown_languages_and_huge_code_are_only_escaped() -> None:
    assert highlight("<b>", "no-such-language") == "&lt;b&gt;"
    assert "<span" not in highlight("x = 1\n" * 20_000, "python")
    assert "<script" not in highlight("<script>alert(1)</script>", "html")


def test_an_answer_of_several_entries_is_one_card_with_its_usage_once() -> None:
    usage = {"input": 10, "output": 20, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 30}
    parts = [
        message("a", None, "user", "question"),
        message(
            "b", "a", "assistant", [{"type": "thinking", "thinking": "hm"}], responseId="r", model="m", usage=usage
        ),
        message("c", "b", "assistant", [text("I look")], responseId="r", model="m", usage=usage),
        message("d", "c", "assistant", [call("c1", "bash", command="ls")], responseId="r", model="m", usage=usage),
        message("e", "d", "toolResult", "output", toolCallId="c1", toolName="bash"),
        message("f", "e", "assistant", [text("done")], responseId="s", model="m", usage=usage),
    ]
    page = exported(header() + b"".join(parts), "html")
    assert page.count('<article class="assistant"') == 2
    assert page.count("10 → 20 tokens") == 2
    for id in "abcdef":
        assert f'id="entry-{id}"' in page, "every entry can be linked to"


def test_an_edit_is_shown_as_a_diff_in_every_client_and_a_new_file_as_code() -> None:
    line = render_json(
        {
            "type": "assistant",
            "uuid": "u1",
            "parentUuid": None,
            "sessionId": "s",
            "timestamp": "2026-02-16T10:00:00.000Z",
            "message": {
                "id": "m",
                "role": "assistant",
                "content": [
                    {
                        "type": "tool_use",
                        "id": "t",
                        "name": "Edit",
                        "input": {"file_path": "/a.py", "old_string": "x = 1\ny = 2", "new_string": "x = 1\ny = 3"},
                    },
                    {
                        "type": "tool_use",
                        "id": "w",
                        "name": "Write",
                        "input": {"file_path": "/b.py", "content": "z = 9"},
                    },
                ],
            },
        }
    )
    page = exported(opened(line + b"\n", "claude"), "html")
    assert '<span class="del">- y = 2</span>' in page
    assert '<span class="ins">+ y = 3</span>' in page
    assert '<span class="same">  x = 1</span>' in page
    assert 'z = <span class="hn">9</span>' in page
    assert "old_string" not in page


def test_long_output_is_folded_with_its_size() -> None:
    data = header() + message("a", None, "assistant", [call("c", "bash", command="x")])
    data += message("b", "a", "toolResult", "line\n" * 100, toolCallId="c", toolName="bash")
    assert '<details class="output"><summary>Output: 500 B, 101 lines</summary>' in exported(data, "html")


def test_a_compaction_opens_to_what_it_replaced() -> None:
    data = header() + message("a", None, "user", "old") + message("b", "a", "assistant", "older answer")
    data += message("c", "b", "user", "kept") + entry("compaction", "d", "c", summary="short", firstKeptEntryId="c")
    page = exported(data + message("e", "d", "user", "new"), "html")
    fold = re.search(r'<details class="compacted" id="replaced-entry-d">(.*?)</article>\s*</details>', page, re.DOTALL)
    assert fold is not None
    assert "2 entries replaced by a summary" in fold[1]
    assert "older answer" in fold[1]
    assert "kept" not in fold[1]


def test_the_picture_has_a_row_for_each_message_and_folds_runs() -> None:
    from sessiontree.export.html.branch_graph import build_graph_data

    parts = [message(f"m{at}", f"m{at - 1}" if at else None, "user", "x") for at in range(10)]
    parts += [message("b1", "m4", "user", "branch"), entry("label", "l", "b1", targetId="m4", label="here")]
    data = build_graph_data(opened(header() + b"".join(parts)))
    assert len(data["ids"]) == 11
    assert data["labels"] == {data["ids"].index("m4"): "here"}
    assert data["parents"][data["ids"].index("b1")] == data["ids"].index("m4")
    assert len(set(data["rows"]["columns"])) == 2
    assert [data["ids"][data["nodes"].index(node)] for node in data["folded"]["nodes"]] == [
        "m0",
        "m4",
        "m5",
        "m9",
        "b1",
    ]
    assert sum(data["folded"]["hidden"]) == 6


def test_the_picture_names_the_tool_of_a_result_that_does_not_name_it() -> None:
    data = header() + message("a", None, "assistant", [call("c", "bash", command="x")])
    page = exported(data + message("b", "a", "toolResult", "done", toolCallId="c"), "html")
    graph = re.search(r'id="graph-data">(.*?)</script>', page)
    assert graph is not None
    assert "bash" in json.loads(graph[1])["texts"]


def test_data_in_a_script_element_cannot_end_it() -> None:
    assert "<" not in embedded_json({"x": "</script><!--"})


def test_the_picture_of_a_huge_session_has_only_the_folded_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from sessiontree.export.html import branch_graph

    monkeypatch.setattr(branch_graph, "MAX_ROWS", 50)
    session = opened(header() + b"".join(chain(100)))
    data = branch_graph.build_graph_data(session)
    assert len(data["nodes"]) == 2
    assert data["rows"]["hidden"] == [98, 0]
