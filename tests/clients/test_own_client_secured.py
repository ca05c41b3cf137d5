"""Our own client against a secured node: it gets in with Kafka's settings, or says in one sentence why not."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.authority import Authority
from tests.secured_node import JAAS, PASSWORD, SecuredNode, secured_node

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.failures import ClusterFailed
from strandline.client.security import ClientSecurity, NotAdmitted
from strandline.codec.messages.metadata_request import MetadataRequest
from strandline.codec.messages.metadata_response import MetadataResponse
from strandline.errors import InvalidConfig

TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    # Without an audit, whose topic would be in the lists that clients get.
    settings = {"connections_max_reauth_ms": "2000", "strandline_audit_enable": "false"}
    with secured_node(tmp_path_factory.mktemp("secured"), **settings) as node:
        yield node


opened: list[ClusterClient] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while opened:
        opened.pop().close()


def client_of(node: SecuredNode, *, port: int = 0, host: str = "127.0.0.1", **changed: str) -> ClusterClient:
    """Return a client with the settings of the administrator, some of them changed; underscores stand for dots."""
    settings = node.admin | {name.replace("_", "."): value for name, value in changed.items()}
    security = ClientSecurity.of({name: value for name, value in settings.items() if value})
    client = ClusterClient(ClientSettings.within(f"{host}:{port or node.port}", "test", TIMEOUT_S, security))
    opened.append(client)
    return client


def refusal(client: ClusterClient) -> str:
    with pytest.raises(ClusterFailed) as caught:
        client.topics(None)
    # At once, without attempts until the deadline.
    assert isinstance(caught.value.__cause__, NotAdmitted)
    return str(caught.value)


def loss(client: ClusterClient) -> str:
    """Return the failure of one attempt."""
    with pytest.raises(Exception) as caught:
        client.ask_any(MetadataRequest(topics=None), MetadataResponse)
    return str(caught.value)


def test_a_login_over_tls_that_is_renewed_in_time(node: SecuredNode) -> None:
    client = client_of(node)
    deadline = time.monotonic() + 4.5
    connections = set()
    while time.monotonic() < deadline:
        time.sleep(0.05)
        assert client.topics(None) == {}
        connections.add(id(client.connection(("127.0.0.1", node.port))))
    assert len(connections) == 1


def test_the_names_of_librdkafka(node: SecuredNode) -> None:
    given = {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(node.authority.trusted),
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "admin",
        "sasl.password": PASSWORD,
    }
    settings = ClientSettings(node.bootstrap, security=ClientSecurity.of(given))
    with closing(ClusterClient(settings)) as client:
        assert client.topics(None) == {}
    # The settings go to workers, and are a part of keys.
    assert copy.deepcopy(settings) == settings
    assert hash(copy.deepcopy(settings)) == hash(settings)


def test_a_certificate_of_the_client(node: SecuredNode) -> None:
    store = node.authority.issue("operator")
    given = {"security_protocol": "SSL", "ssl_keystore_location": str(store)}
    assert client_of(node, port=node.mutual_port, **given).topics(None) == {}
    apart = {"security_protocol": "SSL", "ssl_certificate_location": str(store), "ssl_key_location": str(store)}
    assert client_of(node, port=node.mutual_port, **apart).topics(None) == {}
    locked = node.authority.issue("locked", subject="/CN=operator", password="open sesame")
    with_password = given | {"ssl_keystore_location": str(locked), "ssl_key_password": "open sesame"}
    assert client_of(node, port=node.mutual_port, **with_password).topics(None) == {}


def test_the_same_settings_for_librdkafka(node: SecuredNode) -> None:
    store = str(node.authority.issue("operator"))
    mutual = {**node.admin, "security.protocol": "SSL", "ssl.keystore.location": store}
    in_words = mutual | {"ssl.truststore.certificates": node.authority.trusted.read_text()}
    del in_words["ssl.truststore.location"]
    for given, port in ((node.admin, node.port), (mutual, node.mutual_port), (in_words, node.mutual_port)):
        settings = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0} | ClientSecurity.of(given).librdkafka()
        assert AdminClient(settings).list_topics(timeout=TIMEOUT_S).topics == {}


def test_a_wrong_password_is_refused_and_not_shown(node: SecuredNode) -> None:
    client = client_of(node, sasl_jaas_config=JAAS.replace(PASSWORD, "a wrong secret"))
    said = refusal(client)
    assert "refused the login of 'admin'" in said
    assert "a wrong secret" not in said
    assert "a wrong secret" not in repr(client.settings)


def test_certificates_that_are_not_accepted(node: SecuredNode, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    assert "is not trusted" in refusal(client_of(node, ssl_truststore_location=str(other.trusted)))
    strange = {"security_protocol": "SSL", "ssl_keystore_location": str(other.issue("stranger"))}
    said = loss(client_of(node, port=node.mutual_port, **strange))
    assert "does not accept the certificate" in said or "was lost" in said
    said = loss(client_of(node, port=node.mutual_port, security_protocol="SSL"))
    assert "require" in said
    assert "ssl.keystore.location" in said


def test_a_host_that_the_certificate_does_not_name(node: SecuredNode) -> None:
    said = refusal(client_of(node, host="localhost", port=node.mutual_port, security_protocol="SSL"))
    assert "does not name localhost" in said
    unchecked = client_of(
        node,
        host="localhost",
        port=node.mutual_port,
        security_protocol="SSL",
        ssl_endpoint_identification_algorithm="none",
        ssl_keystore_location=str(node.authority.issue("operator")),
    )
    assert unchecked.ask_any(MetadataRequest(topics=None), MetadataResponse).topics == []


def test_the_protocol_of_another_listener(node: SecuredNode) -> None:
    assert "does not speak TLS" in refusal(client_of(node, port=node.plain_port))
    assert "has no login" in refusal(client_of(node, port=node.plain_port, security_protocol="SASL_PLAINTEXT"))
    assert "TLS" in loss(client_of(node, security_protocol="SASL_PLAINTEXT"))
    assert "TLS" in loss(client_of(node, security_protocol="PLAINTEXT"))
    assert "require a login" in loss(client_of(node, security_protocol="SSL"))
    assert "does not offer sasl.mechanism=PLAIN, but SCRAM-SHA-512" in refusal(client_of(node, sasl_mechanism="PLAIN"))


def test_a_store_that_is_missing(node: SecuredNode) -> None:
    assert "ssl.truststore.location=/missing.pem cannot be read" in refusal(
        client_of(node, ssl_truststore_location="/missing.pem")
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"security.protocol": "TLS"}, "expected one of PLAINTEXT, SSL"),
        ({"sasl.jaas.config": ""}, "needs a name and a password"),
        ({"sasl.jaas.config": "hidden"}, "is no login module"),
    ],
)
def test_settings_that_cannot_be_followed(changed: dict[str, str], said: str) -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS}
    with pytest.raises(InvalidConfig, match=said) as caught:
        ClientSecurity.of({name: value for name, value in (given | changed).items() if value})
    assert "hidden" not in str(caught.value)


def test_other_mechanisms_are_left_to_librdkafka() -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.scope": "logs"}
    security = ClientSecurity.of(given)
    assert not security.is_spoken
    assert security.librdkafka()["sasl.oauthbearer.scope"] == "logs"
    with pytest.raises(NotAdmitted, match="OAUTHBEARER is not spoken here"):
        security.login()
