"""Markdown for GitHub: messages cannot affect anything outside of themselves."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.token import Token

from sessiontree.export.markdown import fenced, prose
from tests.builders import header, message_line
from tests.export.conversations import EVERYTHING, call, exported, message, text


def tokens(document: str) -> list[Token]:
    """The flat tokens of a CommonMark parser."""
    found: list[Token] = []
    for token in MarkdownIt("commonmark").parse(document):
        found += [token, *(token.children or [])]
    return found


def html_in(document: str) -> set[str]:
    """Every tag that a renderer would take for HTML."""
    html = "".join(token.content for token in tokens(document) if token.type.startswith("html"))
    return set(re.findall(r"</?([a-z]+)", html))


def test_the_complete_conversation_is_there_and_only_our_html() -> None:
    document = exported(EVERYTHING, "md", "all")
    for words in ("first question", "a hidden thought", "ls -l", "no such file", "the road not taken", "it broke"):
        assert words in document
    for words in ("all of it in short", "the fork", "it was cut off", "these bytes belong to no entry", "cost $0.5"):
        assert words in document
    assert "image/png" in document
    assert "base64" not in document
    assert html_in(document) <= {"details", "summary", "sub"}
    assert document.count("<details>") == document.count("</details>")


def test_html_in_a_message_is_text() -> None:
    for words in ("<script>x</script>", "</details>", "<!-- x", "a <b>c</b>", "`<i>` and ``<u>``", "> <div>", "- <p>"):
        document = exported(header() + message_line("a", None, words), "md")
        assert html_in(document) <= {"sub", "code"}, words


def test_a_fence_is_longer_than_any_fence_within() -> None:
    assert fenced("a\n````\nb").startswith("`````text\n")
    inner = [token.content for token in tokens(fenced("a\n````\n<b>")) if token.type == "fence"]
    assert inner == ["a\n````\n<b>\n"]


def test_code_in_a_message_stays_code_wherever_its_fence_is() -> None:
    for opening, closing in (("```js", "```"), ("  ~~~~", "~~~~"), ("- ```html", "  ```"), ("    ```", "    ```")):
        document = exported(
            header() + message_line("a", None, f"x\n{opening}\n<b>&amp;</b>\n{closing}\nafter <i>"), "md"
        )
        code = [token.content.strip() for token in tokens(document) if token.type == "fence"]
        assert code == ["<b>&amp;</b>"]
        assert html_in(document) <= {"sub"}


def test_a_fence_that_is_never_closed_ends_with_its_message() -> None:
    data = header() + message_line("a", None, "```\nnever closed") + message_line("b", "a", "# next", role="assistant")
    found = tokens(exported(data, "md"))
    headings = [found[at + 1].content for at, token in enumerate(found) if token.type == "heading_open"]
    assert headings[-2:] == ["User", "Assistant"]


def test_headings_of_a_message_are_not_headings_of_the_document() -> None:
    for words in ("# one", "text\n====", "text\n---", "> ## two", "- # three", "1. ### four"):
        found = [
            token
            for token in tokens(exported(header() + message_line("a", None, words), "md"))
            if "heading_open" in token.type
        ]
        assert len(found) == 2, words


def test_images_and_unusual_links_of_a_message_become_text() -> None:
    for words in (
        "![x](https://example.com/a.png)",
        "[x](javascript:alert(1))",
        "[x](java&#115;cript:alert(1))",
        "[x](javascript\\:alert(1))",
        "[x]\n\n[x]: javascript:alert(1)",
        "<javascript:alert(1)>",
        "`a ![x](http://y) b",
    ):
        for token in tokens(exported(header() + message_line("a", None, words), "md")):
            assert token.type != "image", words
            assert "javascript" not in str(token.attrs.get("href", "")), words
    assert any(token.type == "link_open" for token in tokens(prose("[x](https://example.com)")))


def test_long_output_is_folded_and_short_output_is_not() -> None:
    def output(words: str) -> str:
        calls = message("a", None, "assistant", [call("c", "bash", command="x")])
        return exported(header() + calls + message("b", "a", "toolResult", [text(words)], toolCallId="c"), "md")

    assert "<details>" not in output("short")
    assert "<details><summary>Output, 31 lines</summary>" in output("line\n" * 30)


def test_titles_and_labels_cannot_break_their_line() -> None:
    document = exported(header(sessiontree=1, title="# a\n\n<b> | *x* [y](z)") + message_line("a"), "md")
    first = tokens(document)[1]
    assert first.content
    assert html_in(document) <= {"sub"}
    assert document.startswith("# \\# a &lt;b> \\| \\*x\\* \\[y\\](z)\n")
