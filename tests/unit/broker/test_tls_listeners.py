"""The TLS of a node: principals of certificates, and certificates that are replaced while it runs."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.authority import Authority
from tests.hostile.peer import ROUTES, Peer, answer_of, raw_request, request

from strandline.broker.main import node_on, stop
from strandline.broker.metrics.families import page
from strandline.broker.network.tls import tls_listeners
from strandline.broker.network.tls.tls_listeners import ListenerTls
from strandline.codec.messages import alter_configs_request, incremental_alter_configs_request
from strandline.config.node_config import BrokerConfig
from strandline.errors import ErrorCode, InvalidConfig
from strandline.security.principal import ANONYMOUS, Principal

WITHIN_S = 30.0
DAY_S = 24 * 60 * 60


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


class RunningNode:
    """A node in this process with a listener SECURE, whose loop turns while the test waits for something."""

    def __init__(self, data: Path, settings: dict[str, str]) -> None:
        self.loop = asyncio.new_event_loop()
        given = {
            "listeners": "PLAIN://127.0.0.1:0,SECURE://localhost:0",
            "listener.security.protocol.map": "SECURE:SSL",
            "http.listener": "off",
            **settings,
        }
        self.node = node_on(self.loop, data, BrokerConfig.load("", given))
        self.node.start()
        self.port = self.node.client_server.advertised("SECURE")[1]  # type: ignore[index]

    def until(self, condition: Any) -> Any:
        async def wait() -> Any:
            deadline = time.monotonic() + WITHIN_S
            while not (found := condition()):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.001)
            return found

        return self.loop.run_until_complete(wait())

    def connect(self, context: ssl.SSLContext) -> ssl.SSLSocket:
        """A connection that has been served, over TLS."""

        def shake_hands() -> ssl.SSLSocket:
            stream = socket.create_connection(("localhost", self.port))
            secured = context.wrap_socket(stream, server_hostname="localhost")
            secured.settimeout(WITHIN_S)
            secured.sendall(raw_request(18, 0, b""))
            secured.recv(1)
            return secured

        return self.loop.run_until_complete(self.loop.run_in_executor(None, shake_hands))

    @property
    def sessions(self) -> list[Principal]:
        return [each.session.principal for each in self.node.dispatcher.limits.connections]  # type: ignore[attr-defined]


@contextmanager
def running(data: Path, settings: dict[str, str]) -> Iterator[RunningNode]:
    node = RunningNode(data, settings)
    try:
        yield node
    finally:
        node.loop.run_until_complete(stop(node.node))
        node.loop.run_until_complete(node.loop.shutdown_default_executor())
        node.loop.close()


def client_context(authority: Authority, store: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.trusted))
    if store is not None:
        context.load_cert_chain(store)
    return context


def serial(stream: ssl.SSLSocket) -> str:
    return stream.getpeercert()["serialNumber"]  # type: ignore[index,return-value]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("DEFAULT", "CN=billing,OU=Payments,O=Example"),
        ("RULE:^CN=(.*?),.*$/$1/U", "BILLING"),
    ],
)
def test_the_principal_is_the_subject_of_the_certificate(
    authority: Authority, tmp_path: Path, rules: str, expected: str
) -> None:
    settings = authority.settings(
        authority.issue("node"), ssl_client_auth="required", ssl_principal_mapping_rules=rules
    )
    with running(tmp_path / "data", settings) as node:
        store = authority.issue("billing", subject="/O=Example/OU=Payments/CN=billing")
        with node.connect(client_context(authority, store)):
            assert node.sessions == [Principal("User", expected)]


def test_a_client_that_is_only_requested_to_show_one(authority: Authority, tmp_path: Path) -> None:
    with running(tmp_path / "data", authority.settings(authority.issue("node"), ssl_client_auth="requested")) as node:
        with node.connect(client_context(authority)):
            assert node.sessions == [ANONYMOUS]
        with node.connect(client_context(authority, authority.issue("guest"))):
            assert Principal("User", "CN=guest") in node.sessions


def test_a_subject_that_no_rule_matches_is_rejected(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = authority.settings(
        authority.issue("node"), ssl_client_auth="required", ssl_principal_mapping_rules="RULE:CN=billing/$0/"
    )
    caplog.set_level(logging.INFO)
    with running(tmp_path / "data", settings) as node:
        try:
            with node.connect(client_context(authority, authority.issue("guest"))) as stream:
                assert stream.recv(1) == b""
        except OSError:
            pass
        node.until(lambda: node.node.dispatcher.limits.refusals["protocol"])
    assert "no rule of ssl.principal.mapping.rules matches CN=guest" in caplog.text


def test_a_client_of_tls_on_a_plain_listener(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with running(tmp_path / "data", authority.settings(authority.issue("node"))) as node:
        node.port = node.node.client_server.bound[1]  # type: ignore[index]
        with pytest.raises(OSError):
            node.connect(client_context(authority))
    assert "it speaks TLS, and this listener does not" in caplog.text


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_listeners, "LOOK_TICKS", 1)


@pytest.mark.usefixtures("looks_often")
def test_a_file_that_changes_is_used_from_the_next_connection_on(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store = authority.issue("node")
    context = client_context(authority)
    with running(tmp_path / "data", authority.settings(store)) as node, node.connect(context) as before:
        authority.issue("new", subject="/CN=node", to=store)
        node.until(lambda: "listener SECURE has a new certificate" in caplog.text)
        with node.connect(context) as after:
            assert serial(after) != serial(before)
        shown = 'strandline_tls_certificate_expiry_timestamp_seconds{listener="SECURE"} '
        assert shown in "".join(page(node.node, public=True))
        # A connection that exists goes on.
        before.sendall(raw_request(18, 0, b""))
        node.until(lambda: node.node.routes[18].requests == 3)


@pytest.mark.lengthy("waits for the clock")
@pytest.mark.usefixtures("looks_often")
def test_a_bad_file_leaves_the_old_certificate_and_is_reported_once(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store = authority.issue("node")
    good = store.read_text()
    context = client_context(authority)
    with running(tmp_path / "data", authority.settings(store)) as node:
        with node.connect(context) as stream:
            first = serial(stream)
        for change, why in (
            (lambda: store.write_text(good[:100]), "has no private key with its certificates"),
            (lambda: authority.issue("other", to=store), "ssl.allow.dn.changes=true"),
            (lambda: store.unlink(), "cannot be read: no such file"),
        ):
            caplog.clear()
            change()
            node.until(lambda why=why: why in caplog.text)
            ticks = node.node.dispatcher.limits.ticks
            node.until(lambda ticks=ticks: node.node.dispatcher.limits.ticks >= ticks + 3)
            assert caplog.text.count("listener SECURE keeps its certificate") == 1
            with node.connect(context) as stream:
                assert serial(stream) == first
        caplog.clear()
        fresh = store.with_suffix(".fresh")
        fresh.write_text(good)
        os.rename(fresh, store)
        node.until(lambda: "has a new certificate" in caplog.text)


def altered(node: RunningNode, value: str, *, is_whole: bool = False) -> tuple[int, str | None]:
    """What the broker answers to a change of the key store of its listener SECURE."""
    module = alter_configs_request if is_whole else incremental_alter_configs_request
    config = module.AlterableConfig(name="listener.name.secure.ssl.keystore.location", value=value)
    resource = module.AlterConfigsResource(4, "1", [config])
    message_class: Any = getattr(module, "AlterConfigsRequest" if is_whole else "IncrementalAlterConfigsRequest")
    message = message_class(resources=[resource])

    def ask() -> Any:
        with Peer(node.node.client_server.bound[1]) as peer:  # type: ignore[index]
            peer.send(request(message, 1))
            return answer_of(ROUTES[message.API_KEY], 1, peer.receive_answer())

    answer = node.loop.run_until_complete(node.loop.run_in_executor(None, ask))
    return answer.responses[0].error_code, answer.responses[0].error_message


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_dynamic_store_that_cannot_be_used_is_rejected(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_whole: bool
) -> None:
    caplog.set_level(logging.INFO)
    with running(tmp_path / "data", authority.settings(authority.issue("node"))) as node:
        code, why = altered(node, "/no/such", is_whole=is_whole)
        assert code == ErrorCode.INVALID_REQUEST
        assert "ssl.keystore.location=/no/such cannot be read" in (why or "")
        code, why = altered(node, str(authority.issue("other")), is_whole=is_whole)
        assert code == ErrorCode.INVALID_REQUEST
        assert "ssl.allow.dn.changes=true" in (why or "")
        assert "has a new certificate" not in caplog.text
        fresh = authority.issue("fresh", subject="/CN=node")
        assert altered(node, str(fresh), is_whole=is_whole)[0] == 0
        node.until(lambda: "listener SECURE has a new certificate" in caplog.text)
    assert "keeps its certificate" not in caplog.text


def listener(authority: Authority, store: Path, *, between_nodes: bool = False, **more: str) -> ListenerTls:
    given = {"listeners": "SSL://localhost:0"} | authority.settings(store, **more)
    return ListenerTls(
        BrokerConfig.load("", given), "SSL", now_s=time.time(), is_server=True, is_between_nodes=between_nodes
    )


def test_dynamic_settings_replace_the_contexts(authority: Authority) -> None:
    tls = listener(authority, authority.issue("node"))
    config = tls._config
    assert not tls.configure(config)
    other = authority.issue("again", subject="/CN=node")
    changed = config.with_dynamic({}, {"listener.name.ssl.ssl.keystore.location": str(other)})
    assert tls.configure(changed)
    before = tls.contexts
    tls.replace(tls.made_again(time.time()), None)
    assert tls.contexts is not before
    assert not tls.configure(changed)


def test_nodes_that_would_reject_each_other_do_not_start(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    store = authority.issue("node")
    with pytest.raises(InvalidConfig, match="listener SSL: nodes use it among themselves, and they would reject"):
        listener(authority, store, between_nodes=True, ssl_truststore_location=str(stranger.trusted))


def test_a_new_authority_between_nodes_comes_in_steps(authority: Authority, tmp_path: Path) -> None:
    """Nodes change one after the other, so old and new must accept each other at every step."""
    other = Authority(tmp_path, "another")
    store = authority.issue("node")
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(authority.trusted.read_text())
    tls = listener(
        authority, store, between_nodes=True, ssl_truststore_location=str(trusted), ssl_client_auth="required"
    )
    other.issue("foreign", subject="/CN=node", to=store)
    with pytest.raises(InvalidConfig, match="the new certificate is not used"):
        tls.made_again(time.time())
    trusted.write_text(authority.trusted.read_text() + other.trusted.read_text())
    with pytest.raises(InvalidConfig, match="the new certificate is not used"):
        # Nodes that have not read the new trust store yet would reject it.
        tls.made_again(time.time())
    authority.issue("own", subject="/CN=node", to=store)
    tls.replace(tls.made_again(time.time()), None)
    other.issue("foreign", subject="/CN=node", to=store)
    tls.replace(tls.made_again(time.time()), None)


def test_a_certificate_is_warned_of_before_it_ends(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    tls = listener(authority, authority.issue("node", days=40))
    now_s = time.time()
    tls.warn_if_ending(now_s)
    assert not caplog.records
    tls.warn_if_ending(now_s + 11 * DAY_S)
    tls.warn_if_ending(now_s + 11.5 * DAY_S)
    assert len(caplog.records) == 1
    assert "the certificate of listener SSL (CN=node) expires in 29 days" in caplog.text
    tls.warn_if_ending(now_s + 41 * DAY_S)
    assert "has expired" in caplog.text


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "listener SECURE: a listener of TLS has no certificate"),
        ({"ssl.keystore.location": "/no/such"}, "listener SECURE: ssl.keystore.location=/no/such cannot be read"),
        ({"ssl.principal.mapping.rules": "NONE"}, "listener SECURE: ssl.principal.mapping.rules has 'NONE'"),
    ],
)
def test_a_node_without_a_usable_certificate_does_not_start(tmp_path: Path, settings: dict[str, str], why: str) -> None:
    loop = asyncio.new_event_loop()
    given = {
        "listeners": "SECURE://localhost:0",
        "listener.security.protocol.map": "SECURE:SSL",
        "http.listener": "off",
        **settings,
    }
    with pytest.raises(InvalidConfig) as refused:
        node_on(loop, tmp_path / "data", BrokerConfig.load("", given))
    assert why in str(refused.value)
    loop.close()


@pytest.mark.lengthy("starts processes")
def test_a_node_without_tls_does_not_import_it() -> None:
    script = (
        "import asyncio, sys, tempfile, pathlib\n"
        "from strandline.broker.main import node_on, stop\n"
        "from strandline.config.node_config import BrokerConfig\n"
        "async def main():\n"
        "    config = BrokerConfig.load('', {'listeners': 'A://127.0.0.1:0,B://127.0.0.1:0', 'http.listener': 'off'})\n"
        "    node = node_on(asyncio.get_running_loop(), pathlib.Path(tempfile.mkdtemp()), config)\n"
        "    node.start()\n"
        "    await stop(node)\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if 'tls' in name and 'config' not in name])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
