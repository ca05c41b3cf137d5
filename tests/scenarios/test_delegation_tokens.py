"""A delegation token on a real node: made by a user, used with SCRAM, ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.hostile.peer import Peer

import strandline
from strandline.codec.messages.create_delegation_token_request import CreateDelegationTokenRequest
from strandline.codec.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from strandline.codec.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from strandline.codec.messages.metadata_request import MetadataRequest
from strandline.codec.messages.sasl_authenticate_request import SaslAuthenticateRequest
from strandline.codec.messages.sasl_handshake_request import SaslHandshakeRequest
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.security.sasl.delegation_tokens import token_password
from strandline.security.sasl.exchange import ClientLogin, OffLoop
from strandline.security.sasl.plain import PlainLogin
from strandline.security.sasl.scram import SCRAM_SHA_256, ScramLogin

SECRET = "of the cluster"
PROPERTIES = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";',
    "delegation.token.secret.key": SECRET,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with strandline.embedded(properties=PROPERTIES) as running:
        yield running


@pytest.mark.slow
def test_tokens_that_are_over_are_removed_by_time() -> None:
    interval = {"delegation.token.expiry.check.interval.ms": "600000"}
    with strandline.embedded(clock="virtual", properties=PROPERTIES | interval) as log, Peer(log.port) as alice:
        assert log_in(alice, PlainLogin("alice", "secret")) == (0, 0)
        for lifetime_ms in (60_000, 3_600_000):
            made = alice.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=lifetime_ms), 3)
            assert made.error_code == 0

        def removed() -> int:
            """Return how many tokens the metadata log has removed; clients see none that is over."""
            command = [sys.executable, "-m", "strandline", "log", "dump", str(log.data / "__cluster_metadata-0")]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            return done.stdout.count("RemoveDelegationTokenRecord")

        log.clock.advance(minutes=5)
        assert removed() == 0
        log.clock.advance(minutes=6)
        assert removed() == 1
        log.clock.advance(hours=2)
        assert removed() == 2


def log_in(peer: Peer, login: ClientLogin) -> tuple[int, int]:
    """Return the error of the login, and how long the session lasts."""
    assert peer.ask(SaslHandshakeRequest(mechanism=login.mechanism), 1).error_code == 0
    token = login.first()
    while True:
        answer = peer.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        if answer.error_code:
            return answer.error_code, 0
        step = login.step(answer.auth_bytes)
        if step is None:
            return 0, answer.session_lifetime_ms
        token = step.then(step.work()) if isinstance(step, OffLoop) else step


def by_token(token_id: str) -> ScramLogin:
    return ScramLogin(SCRAM_SHA_256, token_id, token_password(SECRET, token_id), "nonce", is_token=True)


def test_a_token_from_its_beginning_to_its_end(broker: EmbeddedBroker) -> None:
    with Peer(broker.port) as alice, Peer(broker.port) as worker, Peer(broker.port) as late:
        assert log_in(alice, PlainLogin("alice", "secret")) == (0, 0)
        made = alice.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=600_000), 3)
        assert made.error_code == 0
        error, session_ms = log_in(worker, by_token(made.token_id))
        assert error == 0
        assert 0 < session_ms <= 600_000
        assert len(worker.ask(MetadataRequest(topics=None), 9).brokers) == 1
        refused = worker.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        shown = alice.ask(DescribeDelegationTokenRequest(owners=None), 3)
        assert [each.token_id for each in shown.tokens] == [made.token_id]
        assert alice.ask(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2).error_code == 0
        assert log_in(late, by_token(made.token_id))[0] == ErrorCode.SASL_AUTHENTICATION_FAILED
