"""The HTML page: complete, self-contained, with no markup other than ours."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from sessiontree.export import export
from tests.builders import chain, entry, header, message_line, opened
from tests.export.conversations import EVERYTHING, PIXEL, call, exported, message, text

OURS = frozenset(
    re.findall(
        r"\w+",
        "html head meta title style body a main h1 h2 p div input span button article header time details summary pre "
        "code dl dt dd img nav ul li b script section canvas br em strong",
    )
)
VOID = frozenset({"meta", "input", "img", "br"})


class Page(HTMLParser):
    """Checks that tags are ours and balanced, and collects ids, links and text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.once: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []
        assert sorted(self.once) == ["body", "head", "html", "main", "nav", "script", "script", "style", "title"]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in OURS, tag
        if tag in ("body", "head", "html", "main", "nav", "script", "style", "title"):
            self.once.append(tag)
        if tag in ("script", "style"):
            assert attrs in ([], [("type", "application/json"), ("id", "graph-data")]), "scripts and styles are inline"
        for name, value in attrs:
            assert not name.startswith("on"), name
            assert name not in ("style", "srcdoc")
            if name == "id":
                self.ids.append(value or "")
            if name == "http-equiv":
                assert value == "Content-Security-Policy"
            if name == "href":
                assert (value or "").startswith("#"), "a link leads to an element of the page"
                self.links.append(value or "")
            if name == "src":
                assert (value or "").startswith("data:image/png;base64,")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def test_the_complete_conversation_is_in_the_page() -> None:
    page = Page(exported(EVERYTHING, "html", "all"))
    for words in (
        "A parser",
        "anvil/swift-4",
        "high",
        "first question",
        "a hidden thought",
        "ls -l",
        "no such file",
        "the road not taken",
        "the other road was long",
        "image, image/svg+xml",
        "$ make",
        "it broke",
        "exit code 2",
        "an extension speaks",
        "all of it in short",
        "the fork",
        "it was cut off",
        "undecodable",
        "these bytes belong to no entry",
        "$0.5000",
        "2026-02-16 10:00",
    ):
        assert words in page.text, words


def test_every_entry_can_be_linked_to_and_every_link_leads_somewhere() -> None:
    page = Page(exported(EVERYTHING, "html", "all"))
    assert {f"entry-{id}" for id in ("e3", "e4", "e5", "e13", "b1", "b2")} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


def test_a_result_is_shown_with_its_call_and_an_error_is_marked() -> None:
    page = exported(EVERYTHING, "html")
    card = re.search(r'<details class="call" id="entry-e5">.*?</details>', page, re.DOTALL)
    assert card is not None
    assert "ls -l" in card[0]
    assert '<span class="bad">failed</span>' in card[0]
    assert '<pre class="failed">no such file</pre>' in card[0]


def test_results_of_parallel_calls_find_their_calls_in_any_order() -> None:
    data = header() + b"".join(
        [
            message("a", None, "assistant", [call("c1", "one"), call("c2", "two")]),
            message("b", "a", "toolResult", "second", toolCallId="c2", toolName="two"),
            message("c", "b", "toolResult", "first", toolCallId="c1", toolName="one"),
        ]
    )
    page = exported(data, "html")
    assert page.count("<article") == 1
    assert page.index("first") < page.index("second")


def test_a_result_without_a_call_is_shown_alone() -> None:
    page = Page(exported(header() + message("a", None, "toolResult", "alone", toolCallId="x", toolName="t"), "html"))
    assert "Result of t" in page.text
    assert "alone" in page.text


def test_with_all_branches_others_have_sections_and_the_tree_links_them() -> None:
    page = exported(EVERYTHING, "html", "all")
    assert '<h2 id="branch-1">Branch from <a href="#entry-e6">e6</a>: the road not taken</h2>' in page
    tree = page[page.index('<nav id="tree"') :]
    assert 'href="#branch-1"' in tree
    assert tree.index("the fork") < tree.index("the road not taken") < tree.index("◀ here")


def test_with_the_active_branch_only_the_names_of_others_are_shown() -> None:
    page = Page(exported(EVERYTHING, "html"))
    assert "what came of it" not in page.text
    assert "the road not taken (not in this page)" in page.text


