"""Redaction: secrets are masked, other text is kept, and hostile text takes linear time."""

from __future__ import annotations

import json
import time

import pytest

from sessiontree.core.messages import Image, Text, User
from sessiontree.secrets.redact import Redactor
from tests.builders import header, opened
from tests.export.conversations import PIXEL, call, exported, message, text

SECRETS = {
    "anthropic-key": "sk-ant-api03-abcDEF123456789012345",
    "openai-key": "sk-proj-abcDEF1234567890abcdefgh",
    "github-token": "ghp_" + "a1B2" * 9,
    "github-fine-grained-token": "github_pat_11ABCDEFG0abcdefghij_klmnop",
    "gitlab-token": "glpat-abcDEF1234567890abcd",
    "slack-token": "xoxb-1234567890-abcdefGHIJ",
    "aws-key-id": "AKIAIOSFODNN7EXAMPLE",
    "google-key": "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "stripe-key": "sk_live_abcdefghij1234567890",
    "npm-token": "npm_" + "a1" * 18,
    "pypi-token": "pypi-AgEIcHlwaS5vcmcCJDEyMzQ1Njc4OTAxMjM0NTY3",
    "hugging-face-token": "hf_abcdefghijABCDEFGHIJ12345678901234",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijk",
    "private-key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEabcdefghijklmnop\n-----END RSA PRIVATE KEY-----",
    "e-mail": "ada.lovelace+x@mail.example.org",
}


@pytest.mark.parametrize("rule", SECRETS)
def test_each_rule_masks_its_secret_alone_in_prose_and_in_escaped_text(rule: str) -> None:
    secret = SECRETS[rule]
    for around in ("{}", "it is {}, I think", '"{}"', "x={};", "line\\n{}\\nline", "({})"):
        redactor = Redactor()
        masked = redactor.text(around.format(secret))
        assert secret not in masked
        assert masked.startswith(around.split("{}")[0])
        assert dict(redactor.by_rule) == {rule: 1}


@pytest.mark.parametrize(
    ("given", "masked"),
    [
        ("password=hunter2", "password=[password 1]"),
        ('"password": "hunter2"', '"password": "[password 1]"'),
        ('\\"password\\": \\"hunter2\\"', '\\"password\\": \\"[password 1]\\"'),
        ("PGPASSWORD=correcthorse psql", "PGPASSWORD=[password 1] psql"),
        ("api_key: abcd1234efgh", "api_key: [key 1]"),
        ("const apiKey = 'abcd-1234';", "const apiKey = '[key 1]';"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "aws_secret_access_key = [key 1]"),
        ("Authorization: Bearer abcdef1234567890", "Authorization: Bearer [key 1]"),
        ("authorization: Basic dXNlcjpwYXNzd29yZA==", "authorization: Basic [key 1]"),
        ("postgres://bob:s3cret@db/x", "postgres://bob:[password 1]@db/x"),
        ("mysql --password hunter2", "mysql --password [password 1]"),
        ("curl -u bob:hunter2 x", "curl -u bob:[password 1] x"),
        ("/home/ada/src and /Users/bob", "~/src and ~"),
        ("C:\\Users\\Carol\\x C:\\\\Users\\\\Dave Smith\\\\x", "~\\x ~\\\\x"),
        ("/x/.claude/projects/-home-ada-proj", "/x/.claude/projects/~-proj"),
    ],
)
def test_values_after_a_name_are_masked(given: str, masked: str) -> None:
    assert Redactor().text(given) == masked


@pytest.mark.parametrize(
    "words",
    [
        "commit e5b7c1d2a3f4e5b7c1d2a3f4e5b7c1d2a3f4e5b7",
        "019c0000-0000-7000-8000-00000000000a",
        "sha256:" + "ab" * 32,
        "user@v1.2",
        "lodash@4.17.21",
        "lodash@4.17.21.tgz",
        "icon@2x.png",
        "actions/checkout@v4",
        "getty@tty1.service",
        "git@github.com:o/r.git",
        "@pytest.mark.parametrize",
        "\\n@app.get('/x')",
        "sk-folding-cube-animation-delay-long",
        "def f(password: str, token: str | None = None)",
        "password = input('x')",
        "token = get_token()",
        "connect(password=password)",
        "token=self.token2",
        "const token = parseToken(input);",
        "api_key=os.environ['X']",
        "API_KEY=${API_KEY}",
        "password: <your password>",
        "max_tokens=4096, token: 12345678",
        "Bearer authentication is required here",
        "the secret of it, the key to it",
        "primary_key=True, keyboard: qwerty12345, monkey=banana12345",
        "hf_hub_download(repo_id), npm_config_registry",
        "-----BEGIN PRIVATE KEY----- is its first line",
        "https://example.com/home/page, /homeassistant/x, ~/src",
    ],
)
def test_ordinary_words_are_kept(words: str) -> None:
    redactor = Redactor("/root")
    assert redactor.text(words) == words
    assert redactor.report == "masked nothing"


def test_the_same_secret_gets_the_same_placeholder_and_counts_once() -> None:
    redactor = Redactor()
    first, second = SECRETS["anthropic-key"], SECRETS["github-token"]
    assert redactor.text(f"{first} {second} {first} a@example.com") == "[key 1] [key 2] [key 1] [e-mail address 1]"
    assert redactor.text(second) == "[key 2]"
    assert redactor.counts == {"key": 2, "e-mail address": 1}
    assert redactor.report == "masked 2 keys, 1 e-mail address"


