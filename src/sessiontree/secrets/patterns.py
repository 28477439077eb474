"""Patterns of secrets in text: one rule per kind, as a table. Pure.

A rule has needles, one of which must occur before its pattern is tried: a plain substring search rules out nearly every
text. Every pattern runs in linear time. It starts at a word boundary, so it cannot restart within a run it already
tried. It repeats possessively or with a limit, and never searches for an end that may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Literal

from msgspec import Struct

Kind = Literal["key", "private key", "password", "e-mail address", "home path"]
Span = tuple[int, int]

# A secret begins at a word boundary. In escaped text (`\nsk-...`, `%3Dsk-...`) a letter may precede it.
_EDGE = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
_QUOTES = r"""["'`\\]{0,4}"""
_SEPARATOR = rf"{_QUOTES}\s{{0,3}}(?::=|=>|==?|:)\s{{0,3}}"


class Rule(Struct, frozen=True):
    """One kind of secret and how to find it. The secret is the last group of the pattern, or the whole match."""

    name: str
    kind: Kind
    needles: tuple[str, ...]
    pattern: str
    is_secret: Callable[[str], bool] | None = None
    ignore_case: bool = False
    find: Callable[[str], Iterator[Span]] | None = None
    """For secrets that no linear-time pattern can find."""

    def spans(self, text: str) -> Iterator[Span]:
        """Iterate over the secrets in a text that contains one of the needles."""
        if self.find is not None:
            yield from self.find(text)
            return
        for found in _compiled(self.pattern, self.ignore_case).finditer(text):
            group = found.lastindex or 0
            if self.is_secret is None or self.is_secret(found[group]):
                yield found.span(group)


@cache
def _compiled(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE if ignore_case else 0)


@cache
def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Conditions on the value


def looks_random(text: str) -> bool:
    """Whether a text mixes letters and digits in a way that prose does not."""
    letters = sum(map(str.isalpha, text))
    return letters > 0 and any(map(str.isdigit, text)) and len(set(text)) > 5


_PLACEHOLDER_WORDS = """
    string str text number integer int boolean bool null none nil true false undefined object any optional required
    hidden unset empty missing invalid expired value password passwd secret token key example redacted masked environ
    getenv process.env field input default
"""
_PLACEHOLDERS = ("<", "$", "{", "%", "*", "[", "xxx", "XXX", "...", "your", "YOUR", "~")


def is_placeholder(text: str) -> bool:
    """Whether a value only marks where a secret would be, such as `<token>` or `xxx`."""
    return text.startswith(_PLACEHOLDERS) or text.lower() in _words(_PLACEHOLDER_WORDS) or len(set(text)) < 3


def is_quoted_secret(text: str) -> bool:
    return not is_placeholder(text)


def is_bare_secret(text: str) -> bool:
    """Whether an unquoted value is a secret, rather than an expression, a type or a token count."""
    if is_placeholder(text) or text.replace(".", "").replace(",", "").isdecimal():
        return False
    if any(map(str.isdigit, text)):
        return not re.match(r"[a-z_]+\.[a-z_]", text)
    return text.isalpha() and len(text) >= 8 and not re.search(r"pass|secret|token|key|auth", text, re.IGNORECASE)


_FILE_ENDINGS = """
    png jpg jpeg gif webp svg js mjs cjs ts tsx jsx css scss json txt html htm xml tgz gz zip tar lock go toml yaml yml
    service socket timer target mount slice scope whl jar exe dll so lib
"""


def is_mail_address(text: str) -> bool:
    """Excludes `pkg@1.2.3.tgz`, `icon@2x.png`, `getty@tty1.service` and the shared user `git@` of git servers."""
    local, _, domain = text.rpartition("@")
    before, _, last = domain.rpartition(".")
    return (
        last.lower() not in _words(_FILE_ENDINGS)
        and not re.fullmatch(r"v?\d+(?:\.\d+)+(?:-\w+)?", before)
        and local != "git"
    )


def is_home(text: str) -> bool:
    return re.split(r"[\\/]+", text)[-1] not in ("Shared", "Public", "Default", "All", "...", "…")


_PEM_BEGIN = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_PEM_END = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_PEM_BODY = r"(?:(?:[\s\"'+,]|\\[nrt])*+[A-Za-z0-9+/=]{16,}+)*+"


def _find_private_keys(text: str) -> Iterator[Span]:
    """Find keys from BEGIN to END; a truncated key as far as it goes. A BEGIN line without a body is not a key."""
    begins = list(_compiled(_PEM_BEGIN, False).finditer(text))
    ends = iter(_compiled(_PEM_END, False).finditer(text))
    end = next(ends, None)
    for number, begin in enumerate(begins):
        while end is not None and end.start() < begin.end():
            end = next(ends, None)
        following = begins[number + 1].start() if number + 1 < len(begins) else len(text)
        if end is not None and end.start() < following:
            yield begin.start(), end.end()
            continue
        body = _compiled(_PEM_BODY, False).match(text, begin.end())
        if body is not None and body.end() > begin.end():
            yield begin.start(), body.end()


_KINDS_OF_KEY = tuple(
    word + joint
    for word in ("api", "access", "auth", "signing", "encryption", "private", "secret", "master", "account")
    for joint in ("_", "-", "", " ")
)
_NAME = (
    r"(?:passw(?:or)?d|passphrase|pwd|secret|token|credentials?|key)"
    r"(?:[_-]?(?:access[_-]?key|base|value|key|[0-9]{1,2})){0,2}"
)
_QUOTED = rf"""{_NAME}{_SEPARATOR}\\{{0,3}}["'`]([^\s"'`\\]{{4,256}})\\{{0,3}}["'`]"""
_BARE = rf"""{_NAME}{_SEPARATOR}([^\s"'`,;&<>(){{}}\[\]\\|]{{5,256}}+)(?![(\[{{])"""


def _find_assignments(text: str, stems: tuple[str, ...]) -> Iterator[Span]:
    """Find values after names like `password=` and `"api_key": `. Names are searched first: regexes are slow."""
    low = text.lower()
    if len(low) != len(text):  # `lower` turns a few letters into two, which would shift positions
        low = "".join(letter.lower() if letter.isascii() else letter for letter in text)
    quoted, bare = _compiled(_QUOTED, True), _compiled(_BARE, True)
    for stem in stems:
        at = low.find(stem)
        while at >= 0:
            if stem != "key" or low.endswith(_KINDS_OF_KEY, max(0, at - 12), at):
                found, is_secret = quoted.match(text, at), is_quoted_secret
                if found is None:
                    found, is_secret = bare.match(text, at), is_bare_secret
                if found is not None and is_secret(found[1]):
                    yield found.span(1)
                    at = found.end(1) - len(stem)
            at = low.find(stem, at + len(stem))


def _key(name: str, needles: str, pattern: str, is_secret: Callable[[str], bool] | None = None) -> Rule:
    return Rule(name, "key", tuple(needles.split()), _EDGE + pattern, is_secret)


RULES: tuple[Rule, ...] = (
    Rule("private-key", "private key", ("PRIVATE KEY",), "", find=_find_private_keys),
    Rule("age-key", "private key", ("AGE-SECRET-KEY-",), r"AGE-SECRET-KEY-1[A-Z0-9]{50,}+"),
    _key("anthropic-key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{12,}+"),
    _key("openai-key", "sk-", r"sk-[A-Za-z0-9_-]{20,}+", looks_random),
    _key("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{20,}+"),
    _key("github-fine-grained-token", "github_pat_", r"github_pat_[A-Za-z0-9_]{20,}+"),
    _key(
        "gitlab-token",
        "glpat- gldt- glrt- glcbt- glptt- glft- gloas-",
        r"gl(?:pat|dt|rt|cbt|ptt|ft|oas)-[A-Za-z0-9_.-]{16,}+",
    ),
    _key(
        "slack-token",
        "xoxa- xoxb- xoxc- xoxe- xoxo- xoxp- xoxr- xoxs- xoxe. xapp-",
        r"(?:xox[abceoprs]|xapp)-[A-Za-z0-9-]{10,}+",
    ),
    _key("slack-webhook", "hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9/_-]{20,}+)"),
    _key("aws-key-id", "AKIA ASIA ABIA ACCA", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _key(
        "aws-secret-after-id",
        "AKIA ASIA",
        r"(?:AKIA|ASIA)[A-Z0-9]{16}[^A-Za-z0-9/+]{1,20}([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
    ),
    Rule(
        "aws-secret",
        "key",
        ("ecret",),
        rf"secret[_-]?(?:access[_-]?)?key{_SEPARATOR}{_QUOTES}([A-Za-z0-9/+]{{40}})(?![A-Za-z0-9/+=])",
        ignore_case=True,
    ),
    _key("google-key", "AIza", r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    _key("google-oauth", "GOCSPX- ya29.", r"(?:GOCSPX-|ya29\.)[A-Za-z0-9_-]{20,}+"),
    _key("stripe-key", "_live_ _test_", r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}+"),
    _key("webhook-secret", "whsec_", r"whsec_[A-Za-z0-9+/=]{20,}+"),
    _key("npm-token", "npm_", r"npm_[A-Za-z0-9]{30,}+"),
    _key("pypi-token", "pypi-", r"pypi-[A-Za-z0-9_-]{30,}+", looks_random),
    _key(
        "hugging-face-token", "hf_", r"hf_[A-Za-z0-9]{20,}+", lambda text: not text[3:].islower() or looks_random(text)
    ),
    _key("sendgrid-key", "SG.", r"SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+"),
    _key("digitalocean-token", "do_v1_ dop_v1_ doo_v1_ dor_v1_", r"do[por]?_v1_[a-f0-9]{32,}+"),
    _key("model-provider-key", "gsk_ xai- r8_ pplx- nvapi-", r"(?:gsk_|xai-|r8_|pplx-|nvapi-)[A-Za-z0-9_-]{30,}+"),
    _key("vault-token", "hvs. hvb.", r"hv[sb]\.[A-Za-z0-9_-]{20,}+"),
    _key("databricks-token", "dapi", r"dapi[a-f0-9]{32}(?![a-z0-9])"),
    _key("telegram-token", ":AA", r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])"),
    _key("jwt", "eyJ", r"eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+"),
    Rule(
        "authorization-header",
        "key",
        ("uthorization", "UTHORIZATION"),
        rf"authorization{_SEPARATOR}{_QUOTES}(?:(?:bearer|basic|token|apikey)\s{{1,3}})?([A-Za-z0-9._~+/=-]{{8,}}+)",
        lambda text: not is_placeholder(text) and (len(text) > 15 or looks_random(text)),
        ignore_case=True,
    ),
    Rule(
        "bearer-token",
        "key",
        ("earer ", "EARER "),
        r"\bbearer {1,3}([A-Za-z0-9._~+/=-]{12,}+)",
        looks_random,
        ignore_case=True,
    ),
    Rule(
        "password-assignment",
        "password",
        ("assw", "ASSW", "assp", "ASSP", "pwd", "PWD"),
        "",
        find=lambda text: _find_assignments(text, ("passw", "passp", "pwd")),
    ),
    Rule(
        "key-assignment",
        "key",
        ("ecret", "ECRET", "key", "KEY", "Key", "oken", "OKEN", "redential", "REDENTIAL"),
        "",
        find=lambda text: _find_assignments(text, ("secret", "token", "credential", "key")),
    ),
    Rule(
        "password-option",
        "password",
        ("--pass", "--token", "--secret", "--api", "--auth", "--client"),
        r"""--(?:password|passphrase|token|secret|api-?key|api-token|auth-token|client-secret)\s{1,3}["']?([^\s"'-][^\s"']{3,256})""",
        is_quoted_secret,
    ),
    Rule(
        "user-option",
        "password",
        ("-u ", "--user "),
        r"""(?<!\S)(?:-u|--user) {1,3}["']?[^\s:"'/]{1,64}:([^\s"':/]{4,256})""",
        is_quoted_secret,
    ),
    Rule(
        "url-credentials",
        "password",
        ("://",),
        r"""://[^\s/:@"'<>\\`]{0,64}:([^\s/@"'<>\\`]{1,256})@""",
        is_quoted_secret,
    ),
    Rule(
        "e-mail",
        "e-mail address",
        ("@",),
        r"(?:(?<![\w.+%\\-])|(?<=\\[nrt]))[A-Za-z0-9_][\w.+%-]{0,63}+@(?:[A-Za-z0-9-]{1,63}\.){1,6}[A-Za-z]{2,24}(?![\w@-])",
        is_mail_address,
    ),
    Rule(
        "home-path",
        "home path",
        ("/home/", "/Users/"),
        r"""(?<![\w.~-])/(?:home|Users)/[^\s/\\"'`<>|:;,*?$(){}\[\]]{1,64}""",
        is_home,
    ),
    Rule(
        "windows-home-path",
        "home path",
        (":\\Users", ":/Users", ":\\\\Users", ":\\users", ":/users"),
        r"""(?<![A-Za-z0-9])[a-z]:(?:\\{1,4}|/)users(?:\\{1,4}|/)"""
        r"""(?:[^\s\\/"'`<>|:*?]{1,32}(?: [^\s\\/"'`<>|:*?]{1,32}){0,3}(?=\\)|[^\s\\/"'`<>|:*?,;)]{1,64})""",
        is_home,
        ignore_case=True,
    ),
    Rule(
        "folder-name-of-home",
        "home path",
        ("/-home-", "/-Users-"),
        r"(?<=/)-(?:home|Users)-[A-Za-z0-9_]{1,64}",
    ),
)
"""In order of precedence: where two rules match the same span, the first one names it."""