def test_the_policy_allows_only_our_own_style_and_script() -> None:
    page = exported(EVERYTHING, "html")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; img-src data:;")
    for tag in ("style", "script"):
        bodies = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert len(bodies) == 1
        digest = base64.b64encode(hashlib.sha256(bodies[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]
    assert "unsafe" not in policy[1]


def test_the_page_asks_for_nothing_from_the_network() -> None:
    page = exported(EVERYTHING, "html", "all")
    assert not re.search(r"(?:https?:)?//[a-z]", re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL))
    assert "@import" not in page
    assert "url(" not in page


HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "]]><svg onload=alert(1)>",
    "<!-- --><iframe src='javascript:alert(1)'>",
    "\"'><a href=javascript:alert(1)>x</a>",
    "</style></title></pre></details></article></main>",
    "&lt;b&gt; stays as it was written",
]


@pytest.mark.parametrize("words", HOSTILE)
def test_content_never_becomes_markup(words: str) -> None:
    data = b"".join(
        [
            header(sessiontree=1, title=words, cwd=words, id=words),
            message("a", None, "user", [text(words), {"type": words, "x": words}]),
            message("b", "a", "assistant", [text(words), call(words, words, **{words: words})], model=words),
            message("c", "b", "toolResult", words, toolCallId=words, toolName=words),
            message(words, "c", "assistant", [{"type": "image", "data": words, "mimeType": "image/png"}]),
            message("e", words, "user", [{"type": "image", "data": PIXEL, "mimeType": words}]),
            entry("label", "f", "e", targetId="e", label=words),
            entry("compaction", "g", "e", summary=words, firstKeptEntryId=words, timestamp=words),
            entry(words, "h", "g", data=words),
            entry("custom", "i", "h", customType=words, data={words: words}),
            words.encode() + b"\n",
        ]
    )
    page = Page(exported(data, "html", "all"))
    assert page.text.count(" ".join(words.split())) >= 8


def test_invisible_marks_become_visible_and_broken_characters_are_replaced() -> None:
    words = "a\u202eb\u2066c\x00d\x1b]0;title\x07e\x1b[31mred\x1b[0m \ud83d\ttab"
    raw = header() + message("a", None, "user", "@").replace(b'"@"', json.dumps(words).encode())
    page = exported(raw, "html")
    assert "a\\u202eb\\u2066c\\x00d" in page
    assert "ered " in page
    assert "\ufffd\ttab" in page
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", page)


def test_a_line_of_a_megabyte_is_shown_completely() -> None:
    line = "x<" * 500_000
    assert line.replace("<", "&lt;") in exported(header() + message_line("a", None, line), "html")


def test_only_valid_images_of_four_types_are_shown() -> None:
    def picture(mime: str, data: str) -> str:
        block = {"type": "image", "data": data, "mimeType": mime}
        return exported(header() + message("a", None, "user", [block]), "html")

    for mime in ("image/png", "image/jpeg", "image/gif", "image/webp"):
        assert f'src="data:{mime};base64,{PIXEL}"' in picture(mime, PIXEL)
    for mime, data in (
        ("image/svg+xml", PIXEL),
        ("text/html", PIXEL),
        ("image/png", 'x" onerror="y'),
        ("image/png", ""),
    ):
        page = picture(mime, data)
        assert "<img" not in page
        assert "not shown" in page


def test_unusual_ids_do_not_collide() -> None:
    page = Page(
        exported(header() + message_line("a b") + message_line("a.b", "a b") + message_line("a<b", "a.b"), "html")
    )
    assert len([id for id in page.ids if id.startswith("entry-a")]) == 3


def test_an_entry_that_was_replaced_is_shown_and_marked() -> None:
    data = header() + message_line("a", None, "the earlier one") + message_line("a", None, "the later one")
    page = Page(exported(data, "html", "all"))
    assert "the earlier one" in page.text
    assert "replaced by a later entry" in page.text


def test_a_session_without_entries_has_a_page() -> None:
    assert "before its first entry" in Page(exported(header(sessiontree=1), "html")).text


def test_thousands_of_nested_branches_do_not_exhaust_the_stack() -> None:
    lines = [message_line("r0")]
    for at in range(2000):
        lines += [message_line(f"r{at + 1}", f"r{at}"), message_line(f"x{at}", f"r{at}")]
    page = exported(header() + b"".join(lines), "html", "all")
    assert page.count("<article") == 4001


def test_the_page_is_rendered_in_pieces() -> None:
    session = opened(header() + b"".join(chain(2000, "word " * 200)))
    sizes = [len(piece) for piece in export(session, "html")]
    assert len(sizes) > 10
    assert max(sizes) < 400_000
