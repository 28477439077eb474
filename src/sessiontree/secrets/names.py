"""Names that indicate secrets: of environment variables, JSON fields and files."""

from __future__ import annotations

import fnmatch
import functools
import os
import re
from collections.abc import Sequence

from sessiontree.secrets.patterns import is_placeholder

_WORDS = frozenset(
    [
        "apikey",
        "auth",
        "bearer",
        "cookie",
        "credential",
        "credentials",
        "creds",
        "jwt",
        "key",
        "keys",
        "pass",
        "passphrase",
        "passwd",
        "password",
        "pat",
        "pw",
        "pwd",
        "secret",
        "secrets",
        "sshpass",
        "token",
        "tokens",
    ]
)
_ENDINGS = ("apikey", "password", "passwd", "passphrase", "secret", "token")
_HARMLESS_VARIABLES = frozenset({"SSH_AUTH_SOCK", "GPG_AGENT_INFO", "PWD"})

_FIELD = re.compile(
    r"(?:[a-z0-9]{0,24}[_-]){0,3}(?:pass(?:word|wd|phrase)|pwd|(?:client[_-]?)?secret|"
    r"(?:auth|access|refresh|api|bearer|bot)?[_-]?token|"
    r"(?:api|access|auth|signing|encryption|private|secret|master)[_-]?(?:access[_-]?)?key)|authorization",
    re.IGNORECASE,
)

_FILES = (
    ".env",
    ".env.*",
    "*.env",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".htpasswd",
    ".pgpass",
    ".my.cnf",
    ".dockercfg",
    ".s3cfg",
    ".boto",
    ".vault-token",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "*.ppk",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "credentials",
    "credentials.json",
    "auth.json",
    "token.json",
    "tokens.json",
    "secret.txt",
    "secrets",
    "secrets.*",
    "password.txt",
    "passwords.*",
    "service-account*.json",
    "*.tfvars",
    "*.tfstate",
)
_FOLDERS = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".password-store"})
"""Folders in which every file counts as a secret."""
_SETTINGS = (".docker/config.json",)
"""Files of settings with tokens."""
_GIT_SETTINGS = ("config", "config.worktree")
"""Git's settings in a repository, also in those of its submodules: addresses of remotes may contain tokens."""
_BACKUP = re.compile(r"(?:~|\.(?:bak|backup|old|orig|save|sw[a-p]))+\Z")
"""What editors and people append to the name of a copy."""
_PUBLIC_FILES = ("*.example", "*.sample", "*.template", "*.dist", "*.pub", "known_hosts")


@functools.lru_cache(maxsize=1_024)
def is_secret_variable(name: str) -> bool:
    """Whether an environment variable holds a secret, by its name."""
    if name in _HARMLESS_VARIABLES:
        return False
    words = re.split(r"[^a-z0-9]+", name.lower())
    return any(word in _WORDS or word.endswith(_ENDINGS) for word in words)


def is_secret_field(name: str, value: str) -> bool:
    """Whether a JSON field holds a secret, by its name.

    Stricter than for variables: fields such as `keys`, `tokens` and `pass` usually hold something else.
    """
    if len(value) < 4 or len(name) > 100 or is_placeholder(value):
        return False
    return _FIELD.fullmatch(name) is not None


def has_secret_name(path: str) -> bool:
    """Whether a file is called like one that holds secrets, such as `.env` or `id_rsa`, or is in a folder for them."""
    *folders, name = path.lower().split(os.sep)
    if _is_secret_file(_BACKUP.sub("", name)):
        return True
    if "/".join((*folders[-1:], name)) in _SETTINGS:
        return True
    if name in _GIT_SETTINGS and any(folder.endswith(".git") for folder in folders):
        return True
    return not _FOLDERS.isdisjoint(folders) and not _is_like(name, _PUBLIC_FILES)


@functools.lru_cache(maxsize=4_096)
def _is_secret_file(name: str) -> bool:
    return not _is_like(name, _PUBLIC_FILES) and _is_like(name, _FILES)


def _is_like(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
