"""Delegation tokens: who may make, renew, end and see them, and how they log in."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.handlers.node_of_one import NodeOfOne, ask
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.codec.messages.create_delegation_token_request import CreatableRenewers, CreateDelegationTokenRequest
from strandline.codec.messages.create_delegation_token_response import CreateDelegationTokenResponse
from strandline.codec.messages.describe_delegation_token_request import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from strandline.codec.messages.describe_delegation_token_response import DescribeDelegationTokenResponse
from strandline.codec.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from strandline.codec.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
from strandline.codec.messages.remove_delegation_token_record import RemoveDelegationTokenRecord
from strandline.codec.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from strandline.codec.messages.renew_delegation_token_response import RenewDelegationTokenResponse
from strandline.errors import ErrorCode
from strandline.handlers import k38_create_delegation_token as k38
from strandline.handlers import k39_renew_delegation_token as k39
from strandline.handlers import k40_expire_delegation_token as k40
from strandline.handlers import k41_describe_delegation_token as k41
from strandline.security.principal import ANONYMOUS_SESSION, Principal, Session
from strandline.security.sasl.credential_store import CredentialStore, TokenSecret
from strandline.security.sasl.delegation_tokens import token_hmac, token_password
from strandline.security.sasl.exchange import Authenticated, AuthenticationFailed, Challenge, OffLoop
from strandline.security.sasl.scram import SCRAM_MECHANISMS, SCRAM_SHA_256, ScramLogin, ScramMechanism, ScramServer

SECRET = "of all nodes"
ALICE, BOB, CAROL = (Session(Principal("User", name)) for name in ("alice", "bob", "carol"))
DAY_MS = 86_400_000


class Clocked(ManualRuntime):
    """A runtime whose wall clock a test moves."""

    wall_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.wall_ms


def node() -> NodeOfOne:
    return NodeOfOne(delegation_token_secret_key=SECRET, runtime=Clocked())


def wait(at: NodeOfOne, ms: int) -> None:
    assert isinstance(at.runtime, Clocked)
    at.runtime.wall_ms += ms


def create(at: NodeOfOne, by: Session = ALICE, *, renewers: tuple[str, ...] = ("User:bob",), **fields: Any) -> Any:
    named = [CreatableRenewers(*each.split(":")) for each in renewers]
    request = CreateDelegationTokenRequest(renewers=named, **{"max_lifetime_ms": -1} | fields)
    return ask(k38, at, request, 3, CreateDelegationTokenResponse, by)


def renew(at: NodeOfOne, token: bytes, by: Session, period_ms: int = -1) -> Any:
    request = RenewDelegationTokenRequest(hmac=token, renew_period_ms=period_ms)
    return ask(k39, at, request, 2, RenewDelegationTokenResponse, by)


def expire(at: NodeOfOne, token: bytes, by: Session, period_ms: int = -1) -> Any:
    request = ExpireDelegationTokenRequest(hmac=token, expiry_time_period_ms=period_ms)
    return ask(k40, at, request, 2, ExpireDelegationTokenResponse, by)


def describe(at: NodeOfOne, by: Session, *owners: str) -> Any:
    named = [DescribeDelegationTokenOwner("User", each) for each in owners] or None
    return ask(k41, at, DescribeDelegationTokenRequest(owners=named), 3, DescribeDelegationTokenResponse, by)


def test_a_token_is_made_without_its_hmac_in_the_log() -> None:
    at = node()
    made = create(at)
    now_ms = at.runtime.now_ms()
    assert made.error_code == 0
    assert made.hmac == token_hmac(SECRET, made.token_id)
    assert (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms) == (
        now_ms,
        now_ms + DAY_MS,
        now_ms + 7 * DAY_MS,
    )
    assert (made.principal_name, made.token_requester_principal_name) == ("alice", "alice")
    assert made.hmac not in repr([vars_of(each) for each in at.log]).encode()


def vars_of(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in record.FIELDS}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version(version: int) -> None:
    at = node()
    request = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
    made = ask(k38, at, request, version, CreateDelegationTokenResponse, ALICE)
    assert made.error_code == 0
    shown = ask(k41, at, DescribeDelegationTokenRequest(owners=None), version, DescribeDelegationTokenResponse, ALICE)
    assert [each.token_id for each in shown.tokens] == [made.token_id]


def test_a_short_life() -> None:
    at = node()
    made = create(at, max_lifetime_ms=1000)
    assert made.expiry_timestamp_ms == made.max_timestamp_ms == at.runtime.now_ms() + 1000
    assert create(at, max_lifetime_ms=100 * DAY_MS).max_timestamp_ms == at.runtime.now_ms() + 7 * DAY_MS


def test_refused_requests() -> None:
    at = node()
    made = create(at)
    for session in (ANONYMOUS_SESSION, Session(ALICE.principal, is_token=True)):
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert create(at, session).error_code == code
        assert renew(at, made.hmac, session).error_code == code
        assert expire(at, made.hmac, session).error_code == code
        assert describe(at, session).error_code == code
    assert create(at, renewers=("Group:g",)).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    other = {"owner_principal_type": "User", "owner_principal_name": "bob"}
    assert create(at, **other).error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert renew(at, b"unknown", ALICE).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    for change in (renew, expire):
        assert change(at, made.hmac, CAROL).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


def test_without_a_secret_there_are_none() -> None:
    at = NodeOfOne()
    code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert create(at).error_code == code
    assert renew(at, b"x", ALICE).error_code == code
    assert expire(at, b"x", ALICE).error_code == code
    assert describe(at, ALICE).error_code == code


def test_owner_and_renewers_change_its_end() -> None:
    at = node()
    made = create(at)
    now_ms = at.runtime.now_ms()
    assert renew(at, made.hmac, BOB, 5000).expiry_timestamp_ms == now_ms + 5000
    assert renew(at, made.hmac, ALICE).expiry_timestamp_ms == now_ms + DAY_MS
    assert expire(at, made.hmac, BOB, 9 * DAY_MS).expiry_timestamp_ms == made.max_timestamp_ms
    assert expire(at, made.hmac, ALICE, -1).error_code == 0
    assert isinstance(at.log[-1], RemoveDelegationTokenRecord)
    assert renew(at, made.hmac, ALICE).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_a_token_that_is_over() -> None:
    at = node()
    made = create(at, max_lifetime_ms=1000)
    wait(at, 2000)
    assert renew(at, made.hmac, ALICE).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert describe(at, ALICE).tokens == []
    create(at)
    removed = [each.token_id for each in at.log if isinstance(each, RemoveDelegationTokenRecord)]
    assert removed == [made.token_id]


def test_tokens_are_shown_to_owner_and_renewers() -> None:
    at = node()
    made = create(at)
    for session in (ALICE, BOB):
        (shown,) = describe(at, session).tokens
        assert (shown.token_id, shown.hmac, shown.principal_name) == (made.token_id, made.hmac, "alice")
        assert [each.principal_name for each in shown.renewers] == ["bob"]
    assert describe(at, CAROL).tokens == []
    assert describe(at, BOB, "bob").tokens == []
    assert len(describe(at, BOB, "alice").tokens) == 1


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS.values(), ids=SCRAM_MECHANISMS)
def test_a_token_logs_in_as_its_owner(mechanism: ScramMechanism) -> None:
    at = node()
    made = create(at)
    store = CredentialStore(lambda: at.image.kept, b"", {}, TokenSecret(SECRET, at.runtime.now_ms))
    for is_first in (True, False):
        password = token_password(SECRET, made.token_id)
        login = ScramLogin(mechanism, made.token_id, password, "abc", is_token=True)
        server = ScramServer(mechanism, store, "def")
        step = server.step(login.first())
        assert isinstance(step, OffLoop) == is_first, "the credential is made once, in a thread"
        if isinstance(step, OffLoop):
            step = step.then(step.work())
        assert isinstance(step, Challenge)
        proof = login.step(step.token)
        assert isinstance(proof, OffLoop)
        done = server.step(proof.then(proof.work()))
        assert isinstance(done, Authenticated)
        assert done.session == Session(ALICE.principal, is_token=True)
        assert done.expires_ms == made.expiry_timestamp_ms
    assert SECRET not in repr(TokenSecret(SECRET, at.runtime.now_ms))


def test_tokens_that_do_not_log_in() -> None:
    at = node()
    made = create(at, max_lifetime_ms=1000)
    store = CredentialStore(lambda: at.image.kept, b"", {}, TokenSecret(SECRET, at.runtime.now_ms))
    first = ScramLogin(SCRAM_SHA_256, made.token_id, "x", "abc").first()
    assert isinstance(ScramServer(SCRAM_SHA_256, store, "def").step(first), Challenge), "without tokenauth it is a user"
    wait(at, 2000)
    server = ScramServer(SCRAM_SHA_256, store, "def")
    login = ScramLogin(SCRAM_SHA_256, made.token_id, token_password(SECRET, made.token_id), "abc", is_token=True)
    step = server.step(login.first())
    assert isinstance(step, Challenge)
    proof = login.step(step.token)
    assert isinstance(proof, OffLoop)
    with pytest.raises(AuthenticationFailed):
        server.step(proof.then(proof.work()))
