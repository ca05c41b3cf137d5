"""The credentials of the metadata log, looked up by name, and the checks of PLAIN passwords."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from strandline.security.principal import Session, parse_principal
from strandline.security.sasl.delegation_tokens import token_credential
from strandline.security.sasl.exchange import OffLoop, is_same
from strandline.security.sasl.scram import (
    SCRAM_BY_NUMBER,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    FoundCredential,
    ScramCredential,
    ScramMechanism,
    credential_of,
    fake_credential,
    salted_password,
    user_session,
)

KIND = "scram"
TOKEN_KIND = "token"
TOKEN_CREDENTIALS_MAX: Final = 1000
"""Credentials of delegation tokens that are remembered; one of another token takes milliseconds to make."""


class TokenSecret(NamedTuple):
    """What delegation tokens are made with (empty if there are none), and the clock that they end by."""

    secret: str
    now_ms: Callable[[], int]

    def __repr__(self) -> str:
        return "TokenSecret()"


NO_TOKENS: Final = TokenSecret("", lambda: 0)


class KeptCredentials(Protocol):
    """The records of the cluster's image, by kind; a version changes with each record of its kind."""

    versions: dict[str, int]

    def of_kind(self, kind: str) -> list[Any]: ...


class CredentialStore:
    """The SCRAM credentials of a cluster, read again when the image has other ones.

    `own` is the user that this node itself logs in with. It is accepted while the image lacks that user, because
    controllers elect a leader before the image is there.
    """

    def __init__(
        self,
        kept: Callable[[], KeptCredentials],
        secret: bytes,
        own: Mapping[tuple[int, str], ScramCredential],
        tokens: TokenSecret = NO_TOKENS,
    ) -> None:
        self._kept = kept
        self._secret = secret
        self._own = own
        self._tokens = tokens
        self._tokens_read: tuple[KeptCredentials, int] | None = None
        self._token_records: dict[str, Any] = {}
        self._of_tokens: dict[tuple[int, str], ScramCredential] = {}
        self._read: tuple[KeptCredentials, int] | None = None
        self._by_user: dict[tuple[int, str], ScramCredential] = {}
        self._alike: dict[int, ScramCredential] = {}
        """By mechanism: a credential with the salt size and the iterations that most have."""

    def scram(self, mechanism: ScramMechanism, name: str) -> FoundCredential | None:
        self._refresh()
        place = mechanism.number, name
        credential = self._by_user.get(place) or self._own.get(place)
        return None if credential is None else FoundCredential(credential, user_session(name))

    def token(self, mechanism: ScramMechanism, token_id: str) -> FoundCredential | OffLoop | None:
        """Return the credential of a delegation token, or the work that makes it; None if it is unknown or over."""
        record = self._token_record(token_id)
        if record is None:
            return None
        secret, place = self._tokens.secret, (mechanism.number, token_id)

        def found(credential: ScramCredential) -> FoundCredential:
            while len(self._of_tokens) >= TOKEN_CREDENTIALS_MAX:
                del self._of_tokens[next(iter(self._of_tokens))]
            self._of_tokens[place] = credential
            session = Session(parse_principal(record.owner), is_token=True)
            return FoundCredential(credential, session, record.expiration_timestamp)

        known = self._of_tokens.get(place)
        if known is not None:
            return found(known)
        return OffLoop(lambda: token_credential(mechanism, secret, token_id), found)

    def _token_record(self, token_id: str) -> Any:
        if not self._tokens.secret:
            return None
        kept = self._kept()
        version = kept.versions.get(TOKEN_KIND, 0)
        if self._tokens_read is None or self._tokens_read[0] is not kept or self._tokens_read[1] != version:
            self._tokens_read = kept, version
            self._token_records = {record.token_id: record for record in kept.of_kind(TOKEN_KIND)}
        record = self._token_records.get(token_id)
        is_over = record is not None and record.expiration_timestamp < self._tokens.now_ms()
        return None if is_over else record

    def fake(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        return fake_credential(mechanism, self._secret, name, self._alike.get(mechanism.number))

    @property
    def usual_mechanism(self) -> ScramMechanism:
        """Return the mechanism that most credentials are of."""
        self._refresh()
        count = Counter(number for number, _ in self._by_user)
        return SCRAM_SHA_256 if count[SCRAM_SHA_256.number] > count[SCRAM_SHA_512.number] else SCRAM_SHA_512

    def _refresh(self) -> None:
        kept = self._kept()
        version = kept.versions.get(KIND, 0)
        # Another image counts from the beginning, so its version alone says nothing.
        if self._read is not None and self._read[0] is kept and self._read[1] == version:
            return
        self._read = kept, version
        self._by_user = {
            (record.mechanism, record.name): ScramCredential(
                bytes(record.salt), record.iterations, bytes(record.stored_key), bytes(record.server_key)
            )
            for record in kept.of_kind(KIND)
            if record.mechanism in SCRAM_BY_NUMBER
        }
        self._alike = {}
        for number in SCRAM_BY_NUMBER:
            of_mechanism = [each for (other, _), each in self._by_user.items() if other == number]
            if of_mechanism:
                shapes = Counter((len(each.salt), each.iterations) for each in of_mechanism)
                usual = shapes.most_common(1)[0][0]
                self._alike[number] = next(each for each in of_mechanism if (len(each.salt), each.iterations) == usual)


class JaasUsers:
    """The users of PLAIN that a JAAS text names."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = {name: _digest(password) for name, password in passwords.items()}

    def check(self, name: str, password: str) -> bool:
        given = _digest(password)
        expected = self._passwords.get(name)
        # An unknown user is compared, too, so that it costs the same.
        return is_same(given, _digest("") if expected is None else expected) and expected is not None


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode("utf-8", "surrogatepass")).digest()


class ScramUsers:
    """The users of PLAIN whose passwords are checked against SCRAM credentials. A check takes milliseconds."""

    def __init__(self, store: CredentialStore) -> None:
        self._store = store

    def check(self, name: str, password: str) -> OffLoop:
        mechanism = self._store.usual_mechanism
        other = SCRAM_SHA_256 if mechanism is SCRAM_SHA_512 else SCRAM_SHA_512
        found = self._store.scram(mechanism, name)
        if found is None and (found := self._store.scram(other, name)) is not None:
            mechanism = other
        is_known = found is not None
        credential = self._store.fake(mechanism, name) if found is None else found.credential

        def work() -> bytes:
            return salted_password(mechanism, password, credential.salt, credential.iterations)

        def then(salted: bytes) -> bool:
            made = credential_of(mechanism, salted, credential.salt, credential.iterations)
            return is_same(made.stored_key, credential.stored_key) and is_known

        return OffLoop(work, then)
