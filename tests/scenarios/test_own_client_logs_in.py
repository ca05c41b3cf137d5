"""Our own client at a listener with SASL, from the settings that Kafka's clients have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.clients.test_sasl import JAAS, MECHANISMS, PASSWORD, PROPERTIES, USER, add_user

import strandline
from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.connection import BrokerConnection, LoginFailed
from strandline.client.failures import ClusterFailed
from strandline.client.logins import can_log_in, login_of
from strandline.codec.messages.metadata_request import MetadataRequest
from strandline.codec.messages.metadata_response import MetadataResponse
from strandline.errors import InvalidConfig
from strandline.local.embedded_broker import EmbeddedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with strandline.embedded(properties=PROPERTIES) as running:
        add_user(running.bootstrap)
        yield running


def settings(mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


def connect(broker: EmbeddedBroker, properties: dict[str, str]) -> BrokerConnection:
    return BrokerConnection(broker.host, broker.port, client_id="test", timeout_s=30, login=login_of(properties))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism(broker: EmbeddedBroker, mechanism: str) -> None:
    with closing(connect(broker, settings(mechanism))) as connection:
        assert len(connection.ask(MetadataRequest(topics=None), MetadataResponse).brokers) == 1


def test_a_jaas_text(broker: EmbeddedBroker) -> None:
    text = JAAS.replace("user_alice", 'username="alice" password')
    given = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.jaas.config": text}
    connect(broker, given).close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told_at_once(broker: EmbeddedBroker, mechanism: str) -> None:
    with pytest.raises(LoginFailed, match="rejects the login"):
        connect(broker, settings(mechanism, "wrong"))
    client_settings = ClientSettings(broker.bootstrap, login=login_of(settings(mechanism, "wrong")))
    assert "wrong" not in repr(client_settings)
    with closing(ClusterClient(client_settings)) as client, pytest.raises(ClusterFailed, match="rejects the login"):
        client.topics(None)


def test_a_mechanism_that_is_not_offered() -> None:
    properties = PROPERTIES | {"sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    with (
        strandline.embedded(properties=properties) as running,
        pytest.raises(LoginFailed, match="offers SCRAM-SHA-512"),
    ):
        connect(running, settings("PLAIN"))


def test_a_plain_listener_takes_no_login() -> None:
    with strandline.embedded() as running, pytest.raises(LoginFailed, match="plain listener"):
        connect(running, settings("PLAIN"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"security.protocol": "SASL_SSL"}, "out of reach"),
        ({"security.protocol": "SSL"}, "out of reach"),
        ({"sasl.mechanism": "GSSAPI"}, "out of reach"),
        ({"sasl.mechanism": ""}, "out of reach"),
        ({"sasl.password": ""}, "lacks a name or a password"),
        ({"sasl.jaas.config": "hunter2"}, "no login module"),
    ],
)
def test_settings_that_do_not_do(changes: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidConfig, match=says) as refused:
        login_of(settings("PLAIN") | changes)
    assert PASSWORD not in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_what_is_within_reach() -> None:
    assert can_log_in({})
    assert login_of({}) is None
    assert can_log_in(settings("SCRAM-SHA-256"))
    assert not can_log_in({"security.protocol": "ssl"})
