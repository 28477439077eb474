"""Who may ask the web server for what."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import logging
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sessiontree.app.workbench import Workbench
from sessiontree.errors import UsageError
from sessiontree.library.library import Library
from sessiontree.web.security import MAX_BODY, MAX_WRONG_TOKENS, RateLimit
from sessiontree.web.server import ServeOptions, exposure, serve
from tests.web.conftest import Answer, Site


def test_nothing_is_shown_without_the_cookie(site: Site) -> None:
    for path in ("/", "/rows", "/events", "/stats", "/static/web.css", "/s/0123"):
        assert site.get(path).status == 401, path


def test_a_token_works_once_and_becomes_a_strict_cookie(site: Site) -> None:
    token = site.access.token
    answer = site.get(f"/?token={token}")
    assert answer.status == 303
    assert answer.headers["location"] == "/"
    assert "HttpOnly; SameSite=Strict; Path=/" in answer.headers["set-cookie"]
    assert site.get(f"/?token={token}").status == 403, "the same token again"
    assert site.access.token != token
    site.cookie = answer.headers["set-cookie"].partition(";")[0]
    assert site.get("/").status == 200


def test_after_many_wrong_tokens_none_is_accepted(site: Site) -> None:
    for _ in range(MAX_WRONG_TOKENS):
        assert site.get("/?token=wrong").status == 403
    assert site.get(f"/?token={site.access.token}").status == 403


@pytest.mark.parametrize("host", ["attacker.example", "attacker.example:80", "127.0.0.1.attacker.example", ""])
def test_requests_for_another_host_name_are_refused(known: Site, host: str) -> None:
    assert known.get("/", host=host).status == 421


def test_own_names_are_accepted(known: Site) -> None:
    for host in (f"localhost:{known.port}", f"127.0.0.1:{known.port}", f"[::1]:{known.port}"):
        assert known.get("/", host=host).status == 200


def test_requests_of_other_sites_are_refused(known: Site) -> None:
    assert known.get("/rows", origin="https://attacker.example").status == 403
    assert known.get("/rows", sec_fetch_site="cross-site", sec_fetch_mode="cors").status == 403
    assert known.get("/rows", sec_fetch_site="same-site", sec_fetch_mode="no-cors").status == 403
    assert known.get("/", sec_fetch_site="cross-site", sec_fetch_mode="navigate").status == 200, "a link"
    assert known.post("/do", {"plan": "x"}, origin="https://attacker.example").status == 403
    assert known.post("/do", {"plan": "x"}, origin="null").status == 403


def test_a_post_without_an_origin_is_refused(known: Site) -> None:
    with contextlib.closing(known.connect()) as connection:
        connection.request("POST", "/do", "{}", headers=known.headers())
        assert Answer(connection.getresponse()).status == 403


def test_large_bodies_are_refused(known: Site) -> None:
    assert known.post("/do", {"plan": "x" * MAX_BODY}).status == 413


def test_large_bodies_without_a_length_are_refused_alike(known: Site) -> None:
    with contextlib.closing(known.connect()) as connection:
        headers = known.headers(origin=f"http://127.0.0.1:{known.port}")
        # Chunked, because an iterable has no length.
        connection.request("POST", "/do", iter([b"x" * MAX_BODY, b"x"]), headers=headers, encode_chunked=True)
        answer = Answer(connection.getresponse())
    assert (answer.status, answer.text) == (413, "sessiontree: the request is larger than 262,144 bytes\n")


def test_a_client_that_sends_half_a_request_leaves_no_error_in_the_log(
    known: Site, caplog: pytest.LogCaptureFixture
) -> None:
    head = f"POST /do HTTP/1.1\r\nHost: 127.0.0.1:{known.port}\r\nOrigin: http://127.0.0.1:{known.port}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in known.headers().items())
    with caplog.at_level(logging.INFO):
        for rest in (
            "Content-Length: 100\r\n\r\n{}",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
            "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            f"Content-Length: {'9' * 5000}\r\n\r\n",
        ):
            with contextlib.closing(socket.create_connection(("127.0.0.1", known.port), timeout=60)) as connection:
                connection.sendall((head + rest).encode())
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass
        assert known.get("/").status == 200
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def test_too_many_requests_are_refused_for_a_moment() -> None:
    limit = RateLimit(rate=1, burst=3)
    assert [limit.take() for _ in range(4)] == [True, True, True, False]


def test_every_response_has_a_policy_without_inline_code(known: Site) -> None:
    for path in ("/", "/static/web.css", "/s/nothing"):
        policy = known.get(path).headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
    page = known.get("/").text
    assert "<script>" not in page
    assert " style=" not in page
    assert known.get("/").headers["cache-control"] == "no-store"


def test_only_sessions_of_the_library_have_an_address(known: Site, tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_text("{}")
    for key in (
        "../../etc/passwd",
        "%2e%2e%2fsecret.jsonl",
        str(tmp_path / "secret.jsonl").replace("/", "%2F"),
        "0" * 18,
    ):
        assert known.get(f"/s/{key}").status == 404, key
    assert known.get("/static/..%2f..%2fsecurity.py").status == 404


def test_a_read_only_server_has_no_route_that_changes_anything(library: Library, home: Path) -> None:
    site = Site(library, str(home), read_only=True)
    try:
        site.login()
        for path in ("/do", "/restore", "/chat", "/s/x/plan"):
            assert site.post(path, {}).status in (404, 405), path
        page = site.get("/").text
        assert "read-only" in page
        assert "/chat/new" not in page
    finally:
        site.close()


def test_a_server_for_other_machines_says_what_it_exposes() -> None:
    assert exposure(ServeOptions()) is None
    assert exposure(ServeOptions(host="::1")) is None
    warning = exposure(ServeOptions(host="0.0.0.0"))
    assert warning is not None
    assert "UNENCRYPTED" in warning
    assert "change all sessions" in warning
    assert "UNENCRYPTED" not in (
        exposure(ServeOptions(host="10.0.0.2", tls_cert="c", tls_key="k", read_only=True)) or ""
    )


def test_other_machines_are_let_in_only_with_tls(library: Library, home: Path) -> None:
    workbench = Workbench(library, str(home))
    with pytest.raises(UsageError, match="pass --tls-cert and --tls-key"):
        serve(workbench, ServeOptions(host="0.0.0.0"), print)
    with pytest.raises(UsageError, match="both"):
        serve(workbench, ServeOptions(host="0.0.0.0", tls_cert="c"), print)


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


def test_a_server_for_other_machines_is_encrypted_and_asks_for_the_token(home: Path, tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    command = [sys.executable, "-m", "sessiontree", "serve", "--host", "0.0.0.0", "--tls-cert", str(cert)]
    server = subprocess.Popen([*command, "--tls-key", str(key)], stderr=subprocess.PIPE, text=True, cwd=home)
    try:
        assert server.stderr is not None
        warning, link = server.stderr.readline(), server.stderr.readline()
        assert "other machines can reach 0.0.0.0" in warning
        found = re.search(r"https://[^/]+:(\d+)/\?token=(\S+)", link)
        assert found is not None
        address = f"https://127.0.0.1:{found[1]}/"
        trusting = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(cert)))
        opener = urllib.request.build_opener(trusting, urllib.request.HTTPCookieProcessor())
        with pytest.raises(urllib.error.HTTPError, match="401"):
            opener.open(address, timeout=60)
        with opener.open(f"{address}?token={found[2]}", timeout=60) as page:
            assert "Sessions" in page.read().decode()
        (cookie,) = next(each for each in opener.handlers if hasattr(each, "cookiejar")).cookiejar
        assert cookie.secure
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/", timeout=60)
    finally:
        server.terminate()
        server.communicate(timeout=60)


def test_a_server_that_stops_closes_connections_that_it_is_just_accepting(library: Library, tmp_path: Path) -> None:
    for _ in range(8):
        site = Site(library, str(tmp_path))
        assert site.get("/").status == 401
        connections: list[socket.socket] = []

        def connect(port: int = site.port, opened: list[socket.socket] = connections) -> None:
            with contextlib.suppress(OSError):  # until the server accepts no more
                while True:
                    opened.append(socket.create_connection(("127.0.0.1", port), timeout=15))
                    time.sleep(0.002)

        thread = threading.Thread(target=connect)
        thread.start()
        time.sleep(0.05)
        site.close()
        thread.join(30)
        for connection in connections:
            with connection, contextlib.suppress(ConnectionError):
                assert connection.recv(1) == b""  # the end; on a forgotten connection, nothing would come
