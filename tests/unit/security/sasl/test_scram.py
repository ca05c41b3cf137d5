"""SCRAM: the example of RFC 7677, both sides against each other, and every way to fail."""

from __future__ import annotations

import base64
import contextlib
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.security.principal import Principal, Session
from strandline.security.sasl.exchange import Authenticated, AuthenticationFailed, Challenge, OffLoop
from strandline.security.sasl.scram import (
    SCRAM_MECHANISMS,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    FoundCredential,
    ScramCredential,
    ScramLogin,
    ScramMechanism,
    ScramServer,
    credential_of,
    escape_name,
    fake_credential,
    parse_client_final,
    parse_client_first,
    salted_password,
    unescape_name,
    user_session,
)

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
BOTH = pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS.values(), ids=SCRAM_MECHANISMS)


class Store:
    """Credentials in a dictionary, and how often each look-up was made."""

    def __init__(self, passwords: dict[str, str], tokens: dict[str, str] | None = None) -> None:
        self.passwords, self.tokens = passwords, tokens or {}
        self.fakes = 0

    def scram(self, mechanism: ScramMechanism, name: str) -> FoundCredential | None:
        if name not in self.passwords:
            return None
        return FoundCredential(_credential(mechanism, self.passwords[name]), user_session(name))

    def token(self, mechanism: ScramMechanism, token_id: str) -> FoundCredential | None:
        if token_id not in self.tokens:
            return None
        owner = Session(Principal("User", "owner"), is_token=True)
        return FoundCredential(_credential(mechanism, self.tokens[token_id]), owner, 5000)

    def fake(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        self.fakes += 1
        return fake_credential(mechanism, b"secret", name, None)


def _credential(mechanism: ScramMechanism, password: str) -> ScramCredential:
    return credential_of(mechanism, salted_password(mechanism, password, SALT, 4096), SALT, 4096)


def log_in(server: ScramServer, login: ScramLogin) -> Authenticated:
    challenge = server.step(login.first())
    assert isinstance(challenge, Challenge)
    proof = login.step(challenge.token)
    assert isinstance(proof, OffLoop)
    done = server.step(proof.then(proof.work()))
    assert isinstance(done, Authenticated)
    assert login.step(done.token) is None
    return done


def test_example_of_the_rfc() -> None:
    login = ScramLogin(SCRAM_SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    server = ScramServer(SCRAM_SHA_256, Store({"user": "pencil"}), "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert login.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = server.step(login.first())
    assert challenge == Challenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    proof = login.step(challenge.token)
    assert isinstance(proof, OffLoop)
    final = proof.then(proof.work())
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert server.step(final) == Authenticated(user_session("user"), b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@BOTH
def test_both_sides_agree(mechanism: ScramMechanism) -> None:
    store = Store({"al,i=ce": "p\N{LATIN SMALL LETTER A WITH DIAERESIS}ss"})
    login = ScramLogin(mechanism, "al,i=ce", "p\N{LATIN SMALL LETTER A WITH DIAERESIS}ss", "abc")
    assert log_in(ScramServer(mechanism, store, "def"), login).session == user_session("al,i=ce")


@BOTH
def test_a_token_stands_for_its_owner(mechanism: ScramMechanism) -> None:
    store = Store({}, {"token-1": "hmac"})
    done = log_in(ScramServer(mechanism, store, "def"), ScramLogin(mechanism, "token-1", "hmac", "abc", is_token=True))
    assert done.session == Session(Principal("User", "owner"), is_token=True)
    assert done.expires_ms == 5000


def test_a_token_is_no_user() -> None:
    store = Store({}, {"token-1": "hmac"})
    with pytest.raises(AuthenticationFailed):
        log_in(ScramServer(SCRAM_SHA_256, store, "def"), ScramLogin(SCRAM_SHA_256, "token-1", "hmac", "abc"))


@BOTH
def test_a_wrong_password_and_an_unknown_user_look_the_same(mechanism: ScramMechanism) -> None:
    messages = []
    for name in ("alice", "mallory"):
        store = Store({"alice": "right"})
        with pytest.raises(AuthenticationFailed) as failed:
            log_in(ScramServer(mechanism, store, "def"), ScramLogin(mechanism, name, "wrong", "abc"))
        assert store.fakes == 1
        messages.append(str(failed.value))
    assert messages[0] == messages[1]
    assert "invalid credentials" in messages[0]


def test_an_unknown_user_always_gets_the_same_salt() -> None:
    answers = [ScramServer(SCRAM_SHA_512, Store({}), "def").step(b"n,,n=mallory,r=abc") for _ in range(2)]
    assert answers[0] == answers[1]
    assert fake_credential(SCRAM_SHA_512, b"other", "mallory", None).salt not in str(answers[0]).encode()


def test_a_fake_looks_like_others() -> None:
    like = ScramCredential(b"x" * 26, 9000, b"", b"")
    fake = fake_credential(SCRAM_SHA_256, b"secret", "mallory", like)
    assert (len(fake.salt), fake.iterations) == (26, 9000)


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final.replace(b"r=abcdef", b"r=xyzdef"),
        lambda final: final.replace(b"r=abcdef", b"r=abcdefx"),
        lambda final: final.replace(b"r=abcdef", b"r=def"),
        lambda final: final.replace(b"c=biws", b"c=eSws"),
        lambda final: final[: final.index(b",p=")] + b",p=AAAA",
        lambda final: final[: final.index(b",p=")] + b",p=",
        lambda final: final[: final.index(b",p=")],
        lambda final: b"",
        lambda final: b"\xff\xfe",
        lambda final: b"n,,n=alice,r=abc",
    ],
)
def test_a_changed_proof_fails(change: object) -> None:
    assert callable(change)
    server, login = (
        ScramServer(SCRAM_SHA_256, Store({"alice": "p"}), "def"),
        ScramLogin(SCRAM_SHA_256, "alice", "p", "abc"),
    )
    challenge = server.step(login.first())
    assert isinstance(challenge, Challenge)
    proof = login.step(challenge.token)
    assert isinstance(proof, OffLoop)
    with pytest.raises(AuthenticationFailed):
        server.step(change(proof.then(proof.work())))


def test_the_nonce_is_checked_even_if_the_proof_fits() -> None:
    """A peer that saw another login replays it: its nonce ends with the server's, and the proof is right for it."""
    store, seen = Store({"alice": "p"}), "other"
    server = ScramServer(SCRAM_SHA_256, store, "def")
    challenge = server.step(b"n,,n=alice,r=abc")
    assert isinstance(challenge, Challenge)
    login = ScramLogin(SCRAM_SHA_256, "alice", "p", "abc")
    # The proof covers the first message and the challenge as they were, and a final message with the old nonce.
    found = login.step(challenge.token)
    assert isinstance(found, OffLoop)
    without_proof = f"c=biws,r={seen}def"
    message = b"n=alice,r=abc," + challenge.token + b"," + without_proof.encode()
    forged = login._prove(found.work(), message, without_proof)
    with pytest.raises(AuthenticationFailed):
        server.step(forged)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=alice",
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=alice,r=",
        b"n,,m=x,n=alice,r=abc",
        b"n,,n=al=2Xice,r=abc",
        b"n,,n=al=,r=abc",
        b"n,x,n=alice,r=abc",
        b"n,,n=alice,r=a\x00b",
        b"n,,n=alice,r=abc,tokenauth",
        b"n,,n=\xff,r=abc",
    ],
)
def test_first_messages_that_are_none(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        ScramServer(SCRAM_SHA_256, Store({"alice": "p"}), "def").step(message)


def test_another_identity_is_refused() -> None:
    with pytest.raises(AuthenticationFailed, match="authorization id"):
        ScramServer(SCRAM_SHA_256, Store({"alice": "p"}), "def").step(b"n,a=admin,n=alice,r=abc")
    assert isinstance(
        ScramServer(SCRAM_SHA_256, Store({"alice": "p"}), "def").step(b"n,a=alice,n=alice,r=abc"), Challenge
    )


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=abcdef,s=AAAA",
        b"r=xyzdef,s=AAAA,i=4096",
        b"r=abc,s=AAAA,i=4096",
        b"r=abcdef,s=AAAA,i=4095",
        b"r=abcdef,s=AAAA,i=1000001",
        b"r=abcdef,s=AAAA,i=999999999999999999999",
        b"r=abcdef,s=%%%%,i=4096",
        b"e=other-error",
    ],
)
def test_a_client_refuses_odd_challenges(challenge: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        ScramLogin(SCRAM_SHA_256, "alice", "p", "abc").step(challenge)


def test_a_client_checks_the_server() -> None:
    login = ScramLogin(SCRAM_SHA_256, "alice", "p", "abc")
    proof = login.step(b"r=abcdef,s=AAAA,i=4096")
    assert isinstance(proof, OffLoop)
    proof.then(proof.work())
    with pytest.raises(AuthenticationFailed):
        login.step(b"v=" + base64.b64encode(hashlib.sha256().digest()))


def test_credentials_do_not_show() -> None:
    credential = _credential(SCRAM_SHA_256, "p")
    assert repr(credential.stored_key) not in repr(credential)


@given(st.text())
def test_names_are_escaped_both_ways(name: str) -> None:
    assert unescape_name(escape_name(name)) == name
    assert "," not in escape_name(name)


@given(st.binary(max_size=200))
def test_only_declared_errors_escape(message: bytes) -> None:
    for parse in (parse_client_first, parse_client_final):
        with contextlib.suppress(ValueError):
            parse(message)
