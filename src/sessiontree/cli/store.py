"""Manage a database of sessions, such as PostgreSQL.

ACTION is one of:

    status              show what it holds
    upgrade             create or upgrade its tables
    verify              find damage
    vacuum              merge the small rows of appends, remove old backups
    tenants             list users, who cannot see each other's data
    add-tenant NAME     add one, or change the quota (default: no limit)
    remove-tenant NAME  remove one that has no sessions
    blobs [URL]         put large content in an object store (default: here)
    audit [on|off]      show the latest writes; turn the audit log on or off
    tokens              list the tokens for `sessiontree serve --users`
    add-token TENANT    create one, with access to a tenant
    revoke-token ID     revoke one
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.errors import UsageError
from sessiontree.stores.contract import (
    AccessToken,
    MaintainedRepository,
    SessionRepository,
    TenantRepository,
    TenantStatus,
    TokenRepository,
)
from sessiontree.stores.repositories import open_repository
from sessiontree.views.text import clean, plural

EXAMPLES = """examples:
  sessiontree store add-tenant alice --quota 10GB --home postgresql://db.example/team
  sessiontree store add-token alice --scope write --note "Alice, laptop" --home postgresql://db/team"""

T = TypeVar("T")

_DAMAGED = 3
_SHOWN = 50
_MAINTENANCE = ("status", "upgrade", "verify", "vacuum")
_TENANTS = ("tenants", "add-tenant", "remove-tenant", "blobs", "audit")
_TOKENS = ("tokens", "add-token", "revoke-token")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=(*_MAINTENANCE, *_TENANTS, *_TOKENS), metavar="ACTION", help="what to do")
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="the tenant; for blobs: the URL of an object store; for audit: on or off; for revoke-token: its id",
    )
    parser.add_argument(
        "--scope", choices=("read", "write"), default="read", help="for add-token: what it allows (default: read)"
    )
    parser.add_argument(
        "--note", metavar="TEXT", default="", help="for add-token: whose token it is, shown by `tokens`"
    )
    parser.add_argument(
        "--quota",
        metavar="SIZE",
        help="for add-tenant: the bytes it may store, such as 500MB or 10GB",
    )
    parser.add_argument(
        "--days", type=float, default=30.0, metavar="N", help="for vacuum: keep backups this long (default: 30)"
    )
    parser.add_argument(
        "--audit-days",
        type=float,
        metavar="N",
        help="for vacuum: drop months of the audit log that ended N days ago",
    )


def run(options: Options) -> int | None:
    repository = open_repository(options.home)
    if options.action in _TOKENS:
        _manage_tokens(repository, options)
        return None
    if options.action in _TENANTS:
        _manage_tenants(repository, options)
        return None
    if not isinstance(repository, MaintainedRepository):
        raise UsageError(
            f"{repository.home}: a folder of sessions has no tables; use `sessiontree doctor` and `sessiontree clean`, "
            "or name a database with --home"
        )
    if options.days < 0:
        raise UsageError(f"--days {options.days:g}: expected 0 or more")
    match options.action:
        case "status":
            _print_status(repository, options)
        case "upgrade":
            _upgrade(repository, options)
        case "verify":
            return _verify(repository, options)
        case _:
            _vacuum(repository, options)
    return None


def _manage_tenants(repository: SessionRepository, options: Options) -> None:
    if not isinstance(repository, TenantRepository):
        raise UsageError(f"{repository.home}: a folder of sessions has no tenants; name a database with --home")
    if options.action == "tenants":
        _print_all(repository, options, repository.tenants(), _tenant_line)
        return
    if options.action == "blobs":
        repository.set_blob_store(options.name or "")
        where = clean(options.name) if options.name else "the database"
        _print_done(repository, options, {"blobs": options.name or None}, f"new blobs are stored in {where}")
        return
    if options.action == "audit":
        _audit(repository, options)
        return
    if not options.name:
        raise UsageError(f"store {options.action}: name the tenant")
    if options.action == "remove-tenant":
        repository.remove_tenant(options.name)
        _print_done(repository, options, {"removed": options.name}, f"the tenant {options.name} was removed")
        return
    from sessiontree.stores.object_blobs import parse_size

    address = repository.add_tenant(options.name, quota=parse_size(options.quota) if options.quota else None)
    if options.json:
        output.print_json({"tenant": options.name, "home": address})
    else:
        output.print_lines([clean(address)])


