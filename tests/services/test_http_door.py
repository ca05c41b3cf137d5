"""HTTP services behind the guard, through real HTTP, against a real node with TLS, logins and an authorizer."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.authority import Authority
from tests.secured_node import PASSWORD, SecuredNode, secured_node

import strandline
from strandline.client.security import ClientSecurity
from strandline.errors import InvalidConfig
from strandline.services.http.door_settings import DoorSettings

pytest.importorskip("cryptography")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from tests.services.http_service import TIMEOUT_S, Service, ask, basic, running, wait_for
from tests.unit.security.sasl.test_jwt import CLAIMS, KEYS, OTHER, RSA, token  # need the extras

ALICE, BOB = ("alice", "alice's secret"), ("bob", "bob:s secret, ä")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    root = tmp_path_factory.mktemp("secured")
    (root / "jwks.json").write_bytes(KEYS)
    given = {
        "sasl_enabled_mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "sasl_oauthbearer_jwks_endpoint_url": (root / "jwks.json").as_uri(),
        "sasl_oauthbearer_expected_issuer": "https://issuer",
        "sasl_oauthbearer_expected_audience": "strandline",
    }
    with secured_node(root, **given) as node:
        for user, password in (ALICE, BOB):
            add_user(node, user, password)
        grant(node, "User:alice", AclOperation.READ, "orders")
        grant(node, "User:alice", AclOperation.WRITE, "orders")
        yield node


def admin(node: SecuredNode) -> AdminClient:
    given = ClientSecurity.of(node.admin).librdkafka()
    return AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0, **given})


def add_user(node: SecuredNode, user: str, password: str) -> None:
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    upsertion = UserScramCredentialUpsertion(user, credential, password.encode())
    client = admin(node)
    client.alter_user_scram_credentials([upsertion])[user].result()


def grant(node: SecuredNode, principal: str, operation: AclOperation, topic: str, host: str = "*") -> None:
    acl = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, principal, host, operation, AclPermissionType.ALLOW
    )
    client = admin(node)
    (made,) = client.create_acls([acl]).values()
    made.result()


def revoke(node: SecuredNode, topic: str) -> None:
    every = AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    client = admin(node)
    (done,) = client.delete_acls([every]).values()
    assert done.result()


def properties(node: SecuredNode, **more: str) -> dict[str, str]:
    given = {"bootstrap.servers": node.bootstrap, "http.authentication": "basic,bearer", **node.admin}
    return given | {name.replace("_", "."): value for name, value in more.items()}


@pytest.fixture(scope="module")
def service(node: SecuredNode) -> Iterator[Service]:
    with running(properties(node)) as service:
        yield service


def as_user(service: Service, user: tuple[str, str], method: str, path: str, **more: str) -> int:
    return ask(service, method, path, user=user[0], password=user[1], **more).status


# Users and rights


def test_the_users_of_the_cluster_have_the_rights_that_its_acls_give(service: Service) -> None:
    answer = ask(service, "GET", "/topics/orders", user=ALICE[0], password=ALICE[1])
    assert (answer.status, answer.body) == (200, {"topic": "orders", "caller": "User:alice"})
    assert as_user(service, ALICE, "GET", "/topics/salaries") == 403
    refused = ask(service, "GET", "/topics/orders", user=BOB[0], password=BOB[1])
    assert (refused.status, refused.body["message"]) == (403, "User:bob may not READ TOPIC orders")
    assert as_user(service, ("admin", PASSWORD), "GET", "/topics/salaries") == 200
    assert as_user(service, ALICE, "POST", "/cluster") == 403
    assert as_user(service, ("admin", PASSWORD), "POST", "/cluster") == 200


def test_a_list_shows_what_the_caller_may_see(service: Service) -> None:
    for path in ("/topics", "/inner/topics"):
        assert ask(service, "GET", path, user=ALICE[0], password=ALICE[1]).body == ["orders"]
        assert ask(service, "GET", path, user=BOB[0], password=BOB[1]).body == []


def test_a_client_without_credentials_that_the_cluster_accepts_is_refused(service: Service) -> None:
    for given in ("", basic("alice", "wrong"), basic("nobody", "x"), basic("alice", ""), "Basic ?", "Negotiate x"):
        answer = ask(service, "GET", "/topics/orders", **({"Authorization": given} if given else {}))
        assert (answer.status, answer.headers["www-authenticate"].startswith("Basic realm=")) == (401, True), given
    # PLAIN separates its parts by a zero byte.
    assert as_user(service, ("alice\0admin", PASSWORD), "GET", "/topics") == 401
    assert ask(service, "GET", "/nothing/here").status == 401
    assert as_user(service, ALICE, "DELETE", "/topics") == 405
    assert as_user(service, ALICE, "GET", "/nothing/here") == 404


def test_a_route_without_a_declared_right_is_served_to_no_client(service: Service) -> None:
    for path in ("/undeclared", "/inner/undeclared", "/app/anything"):
        assert ask(service, "GET", path).status == 403
        refused = ask(service, "GET", path, user="admin", password=PASSWORD)
        assert (refused.status, "declares no right" in refused.body["message"]) == (403, True)
    assert ask(service, "GET", "/health").body == {"is": "up"}


def test_a_token_is_proven_with_the_name_that_it_carries(node: SecuredNode, service: Service) -> None:
    now = int(time.time())
    claims = CLAIMS | {"iat": now, "exp": now + 300, "jti": uuid.uuid4().hex}

    def bearer(token: str) -> int:
        return ask(service, "GET", "/topics/orders", Authorization=f"Bearer {token}").status

    assert bearer(token(claims, key=RSA)) == 200
    assert bearer(token(claims | {"sub": "bob"}, key=RSA)) == 403
    assert bearer(token(claims, key=OTHER)) == 401
    assert bearer(token(claims | {"exp": now - 300, "iat": now - 600}, key=RSA)) == 401
    assert bearer("a.b.c") == bearer("x") == 401
    assert bearer("." + "W1tb" * 3000 + ".") == 401
    # A door that takes another claim for the name is contradicted by the broker.
    with running(properties(node, http_login_sasl_oauthbearer_sub_claim_name="jti")) as other:
        given = f"Bearer {token(claims, key=RSA)}"
        assert ask(other, "GET", "/topics/orders", Authorization=given).status == 401


def test_a_right_that_is_taken_away_is_gone_within_seconds(node: SecuredNode, service: Service) -> None:
    grant(node, "User:bob", AclOperation.READ, "passing")
    wait_for(lambda: as_user(service, BOB, "GET", "/topics/passing") == 200)
    revoke(node, "passing")
    wait_for(lambda: as_user(service, BOB, "GET", "/topics/passing") == 403)


def test_rights_are_those_of_the_address_of_the_peer(node: SecuredNode, service: Service) -> None:
    grant(node, "User:bob", AclOperation.READ, "near", host="127.0.0.1")
    grant(node, "User:bob", AclOperation.READ, "far", host="10.9.9.9")
    wait_for(lambda: as_user(service, BOB, "GET", "/topics/near") == 200)
    assert as_user(service, BOB, "GET", "/topics/far", X_Forwarded_For="10.9.9.9", Forwarded="for=10.9.9.9") == 403


def test_a_changed_password_counts_when_the_cache_ends(node: SecuredNode) -> None:
    add_user(node, "carol", "first")
    with running(properties(node, http_authentication_cache_ms="0")) as service:
        assert as_user(service, ("carol", "first"), "GET", "/topics") == 200
        add_user(node, "carol", "second")
        assert as_user(service, ("carol", "first"), "GET", "/topics") == 401
        assert as_user(service, ("carol", "second"), "GET", "/topics") == 200


def test_guessing_is_slowed_and_others_are_served_meanwhile(
    node: SecuredNode, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), running(properties(node)) as service:
        assert as_user(service, ALICE, "GET", "/topics") == 200
        statuses: list[int] = []

        def guess(number: int) -> None:
            statuses.append(as_user(service, ("alice", f"guess {number}"), "GET", "/topics"))

        threads = [threading.Thread(target=guess, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        assert as_user(service, ALICE, "GET", "/topics") == 200
        for thread in threads:
            thread.join(TIMEOUT_S)
        assert set(statuses) == {401, 503}
        assert as_user(service, ALICE, "GET", "/topics") == 200
    assert ALICE[1] not in caplog.text
    assert PASSWORD not in caplog.text
    assert PASSWORD not in repr(service.door.settings)


@pytest.mark.slow
def test_rules_are_kept_for_a_while_when_the_cluster_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from strandline.services.http import cluster_rights

    with secured_node(tmp_path) as node:
        add_user(node, *ALICE)
        grant(node, "User:alice", AclOperation.READ, "orders")
        with running(properties(node, http_authentication_cache_ms="600000")) as service:
            assert as_user(service, ALICE, "GET", "/topics/orders") == 200
            node.kill()
            monkeypatch.setattr(cluster_rights, "FRESH_S_MAX", 0.0)
            assert as_user(service, ALICE, "GET", "/topics/orders") == 200
            assert as_user(service, ("alice", "another"), "GET", "/topics/orders") == 503
            monkeypatch.setattr(cluster_rights, "KEPT_S_MAX", 0.0)
            wait_for(lambda: as_user(service, ALICE, "GET", "/topics/orders") == 503)
            assert ask(service, "GET", "/topics", user=ALICE[0], password=ALICE[1]).body == []
            assert as_user(service, ("admin", PASSWORD), "GET", "/topics/orders") == 503


def test_without_an_authorizer_every_caller_may_do_everything() -> None:
    with strandline.embedded() as log, running({"bootstrap.servers": log.bootstrap}) as service:
        assert ask(service, "GET", "/topics/orders").body["caller"] == "User:ANONYMOUS"
        assert ask(service, "POST", "/cluster").status == 200
        assert ask(service, "GET", "/undeclared").status == 403


def test_an_anonymous_caller_of_a_secured_cluster_has_its_own_rights(node: SecuredNode) -> None:
    with running(properties(node, http_authentication="none")) as service:
        assert ask(service, "GET", "/topics/orders").status == 403


def test_a_service_whose_user_may_not_read_the_rules_does_not_start(node: SecuredNode) -> None:
    jaas = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{BOB[0]}" password="{BOB[1]}";'
    with (
        pytest.raises(InvalidConfig, match="may not read the cluster's ACLs"),
        running(properties(node, sasl_jaas_config=jaas)),
    ):
        pass


# Browsers


def test_a_name_that_is_made_to_point_here_is_refused(service: Service) -> None:
    port = service.door.port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost@evil", "", "[::1"):
        assert ask(service, "GET", "/health", Host=host).status in (400, 421), host
    for host in ("localhost", f"LOCALHOST:{port}", "127.0.0.1", f"[::1]:{port}", "10.1.2.3"):
        assert ask(service, "GET", "/health", Host=host).status == 200, host


def test_a_page_of_another_site_changes_nothing(node: SecuredNode, service: Service) -> None:
    own = f"http://127.0.0.1:{service.door.port}"
    foreign = ("https://evil.example", "null", "http://127.0.0.1:1", own + ".evil.example", own + ", " + own)

    def put(**headers: str) -> int:
        return as_user(service, ALICE, "PUT", "/topics/orders", **headers)

    for origin in foreign:
        assert put(Origin=origin) == 403, origin
    for site in ("cross-site", "same-site"):
        assert put(Sec_Fetch_Site=site) == 403
    assert put() == put(Origin=own, Sec_Fetch_Site="same-origin") == put(Sec_Fetch_Site="none") == 200
    # Reading is left to the browser, which shows no answer to a page that no header allows.
    seen = ask(service, "GET", "/topics", user=ALICE[0], password=ALICE[1], Origin="https://evil.example")
    assert (seen.status, "access-control-allow-origin" in seen.headers) == (200, False)
    with running(properties(node, http_origins="https://Console.example/")) as allowed:
        assert as_user(allowed, ALICE, "PUT", "/topics/orders", Origin="https://console.example") == 200


def test_every_answer_has_the_headers_that_harden_it(service: Service) -> None:
    for path in ("/health", "/nothing", "/undeclared"):
        headers = ask(service, "GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert (headers["x-frame-options"], headers["cache-control"]) == ("DENY", "no-store")
        assert "server" not in headers


# Limits


def test_a_body_has_a_limit_whether_its_length_is_told_or_not(node: SecuredNode) -> None:
    with running(properties(node, http_body_bytes_max="1000")) as service:
        at = {"user": ALICE[0], "password": ALICE[1]}
        assert ask(service, "PUT", "/topics/orders", body=bytes(1000), **at).body == {"bytes": 1000}
        assert ask(service, "PUT", "/topics/orders", body=bytes(1001), **at).status == 413
        head = f"PUT /topics/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: {basic(*ALICE)}\r\n"
        chunks = head + "Transfer-Encoding: chunked\r\n\r\n" + "80\r\n" + "x" * 128 + "\r\n"
        for _ in range(8):
            chunks += "80\r\n" + "x" * 128 + "\r\n"
        assert exchange(service, chunks.encode()).startswith(b"HTTP/1.1 413")
        assert exchange(service, (head + "X: " + "x" * 40_000).encode()).startswith(b"HTTP/1.1 400")


def test_slow_clients_are_left(node: SecuredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    from strandline.services.http import connection, guard

    monkeypatch.setattr(connection, "HEADER_S_MAX", 0.3)
    monkeypatch.setattr(guard, "BODY_S_MAX", 0.3)
    with running(properties(node)) as service:
        assert exchange(service, b"") == b""
        assert exchange(service, b"GET /health HTTP/1.1\r\nHost: loc") == b""
        head = f"PUT /topics/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: {basic(*ALICE)}\r\n"
        begun = (head + "Content-Length: 10\r\n\r\nx").encode()
        assert exchange(service, begun).startswith(b"HTTP/1.1 408")
        # A second request on the same connection is begun and not ended.
        assert exchange(service, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /").startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("how", ["whole", "parts"])
def test_a_client_that_takes_no_answer_is_left(node: SecuredNode, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    from strandline.services.http import connection, door, guard

    monkeypatch.setattr(connection, "TAKEN_S_MAX", 0.3)
    monkeypatch.setattr(guard, "SEND_S_MAX", 0.3)
    monkeypatch.setattr(door, "CONNECTIONS_OF_ADDRESS_MAX", 1)
    with running(properties(node)) as service, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(TIMEOUT_S)
        slow.connect(("127.0.0.1", service.door.port))
        slow.sendall(f"GET /large/{how} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert slow.recv(12) == b"HTTP/1.1 200"
        # The only place is free again when the service has left the client.
        other = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        wait_for(lambda: exchange(service, other).startswith(b"HTTP/1.1 200"))


def test_connections_of_one_address_have_a_limit(node: SecuredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    from strandline.services.http import door

    monkeypatch.setattr(door, "CONNECTIONS_OF_ADDRESS_MAX", 2)
    with running(properties(node)) as service:
        held = [socket.create_connection(("127.0.0.1", service.door.port), TIMEOUT_S) for _ in range(2)]
        wait_for(
            lambda: exchange(service, b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n") == b""
        )
        for each in held:
            each.close()

        def is_served() -> bool:
            answer = exchange(service, b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return answer.startswith(b"HTTP/1.1 200")

        wait_for(is_served)


def exchange(service: Service, sent: bytes) -> bytes:
    """Return all that comes back until the service closes the connection."""
    received = b""
    with socket.create_connection(("127.0.0.1", service.door.port), TIMEOUT_S) as connection:
        try:
            connection.sendall(sent)
            while part := connection.recv(65_536):
                received += part
        except ConnectionError:
            pass
    return received


# The door


def test_a_stop_waits_for_requests_that_run(node: SecuredNode) -> None:
    answers = []
    with running(properties(node)) as service:
        asking = threading.Thread(target=lambda: answers.append(ask(service, "GET", "/slow").status))
        asking.start()
        assert service.slow_began.wait(TIMEOUT_S)
        service.door.stop()
        wait_for(lambda: refuses(service.door.port))
        service.slow_may_end.set()
        asking.join(TIMEOUT_S)
    assert answers == [200]


async def test_a_connection_that_comes_as_it_stops_is_closed(node: SecuredNode) -> None:
    door = Service({"listeners": "http://127.0.0.1:0"} | properties(node)).door
    serving = asyncio.create_task(door.serve())
    while not door.is_ready:  # noqa: ASYNC110 - it has no event for this
        await asyncio.sleep(0.01)
    with socket.create_connection(("127.0.0.1", door.port), TIMEOUT_S) as connection:
        door.stop()
        time.sleep(0.3)  # noqa: ASYNC251 - the loop stands still, and has the connection and the stop in one turn
        await serving
        assert connection.recv(1) == b""


def test_a_process_with_tls_that_is_told_to_stop_ends_well(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    program = (
        "import json, sys\n"
        "from tests.services.http_service import Service\n"
        "service = Service(json.loads(sys.argv[1]))\n"
        "print(service.door.port, flush=True)\n"
        "service.door.run()\n"
        "print('ended', flush=True)\n"
    )
    with strandline.embedded() as log:
        given = {
            "listeners": "https://localhost:0",
            "listeners.https.ssl.keystore.location": str(authority.issue("door")),
            "bootstrap.servers": log.bootstrap,
        }
        process = subprocess.Popen(
            [sys.executable, "-c", program, json.dumps(given)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            wait_for(lambda: not refuses(port))
            context = ssl.create_default_context(cafile=str(authority.trusted))
            url = f"https://localhost:{port}/topics/orders"
            with urllib.request.urlopen(url, timeout=TIMEOUT_S, context=context) as answer:
                assert answer.status == 200
            process.send_signal(signal.SIGTERM)
            output, errors = process.communicate(timeout=TIMEOUT_S)
            assert (process.returncode, output, errors) == (0, "ended\n", "")
        finally:
            process.kill()
            process.communicate()


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), TIMEOUT_S).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_new_certificate_is_used_without_a_restart(
    node: SecuredNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from strandline.services.http import door

    monkeypatch.setattr(door, "_RELOAD_S", 0.05)
    authority = Authority(tmp_path)
    store = authority.issue("door", names=("DNS:localhost", "DNS:door.example", "IP:127.0.0.1"))
    given = properties(node, listeners="https://127.0.0.1:0", listeners_https_ssl_keystore_location=str(store))
    context = ssl.create_default_context(cafile=str(authority.trusted))
    with running(given) as service:
        answer = ask(service, "GET", "/topics/orders", user=ALICE[0], password=ALICE[1], context=context)
        assert answer.status == 200
        assert ask(service, "GET", "/health", Host="door.example", context=context).status == 200
        assert ask(service, "GET", "/health", Host="other.example", context=context).status == 421
        origin = f"http://localhost:{service.door.port}"
        foreign = ask(service, "POST", "/cluster", Origin=origin, context=context)
        assert foreign.status == 403
        before = serial(service, context)
        store.write_text("no certificate")
        wait_for(lambda: "the certificate stays as it was" in caplog.text)
        assert serial(service, context) == before
        authority.issue("door", names=("DNS:localhost", "DNS:other.example"), to=store)
        wait_for(lambda: serial(service, context) != before)
        assert ask(service, "GET", "/health", Host="other.example", context=context).status == 200
        # What speaks no TLS is closed, and hinders no other client.
        assert not exchange(service, b"GET /health HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200")


def serial(service: Service, context: ssl.SSLContext) -> str:
    with (
        socket.create_connection(("127.0.0.1", service.door.port), TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        return str((secured.getpeercert() or {})["serialNumber"])


BASE = {"listeners": "http://127.0.0.1:8081", "bootstrap.servers": "127.0.0.1:9092"}
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "p"}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"listeners": "http://0.0.0.0:8081"}, "without TLS and authentication; expected https://"),
        ({"listeners": "http://:8081"}, "serves other machines without TLS and authentication"),
        ({"listeners": "https://registry.example:8081"}, "serves other machines without authentication"),
        (
            {"listeners": "http://10.0.0.1:8081", "http.authentication": "basic", **SASL},
            "machines without TLS; expected",
        ),
        ({"listeners": "ftp://127.0.0.1:1"}, "listeners=ftp://127.0.0.1:1 is not allowed"),
        ({"http.authentication": "digest"}, "http.authentication=digest is unknown"),
        ({"http.authentication": "basic"}, "security.protocol=PLAINTEXT has no login"),
        ({"http.autentication": "basic"}, "http.autentication is unknown"),
        ({"listeners.https.ssl.keystore.locatoin": "x"}, "ssl.keystore.locatoin is unknown"),
        ({"listeners.https.ssl.client.auth": "maybe"}, "ssl.client.auth=maybe is not allowed"),
        ({"listeners.https.ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols has tlsv1.1"),
        ({"http.body.bytes.max": "-1"}, "http.body.bytes.max=-1 is not allowed"),
        ({"bootstrap.servers": "broker"}, "bootstrap.servers=broker names no broker"),
        (
            {"http.authentication": "basic", "http.login.sasl.mechanism": "GSSAPI", **SASL},
            "basic cannot use sasl.mechanism=GSSAPI",
        ),
    ],
)
def test_settings_that_are_wrong_or_not_safe_stop_the_start(given: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        DoorSettings.of(BASE | given)
    assert why in str(refused.value)


def test_a_port_that_is_taken_stops_the_start(node: SecuredNode) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InvalidConfig, match="cannot be used: address already in use"):
            Service(properties(node, listeners=f"http://127.0.0.1:{taken.getsockname()[1]}"))


def test_neither_a_node_nor_the_command_line_loads_a_service() -> None:
    script = (
        "import sys, strandline.broker.main, strandline.broker.node, strandline.cli.tree\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('starlette', 'uvicorn') or '.services' in name])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
