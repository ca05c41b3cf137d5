"""From settings to what authenticates a listener, and to how a node logs in to others."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.broker.network.sasl.authentication import SaslListener
from strandline.broker.network.sasl.sasl_listeners import node_login, sasl_listener
from strandline.config.node_config import BrokerConfig
from strandline.errors import InvalidConfig
from strandline.quorum.image.kept_records import KeptRecords
from strandline.security.sasl.exchange import Authenticated, AuthenticationFailed, Challenge, ClientLogin, OffLoop
from strandline.security.sasl.plain import PlainLogin

LISTENERS = (
    "listeners=CLIENTS://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
    "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@h:9093,2@i:9093\n"
    "listener.security.protocol.map=CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT\n"
)
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="node" password="hunter2";'
PLAIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="node" password="hunter2" user_alice="secret";'
)


def runtime() -> Any:
    return SimpleNamespace(random=random.Random(1), now_ms=lambda: 0, monotonic=lambda: 0.0)


def listener(content: str, name: str = "CLIENTS") -> SaslListener:
    image: Any = SimpleNamespace(kept=KeptRecords())
    made = sasl_listener(BrokerConfig.load(LISTENERS + content), name, runtime(), lambda: image)
    assert made is not None
    return made


def log_in(made: SaslListener, mechanism: str, login: ClientLogin) -> Authenticated:
    exchange, token = made.mechanisms[mechanism].begin(), login.first()
    while True:
        step = exchange.step(token)
        if isinstance(step, OffLoop):
            step = step.then(step.work())
        if isinstance(step, Authenticated):
            return step
        assert isinstance(step, Challenge)
        answer = login.step(step.token)
        assert answer is not None
        token = answer.then(answer.work()) if isinstance(answer, OffLoop) else answer


def test_a_listener_without_sasl() -> None:
    image: Any = None
    assert sasl_listener(BrokerConfig(), "PLAINTEXT", runtime(), image) is None
    assert node_login(BrokerConfig(), "PLAINTEXT", "PLAIN", "x", runtime()) is None


def test_plain_users_and_sessions() -> None:
    made = listener(
        f"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256\nlistener.name.clients.plain.sasl.jaas.config={PLAIN}\n"
        "listener.name.clients.plain.connections.max.reauth.ms=5000\nsasl.server.max.receive.size=4096\n"
    )
    assert list(made.mechanisms) == ["PLAIN", "SCRAM-SHA-256"]
    assert [each.session_ms_max for each in made.mechanisms.values()] == [5000, 0]
    assert made.frame_size_max == 4096
    assert log_in(made, "PLAIN", PlainLogin("alice", "secret")).session.principal.name == "alice"
    with pytest.raises(AuthenticationFailed):
        log_in(made, "PLAIN", PlainLogin("node", "hunter2"))


def test_the_own_user_logs_in_to_controllers_before_there_is_an_image() -> None:
    settings = f"sasl.enabled.mechanisms=SCRAM-SHA-512\nsasl.jaas.config={SCRAM}\n"
    login = node_login(BrokerConfig.load(LISTENERS + settings), "CONTROLLER", "SCRAM-SHA-512", "x", runtime())
    assert login is not None
    done = log_in(listener(settings, "CONTROLLER"), "SCRAM-SHA-512", login())
    assert done.session.principal.name == "node"
    with pytest.raises(AuthenticationFailed):
        log_in(listener(settings, "CLIENTS"), "SCRAM-SHA-512", login())


def salts(settings: str, seeds: tuple[int, ...]) -> set[bytes]:
    found = set()
    image: Any = SimpleNamespace(kept=KeptRecords())
    for seed in seeds:
        loop = runtime()
        loop.random = random.Random(seed)
        made = sasl_listener(BrokerConfig.load(LISTENERS + settings), "CLIENTS", loop, lambda: image)
        assert made is not None
        challenge = made.mechanisms["SCRAM-SHA-512"].begin().step(b"n,,n=mallory,r=abc")
        assert isinstance(challenge, Challenge)
        found.add(challenge.token.split(b",")[1])
    return found


def test_nodes_with_one_key_answer_unknown_users_alike() -> None:
    settings = f"sasl.enabled.mechanisms=SCRAM-SHA-512\nsasl.jaas.config={SCRAM}\n"
    assert len(salts(settings + "delegation.token.secret.key=of the cluster\n", (1, 2))) == 1
    assert len(salts(settings, (1, 2))) == 2, "never from a password: a peer could try passwords against it"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("sasl.enabled.mechanisms=PLAIN\n", r"listener\.name\.clients\.plain\.sasl\.jaas\.config is not set"),
        ("sasl.enabled.mechanisms=PLAIN\nsasl.jaas.config=hunter2\n", r"listener\.name\.clients\.plain"),
    ],
)
def test_a_listener_that_lacks_users(content: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=says) as refused:
        listener(content)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "mechanism", "says"),
    [
        ("", "GSSAPI", "GSSAPI"),
        ("", "SCRAM-SHA-512", "is not set, or lacks options"),
        (f"sasl.jaas.config={SCRAM.replace('username', 'user')}\n", "SCRAM-SHA-512", "lacks options"),
    ],
)
def test_a_node_that_could_not_log_in(content: str, mechanism: str, says: str) -> None:
    config = BrokerConfig.load(f"{LISTENERS}sasl.enabled.mechanisms=SCRAM-SHA-512\n{content}")
    with pytest.raises(InvalidConfig, match=says) as refused:
        node_login(config, "CLIENTS", mechanism, "sasl.mechanism.inter.broker.protocol", runtime())
    assert "hunter2" not in str(refused.value)