def _print_done(repository: SessionRepository, options: Options, fields: dict[str, object], done: str) -> None:
    """Report what an action without other output has done."""
    if options.json:
        output.print_json({"home": repository.home, **fields})
    else:
        stderr.print_line(f"{clean(repository.home)}: {done}")


def _print_all(
    repository: SessionRepository, options: Options, found: Sequence[T], line_of: Callable[[T], str]
) -> None:
    """Print what an action lists, one on each line."""
    if options.json:
        output.print_json({"home": repository.home, options.action: msgspec.to_builtins(found)})
    else:
        output.print_lines(map(line_of, found))


def _manage_tokens(repository: SessionRepository, options: Options) -> None:
    if not isinstance(repository, TokenRepository):
        raise UsageError(f"{repository.home}: a folder of sessions has no tokens; name a database with --home")
    if options.action == "tokens":
        _print_all(repository, options, repository.tokens(), _token_line)
        return
    if not options.name:
        raise UsageError(f"store {options.action}: name the {'tenant' if options.action == 'add-token' else 'token'}")
    if options.action == "revoke-token":
        repository.revoke_token(options.name)
        done = f"the token {clean(options.name)} was revoked"
        _print_done(repository, options, {"revoked": options.name}, done)
        return
    token = repository.add_token(options.name, scope=options.scope, note=options.note)
    if options.json:
        output.print_json({"tenant": options.name, "scope": options.scope, "token": token})
    else:
        output.print_lines([token])
        stderr.print_line("the token is shown only once; the database stores its hash")


def _token_line(token: AccessToken) -> str:
    state = f"revoked {token.revoked}" if token.revoked else "valid"
    return clean(f"{token.id}  {token.tenant:20} {token.scope:5}  {token.created}  {state}  {token.note}".rstrip())


def _audit(repository: TenantRepository, options: Options) -> None:
    if options.name in ("on", "off"):
        repository.set_audit(enabled=options.name == "on")
        is_on = options.name == "on"
        _print_done(repository, options, {"audit": is_on}, f"the audit log is {options.name}")
        return
    if options.name:
        raise UsageError(f"store audit {options.name}: expected on, off or nothing")
    records = repository.audit(limit=_SHOWN)
    if options.json:
        output.print_json({"home": repository.home, "writes": msgspec.to_builtins(records)})
        return
    output.print_lines(
        clean(f"{one.at}  {one.action:9} {one.session}  {one.size:,} bytes  {one.actor} {one.tenant}".rstrip())
        for one in records
    )


def _tenant_line(tenant: TenantStatus) -> str:
    quota = "no quota" if tenant.quota is None else f"of {tenant.quota:,}"
    return f"{tenant.tenant:20} {plural(tenant.sessions, 'session')}, {tenant.size:,} bytes, {quota}"


def _print_status(repository: MaintainedRepository, options: Options) -> None:
    status = repository.status()
    if options.json:
        output.print_json({"home": repository.home, **msgspec.to_builtins(status)})
        return
    output.print_lines(
        [
            f"home      {clean(repository.home)}",
            f"server    {clean(status.server)}, tables of version {status.version}",
            f"sessions  {status.sessions:,} ({status.size:,} bytes in {plural(status.parts, 'part')})",
            f"backups   {status.backups:,}",
            f"blobs     {status.blobs:,} ({status.blob_size:,} bytes)",
            f"archive   {status.archived:,} ({status.archived_size:,} bytes)",
        ]
    )


def _upgrade(repository: MaintainedRepository, options: Options) -> None:
    done = repository.upgrade()
    if options.json:
        output.print_json({"home": repository.home, "migrations": done})
        return
    state = f"now at version {done[-1]}" if done else "up to date"
    stderr.print_line(f"{clean(repository.home)}: the tables are {state}")


def _verify(repository: MaintainedRepository, options: Options) -> int:
    problems = list(repository.verify())
    if options.json:
        output.print_json({"home": repository.home, "problems": problems})
    else:
        output.print_lines(clean(problem) for problem in problems)
        stderr.print_line(
            f"{clean(repository.home)}: {plural(len(problems), 'problem') if problems else 'no problems'}"
        )
    return _DAMAGED if problems else 0


def _vacuum(repository: MaintainedRepository, options: Options) -> None:
    joined, removed = repository.vacuum(days=options.days, audit_days=options.audit_days)
    if options.json:
        output.print_json({"home": repository.home, "joined": joined, "removed": removed})
    else:
        merged = f"{plural(joined, 'row')} merged"
        stderr.print_line(f"{clean(repository.home)}: {merged}, {plural(removed, 'row')} of old backups removed")
