"""Where the credentials of a client go when a registry sends its write on to the primary, and where they do not."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.authority import Authority

from strandline.schemas.election import RegistryAddress
from strandline.schemas.forwarding import Forwarder, PrimaryAway
from strandline.schemas.registry import RegistrySettings, SchemaRegistry

CREDENTIALS = "Basic d3JpdGVyOnNlY3JldA=="


class Primary(http.server.BaseHTTPRequestHandler):
    """A registry that notes what it is sent."""

    seen: list[dict[str, str]]

    def do_POST(self) -> None:
        self.seen.append({name.lower(): value for name, value in self.headers.items()})
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def primary(certificate: Path | None) -> Iterator[tuple[int, list[dict[str, str]]]]:
    """Run a primary; yield its port, and what it saw."""
    seen: list[dict[str, str]] = []
    handler = type("NotingPrimary", (Primary,), {"seen": seen})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1], seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def send(address: RegistryAddress, trusted: Path | None = None) -> int:
    def make_context() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=None if trusted is None else str(trusted))

    registry = SchemaRegistry(RegistrySettings("none:1"), [])
    forwarder = Forwarder(registry, make_context)
    forwarder.primary = address
    headers = {"authorization": CREDENTIALS, "content-type": "application/json", "cookie": "x", "host": "elsewhere"}
    try:
        answer = await forwarder.forward("POST", b"/subjects/s/versions", headers, b"{}")
        return answer.status
    finally:
        forwarder.stop()
        await registry.stop()


async def test_a_primary_that_is_trusted_gets_the_credentials_and_no_other_header(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with primary(authority.issue("primary")) as (port, seen):
        assert await send(RegistryAddress("localhost", port, "https"), authority.trusted) == 200
    (headers,) = seen
    assert headers["authorization"] == CREDENTIALS
    assert headers["x-forward"] == "false"
    assert "cookie" not in headers
    assert headers["host"] == f"localhost:{port}"


async def test_a_primary_on_this_machine_needs_no_tls() -> None:
    with primary(None) as (port, seen):
        assert await send(RegistryAddress("127.0.0.1", port)) == 200
    assert seen[0]["authorization"] == CREDENTIALS


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_primary_with_another_certificate_gets_nothing(tmp_path: Path, host: str) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other", "stranger")
    # One that is not trusted here, and one that is trusted for another name.
    for certificate in (stranger.issue("primary"), authority.issue("else", names=("DNS:other.example.com",))):
        with primary(certificate) as (port, seen), pytest.raises(PrimaryAway):
            await send(RegistryAddress(host, port, "https"), authority.trusted)
        assert not seen


async def test_a_primary_elsewhere_without_tls_gets_nothing() -> None:
    # An address for documentation, which is never connected to.
    with pytest.raises(PrimaryAway, match="has no TLS"):
        await send(RegistryAddress("192.0.2.1", 8081))
