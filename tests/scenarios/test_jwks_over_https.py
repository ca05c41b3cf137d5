"""The keys of a token issuer from an https URL: fetched at the start and for an unknown key, never from elsewhere."""

from __future__ import annotations

import http.server
import ssl
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.authority import Authority

import strandline
from strandline.client.connection import BrokerConnection
from strandline.client.security import ClientSecurity, LoginRefused
from strandline.local.node_process import BrokerFailed
from strandline.security.sasl.oauthbearer import BearerLogin

pytest.importorskip("cryptography")

from tests.unit.security.sasl.test_jwt import CLAIMS, OTHER, RSA, jwk, jwks, token  # needs cryptography

TIMEOUT_S = 60


class KeyServer(http.server.ThreadingHTTPServer):
    """A server with the keys at /keys, and a redirect to them at /moved."""

    keys = b""
    asked = 0


class _Handler(http.server.BaseHTTPRequestHandler):
    server: KeyServer

    def do_GET(self) -> None:
        self.server.asked += 1
        self.send_response(302 if self.path == "/moved" else 200)
        self.send_header("Location", "/keys")
        self.send_header("Content-Length", str(len(self.server.keys)))
        self.end_headers()
        self.wfile.write(self.server.keys)

    def log_message(self, *_: object) -> None:
        """Keep the output of the tests clean."""


@contextmanager
def key_server(authority: Authority) -> Iterator[KeyServer]:
    server = KeyServer(("127.0.0.1", 0), _Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("issuer"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join(TIMEOUT_S)
        server.server_close()


def properties(server: KeyServer, path: str = "/keys") -> dict[str, str]:
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"https://localhost:{server.server_address[1]}{path}",
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.expected.audience": "strandline",
        "connection.failed.authentication.delay.ms": "1",
    }


class BearerClient(ClientSecurity):
    """A client that logs in with one token."""

    given = ""

    def login(self) -> BearerLogin:
        return BearerLogin(self.given)


def is_admitted(port: int, key: object, kid: str) -> bool:
    now = int(time.time())
    security = BearerClient("SASL_PLAINTEXT", (("sasl.mechanism", "OAUTHBEARER"),))
    claims = CLAIMS | {"iat": now, "exp": now + 300, "jti": uuid.uuid4().hex}
    object.__setattr__(security, "given", token(claims, key=key, kid=kid))
    try:
        BrokerConnection("127.0.0.1", port, client_id="t", timeout_s=TIMEOUT_S, security=security).close()
    except LoginRefused:
        return False
    return True


@pytest.mark.slow
def test_keys_are_fetched_and_a_new_one_is_found(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with key_server(authority) as server:
        server.keys = jwks(jwk(RSA, "one"))
        # The trusted authorities of the machine, as OpenSSL names them.
        trusted = {"SSL_CERT_FILE": str(authority.trusted)}
        with strandline.embedded(properties=properties(server), environ=trusted) as log:
            assert is_admitted(log.port, RSA, "one")
            assert not is_admitted(log.port, OTHER, "one")
            server.keys = jwks(jwk(OTHER, "two"))
            deadline = time.monotonic() + TIMEOUT_S
            # The unknown key has the keys fetched again; the login that named it may be too early for them.
            while not is_admitted(log.port, OTHER, "two"):
                assert time.monotonic() < deadline
            assert not is_admitted(log.port, RSA, "one")
        with (
            pytest.raises(BrokerFailed, match="cannot be read"),
            strandline.embedded(properties=properties(server, "/moved"), environ=trusted),
        ):
            pass
        asked = server.asked
        # By default an authority of our own is not trusted.
        with (
            pytest.raises(BrokerFailed, match=r"cannot be read .*certificate verify failed"),
            strandline.embedded(properties=properties(server)),
        ):
            pass
        assert server.asked == asked
