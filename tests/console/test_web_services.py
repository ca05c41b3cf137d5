"""The login of a visitor goes to services of its cluster, and nowhere in the clear."""

from __future__ import annotations

import base64
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from strandline.cli.common.failures import UsageFailed
from strandline.cli.connect.worker_api import ConnectApi
from strandline.cli.schema.registry_api import SchemaApi
from strandline.client.security import BearerSecurity, ClientSecurity
from strandline.console.reading.user_cluster import ClusterUser
from strandline.console.reading.web_services import authorization_for, shown_url

GIVEN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "alice",
    "sasl.password": "se:cret",
}
ALICE = ClusterUser("alice", ClientSecurity.of(GIVEN))
BASIC = "Basic " + base64.b64encode(b"alice:se:cret").decode()
TOKEN = replace(ALICE, security=BearerSecurity.with_token({"security.protocol": "SASL_SSL"}, "alice", "a.b.c"))


@pytest.mark.parametrize(
    ("url", "user", "header"),
    [
        ("https://registry.example:8081", ALICE, BASIC),
        ("http://127.0.0.1:8081", ALICE, BASIC),
        ("http://localhost:8081", TOKEN, "Bearer a.b.c"),
        ("http://[::1]:8081", ALICE, BASIC),
        ("http://registry.example:8081", ALICE, ""),
        ("http://127.0.0.1.example:8081", ALICE, ""),
        ("https://shared:pw@registry.example", ALICE, ""),
        ("https://registry.example", ClusterUser(), ""),
    ],
)
def test_a_login_goes_over_tls_or_stays_on_this_machine(url: str, user: ClusterUser, header: str) -> None:
    assert authorization_for(user, url) == header


class _Redirecting(BaseHTTPRequestHandler):
    """Sends every request on to another name of the same address, once, and notes what it is sent."""

    seen: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.seen.append(self.headers.get("Authorization"))
        is_first = len(self.seen) == 1
        self.send_response(302 if is_first else 200)
        if is_first:
            self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/other")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_redirect_of_a_registry_takes_no_login_along() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Redirecting)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        api = SchemaApi(f"http://127.0.0.1:{server.server_port}", 20, authorization=BASIC)
        assert api.ask("GET", "subjects") == []
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert _Redirecting.seen == [BASIC, None]


@pytest.mark.parametrize("url", ["https://me:secret@worker.example:x", "https://me:secret@"])
def test_an_address_of_workers_that_is_none_is_told_without_its_password(url: str) -> None:
    with pytest.raises(UsageFailed) as refused:
        ConnectApi(url, 20)
    assert "secret" not in str(refused.value)


def test_the_address_of_a_service_is_shown_without_its_password() -> None:
    assert shown_url("https://me:secret@registry.example:8081/x") == "https://registry.example:8081/x"
