"""`serve --users`: each user of the web page has a token, and with it one tenant, to read or to write."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

import sessiontree
from sessiontree.cli import main
from sessiontree.errors import NotFoundError, UsageError
from sessiontree.library import projects
from sessiontree.stores.postgres import open_postgres_repository
from sessiontree.stores.postgres.repository import PostgresRepository
from sessiontree.web import live
from sessiontree.web.security import ServerNames
from sessiontree.web.server import ServeOptions, Server, bind, exposure
from sessiontree.web.site import key_of
from sessiontree.web.users import UserGate
from tests.web.conftest import Answer, until

SECRET = "kumquat"


class UserSite:
    """A server for several users."""

    def __init__(self, repository: PostgresRepository) -> None:
        listener = bind("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        self.server = Server(UserGate(repository, ServerNames(self.port)))
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()


class Browser:
    """A browser of one user."""

    def __init__(self, site: UserSite, token: str = "") -> None:
        self.port, self.cookie = site.port, ""
        if token:
            answer = self.log_in(token)
            assert answer.status == 303
            self.cookie = answer.headers["set-cookie"].partition(";")[0]

    def send(self, method: str, path: str, body: str | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        known = {"accept": "text/html", "origin": f"http://127.0.0.1:{self.port}", "cookie": self.cookie}
        try:
            connection.request(method, path, body, headers={**known, **headers})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def log_in(self, token: str) -> Answer:
        return self.send("POST", "/login", urlencode({"token": token}))

    def get(self, path: str) -> Answer:
        return self.send("GET", path)

    def post(self, path: str, fields: object) -> Answer:
        return self.send("POST", path, json.dumps(fields))

    def act(self, ref: str, action: str, **arguments: object) -> Answer:
        """Plan an action and carry it out."""
        planned = self.post(f"/s/{key_of(ref)}/plan", {"action": action, "arguments": arguments})
        return planned if planned.status != 200 else self.post("/do", {"plan": planned.json()["plan"]})


@pytest.fixture
def site(repository: PostgresRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[UserSite]:
    for name in ("HOME", "SESSIONTREE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    for name in ("alice", "bob"):
        repository.add_tenant(name)
    site = UserSite(repository)
    yield site
    site.close()


def write_session(home: str, text: str) -> str:
    with sessiontree.create(home=home, cwd=".") as session:
        session.append("user", text)
        session.append("assistant", [{"type": "text", "text": "an answer"}])
    return str(session.ref)


def listed(browser: Browser) -> Callable[[], str]:
    """The list once it has been scanned."""

    def find() -> str:
        page = browser.get("/rows")
        assert page.status == 200
        return page.text if 'href="/s/' in page.text else ""

    return find


def is_cut(response: http.client.HTTPResponse) -> bool:
    """Read a stream to its end, which comes without the last chunk."""
    try:
        response.read()
    except (http.client.IncompleteRead, ConnectionError):
        return True
    return False


def test_a_token_sees_and_changes_only_its_tenant(repository: PostgresRepository, site: UserSite) -> None:
    with sessiontree.create(cwd=".") as own:  # a file of the person who runs the server
        own.append("user", f"the operator's {SECRET}")
    main(["search", SECRET])  # it is in the search index of this machine
    shared = write_session(repository.home, f"shared {SECRET}")
    alices = write_session(repository.home_of("alice"), f"Alice's {SECRET}")
    bobs = write_session(repository.home_of("bob"), "Bob's own text")
    alice = Browser(site, repository.add_token("alice", scope="write"))
    bob = Browser(site, repository.add_token("bob", scope="write"))
    page = until(listed(bob))
    assert "Bob&#39;s own text" in page
    assert f"Alice&#39;s {SECRET}" in until(listed(alice))
    for path in ("/", "/rows", f"/?q={SECRET}", "/stats", f"/s/{key_of(bobs)}", f"/s/{key_of(bobs)}/health"):
        assert SECRET not in bob.get(path).text.replace(f'value="{SECRET}"', ""), path
    for ref in (alices, shared, str(own.ref)):
        for path in ("", "/cards", "/context", "/download?format=jsonl", "/preview"):
            assert bob.get(f"/s/{key_of(ref)}{path}").status == 404
        assert bob.act(ref, "rename", name="stolen").status == 404
    main(["keep", str(own.ref)])
    for browser in (alice, bob):
        assert "The archive is empty" in browser.get("/archive").text, "not that of the operator"
    assert bob.act(bobs, "rename", name="Mine").status == 200
    assert sessiontree.open(bobs).name == "Mine"
    assert bob.act(bobs, "tag", add=["urgent"]).status == 200
    assert "urgent" in bob.get(f"/s/{key_of(bobs)}").text
    with sessiontree.open(bobs) as session:
        session.append("user", "written elsewhere")
    assert "written elsewhere" in bob.get(f"/s/{key_of(bobs)}").text, "pages show what is there now"
    assert "written elsewhere" not in alice.get("/rows").text


def test_a_token_for_reading_has_no_route_that_changes_anything(repository: PostgresRepository, site: UserSite) -> None:
    ref = write_session(repository.home_of("alice"), "hello")
    reader = Browser(site, repository.add_token("alice", scope="read"))
    until(listed(reader))
    assert reader.get(f"/s/{key_of(ref)}").status == 200
    before = repository.status()
    for path in ("/do", "/restore", "/chat", f"/s/{key_of(ref)}/plan", f"/s/{key_of(ref)}/explore", "/chat/new"):
        assert reader.post(path, {}).status in (404, 405), path
    assert "read-only" in reader.get("/").text
    assert repository.status() == before


def test_no_agent_and_no_file_of_the_machine_is_used_for_a_user(repository: PostgresRepository, site: UserSite) -> None:
    ref = write_session(repository.home_of("alice"), "hello")
    writer = Browser(site, repository.add_token("alice", scope="write"))
    until(listed(writer))
    for path in ("/chat", f"/s/{key_of(ref)}/explore"):
        assert writer.post(path, {"prompts": "x"}).status in (404, 405), path
    for path in ("/chat/new", f"/s/{key_of(ref)}/explore"):
        assert writer.get(path).status == 404, path
    for action in ("convert", "export", "repair", "keep-lane", "rewind"):
        assert writer.act(ref, action, to="pi").status == 400, action
    assert writer.act(ref, "fork", to="pi").status == 400
    assert writer.act(ref, "fork").status == 200, "stays in the database"
    page = writer.get(f"/s/{key_of(ref)}").text
    assert "/chat/new" not in page
    assert "/explore" not in page


def test_the_folder_that_a_session_of_a_user_names_is_not_looked_into(
    repository: PostgresRepository, site: UserSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_into: list[str] = []

    def find_nothing(folder: str) -> None:
        looked_into.append(folder)

    monkeypatch.setattr(projects, "find_repository", find_nothing)
    with sessiontree.create(home=repository.home_of("alice"), cwd=tmp_path) as session:
        session.append("user", "hello")
    reader = Browser(site, repository.add_token("alice", scope="read"))
    assert "hello" in until(listed(reader))
    assert reader.get(f"/rows?{urlencode({'q': f'project:{tmp_path} hello'})}").status == 200
    assert looked_into == []


def test_a_revoked_token_ends_open_pages_at_the_next_request(
    repository: PostgresRepository, site: UserSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "KEEP_ALIVE", 0.2)
    write_session(repository.home_of("alice"), "hello")
    token = repository.add_token("alice", scope="write", note="laptop")
    other = Browser(site, repository.add_token("alice", scope="read"))
    browser = Browser(site, token)
    until(listed(browser))
    stream = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
    stream.request("GET", "/events", headers={"cookie": browser.cookie})
    response = stream.getresponse()
    assert response.readline() == b"event: hello\n"
    (known,) = [found for found in repository.tokens() if found.note == "laptop"]
    repository.revoke_token(known.id)
    for path in ("/", "/rows", "/events", "/static/web.css"):
        assert browser.get(path).status == 401, path
    assert browser.log_in(token).status == 403
    assert is_cut(response), "the stream ends at its next event"
    stream.close()
    assert other.get("/").status == 200, "other tokens of the tenant stay valid"
    with pytest.raises(NotFoundError, match="no valid token"):
        repository.revoke_token(known.id)


def test_nothing_is_shown_without_a_token_and_a_wrong_one_is_refused(
    repository: PostgresRepository, site: UserSite
) -> None:
    token = repository.add_token("alice", scope="write")
    stranger = Browser(site)
    for path in ("/", "/rows", "/events", "/stats", "/static/web.css", "/s/0123"):
        answer = stranger.get(path)
        assert answer.status == 401, path
        assert 'type="password"' in answer.text
    for wrong in ("", "x", token[:-1], token + "x", f"{token[:18]}_{'A' * 43}", token.upper(), "stree_\x00"):
        assert stranger.log_in(wrong).status == 403, wrong
    assert stranger.send("POST", "/login", urlencode({"token": token}), origin="https://attacker.example").status == 403
    assert stranger.get(f"/?token={token}").status == 401, "no token is taken from an address"
    stranger.cookie = f"sessiontree_{site.port}=x"
    assert stranger.get("/").status == 401
    answer = stranger.log_in(f" {token}\n")
    assert answer.headers["location"] == "/"
    assert "HttpOnly; SameSite=Strict; Path=/" in answer.headers["set-cookie"]
    assert token not in answer.headers["set-cookie"]
    stranger.cookie = answer.headers["set-cookie"].partition(";")[0]
    assert token not in stranger.get("/").text
    assert stranger.post("/logout", {}).status == 303
    assert stranger.get("/").status == 401


def test_tokens_are_shown_once_hashed_in_the_database_and_revoked_by_a_command(
    repository: PostgresRepository, site: UserSite, capsys: pytest.CaptureFixture[str]
) -> None:
    home = repository.home
    assert main(["store", "add-token", "alice", "--scope", "write", "--note", "Alice", "--home", home]) == 0
    token = capsys.readouterr().out.strip()
    secret = token[len("stree_") + 13 :]
    with repository.connect() as connection:
        rows = connection.execute("SELECT * FROM sessiontree.token").fetchall()
    assert len(rows) == 1
    assert secret not in str(rows)
    assert secret.encode().hex() not in str(rows)
    assert main(["store", "tokens", "--home", home]) == 0
    shown = capsys.readouterr().out
    assert "alice" in shown
    assert "write" in shown
    assert "Alice" in shown
    assert secret not in shown
    id = shown.split()[0]
    assert token.startswith(f"stree_{id}_")
    assert repository.check_token(token) is not None
    assert main(["store", "revoke-token", id, "--home", home]) == 0
    assert repository.check_token(token) is None
    assert repository.find_token(id) is None
    assert main(["store", "revoke-token", id, "--home", home]) == 1
    capsys.readouterr()
    assert main(["store", "add-token", "nobody", "--home", home]) == 1, "no such tenant"
    assert "no tenant 'nobody'" in capsys.readouterr().err
    alice = open_postgres_repository(repository.home_of("alice"))
    for verb in (alice.tokens, lambda: alice.add_token("alice", scope="write"), lambda: alice.check_token(token)):
        with pytest.raises(UsageError, match="as a tenant"):
            verb()
    alice.close()


def test_a_server_for_users_names_what_it_exposes() -> None:
    warning = exposure(ServeOptions(host="0.0.0.0", users=True), "a token", "the sessions of its tenant")
    assert warning is not None
    assert "anyone with a token can read and change the sessions of its tenant" in warning
    assert "agent" not in warning


def test_a_folder_of_sessions_has_no_users(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["serve", "--users", "--home", str(tmp_path)]) == 2
    assert "has no tokens; name a database" in capsys.readouterr().err
    assert main(["store", "tokens", "--home", str(tmp_path)]) == 2