def test_the_users_home_folder_is_masked_wherever_it_is() -> None:
    redactor = Redactor("/srv/people/ada")
    assert (
        redactor.text("/srv/people/ada/x /srv/people/adam x/srv/people/ada") == "~/x /srv/people/adam x/srv/people/ada"
    )


def test_a_truncated_private_key_is_masked() -> None:
    cut = "-----BEGIN PRIVATE KEY-----\nMIIEabcdefghijklmnopqr\nMIIEabcdefghijklmnopqr\nand then words"
    assert Redactor().text(cut) == "[private key 1]\nand then words"


def test_nested_values_are_masked_and_clean_values_returned_unchanged() -> None:
    redactor = Redactor()
    secret = SECRETS["slack-token"]
    assert redactor.value({"a": [{"b": (secret,)}]}) == {"a": [{"b": ("[key 1]",)}]}
    assert redactor.value({secret: 1}) == {"[key 1]": 1}
    assert redactor.value({"password": "plain", "api_key": "also plain"}) == {
        "password": "[password 1]",
        "api_key": "[key 2]",
    }
    assert redactor.value(User(content=(Text(secret),))) == User(content=(Text("[key 1]"),))
    clean = {"a": ["nothing to see"]}
    assert redactor.value(clean) is clean


def test_images_and_signatures_are_unchanged() -> None:
    redactor = Redactor()
    picture = Image(data="AKIAIOSFODNN7EXAMPLE")
    assert redactor.value(picture) is picture
    fields = {"type": "image", "mimeType": "image/png", "data": "AKIAIOSFODNN7EXAMPLE"}
    assert redactor.value(fields) == fields
    assert redactor.value({"thinkingSignature": SECRETS["jwt"]}) == {"thinkingSignature": SECRETS["jwt"]}


def test_a_line_stays_a_line_and_a_clean_one_stays_byte_for_byte() -> None:
    redactor = Redactor()
    assert redactor.line(b'{"a" : "clean"}') == b'{"a" : "clean"}'
    assert redactor.line(b'{"a" : "ada@example.com"}') == b'{"a":"[e-mail address 1]"}'
    assert redactor.line(b"torn ada@example.com \xff") == b"torn [e-mail address 1] \xff"


@pytest.mark.parametrize("format", ["html", "md", "text", "json", "jsonl"])
@pytest.mark.parametrize("branch", ["active", "all"])
def test_no_secret_gets_into_any_format_from_anywhere(format: str, branch: str) -> None:
    secret, home = SECRETS["anthropic-key"], "/home/ada"
    data = b"".join(
        [
            header(sessiontree=1, title=f"about {secret}", cwd=f"{home}/x"),
            message("a", None, "user", [text(f"my key is {secret}"), {"type": "odd", "x": secret}]),
            message(
                "b", "a", "assistant", [{"type": "thinking", "thinking": secret}, call("c", "bash", env={"K": secret})]
            ),
            message("c", "b", "toolResult", [text(f"{home} {secret}")], toolCallId="c", toolName="bash"),
            json.dumps({"type": "label", "id": "d", "parentId": "c", "targetId": "c", "label": secret}).encode()
            + b"\n",
            b"damaged " + secret.encode() + b"\n",
            message("e", "a", "user", f"another branch {secret}"),
        ]
    )
    redactor = Redactor()
    document = exported(opened(data), format, branch, redactor)  # type: ignore[arg-type]
    assert secret not in document
    assert home not in document
    assert redactor.counts["key"] == 1
    assert "[key 1]" in document or "\\[key 1\\]" in document


def test_an_image_survives_redaction() -> None:
    block = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    assert PIXEL in exported(header() + message("a", None, "user", [block]), "html", redactor=Redactor())


HOSTILE: dict[str, tuple[str, str, str]] = {
    "letters": ("", "a", ""),
    "ats": ("", "a@", ""),
    "dots": ("", "a.", "@"),
    "domains": ("a@", "a.", ""),
    "tokens": ("", "eyJ", ""),
    "keys": ("", "sk-", ""),
    "begins": ("", "-----BEGIN PRIVATE KEY-----\n", ""),
    "half keys": ("", "-----BEGIN PRIVATE KEY-----" + " \\n" * 20, ""),
    "assignments": ("", "password=", ""),
    "backslashes": ("password", "\\", ""),
    "spaces": ("password", " ", ""),
    "long value": ("password: '", "x", ""),
    "schemes": ("", "://a:", ""),
    "homes": ("", "/home/", ""),
    "windows": ("", "c:\\users\\", ""),
    "secret keys": ("", "secret_key", ""),
    "bearers": ("", "authorization: bearer ", ""),
}


@pytest.mark.parametrize("size", [200_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_takes_linear_time(name: str, size: int) -> None:
    before, unit, after = HOSTILE[name]
    started = time.process_time()
    Redactor("/home/ada").text(before + unit * (size // len(unit)) + after)
    assert time.process_time() - started < size / 125_000, "linear takes a tenth of this; quadratic, minutes"
