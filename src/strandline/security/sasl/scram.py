"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) as Kafka speaks them: no channel binding, `tokenauth` extension.

    client  n,[a=authzid],n=user,r=nonce[,tokenauth=true]
    server  r=nonce+server nonce,s=salt,i=iterations
    client  c=biws,r=nonce+server nonce,p=proof
    server  v=signature

A server keeps no password: StoredKey and ServerKey are derived from it with PBKDF2. A user that does not exist gets a
salt that is always the same, and fails at the proof as a wrong password does. So a peer cannot find out who exists.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final, NamedTuple, Protocol

from strandline.security.principal import USER, Principal, Session
from strandline.security.sasl.exchange import (
    Authenticated,
    AuthenticationFailed,
    Challenge,
    OffLoop,
    ServerStep,
    invalid_credentials,
    is_same,
)

ITERATIONS_MIN: Final = 4096
ITERATIONS_STORED_MAX: Final = 16_384
"""Iterations of a credential that the controller accepts, as in Kafka."""
ITERATIONS_ANSWERED_MAX: Final = 1_000_000
"""Iterations that a client does for a server: some seconds of work. A hostile server asks for more."""
SALT_BYTES: Final = 32
NONCE_BITS: Final = 192
TOKEN_EXTENSION: Final = "tokenauth"
_NO_BINDING: Final = b"n,,"


class ScramMechanism(NamedTuple):
    """One of the two mechanisms. `number` stands in records and requests."""

    name: str
    number: int
    digest: str
    key_bytes: int


SCRAM_SHA_256: Final = ScramMechanism("SCRAM-SHA-256", 1, "sha256", 32)
SCRAM_SHA_512: Final = ScramMechanism("SCRAM-SHA-512", 2, "sha512", 64)
SCRAM_MECHANISMS: Final = {each.name: each for each in (SCRAM_SHA_256, SCRAM_SHA_512)}
SCRAM_BY_NUMBER: Final = {each.number: each for each in SCRAM_MECHANISMS.values()}


class ScramCredential(NamedTuple):
    """What a server keeps of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


class FoundCredential(NamedTuple):
    """A credential, and the client that it stands for."""

    credential: ScramCredential
    session: Session
    expires_ms: int | None = None


class ScramCredentials(Protocol):
    """The look-up of credentials that a server is given."""

    def scram(self, mechanism: ScramMechanism, name: str) -> FoundCredential | None: ...

    def token(self, mechanism: ScramMechanism, token_id: str) -> FoundCredential | OffLoop | None:
        """Return the credential of a delegation token, or the work that makes it."""

    def fake(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        """Return what a user that does not exist is answered with: the same every time, and no password fits."""


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return PBKDF2 of the password. This takes milliseconds without the GIL: call it in a thread."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    client_key = _hmac(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    return ScramCredential(salt, iterations, stored_key, _hmac(mechanism, salted, b"Server Key"))


def fake_credential(
    mechanism: ScramMechanism, secret: bytes, name: str, like: ScramCredential | None
) -> ScramCredential:
    """Return a credential that no password fits, always the same for one name and one secret.

    It looks `like` another one: as many iterations, a salt of the same length.
    """
    about = f"{mechanism.name} {name}".encode()
    size = SALT_BYTES if like is None else len(like.salt)
    salt = hashlib.shake_256(_hmac(mechanism, secret, b"salt " + about)).digest(size)
    # The proof would have to be a preimage of this key.
    stored_key = _hmac(mechanism, secret, b"key " + about)
    return ScramCredential(salt, ITERATIONS_MIN if like is None else like.iterations, stored_key, stored_key)


def _hmac(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.digest)


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")


def escape_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape_name(text: str) -> str:
    """Return the name of a saslname. ValueError for text that is none."""
    parts = text.split("=")
    for part in parts[1:]:
        if part[:2] not in ("2C", "3D"):
            raise ValueError("an escape that is none")
    return parts[0] + "".join(("," if part[:2] == "2C" else "=") + part[2:] for part in parts[1:])


def _decoded(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _text(message: bytes) -> str:
    return message.decode("utf-8")


def _value(part: str, name: str) -> str:
    if not part.startswith(name + "=") or len(part) < len(name) + 2:
        raise ValueError(f"{name}= is missing")
    return part[len(name) + 1 :]


def _is_nonce(text: str) -> bool:
    return all("!" <= letter <= "~" for letter in text)


class ClientFirst(NamedTuple):
    """The first message of a client. `bare` is the part that the proof covers, `header` the part before."""

    header: str
    bare: str
    name: str
    nonce: str
    authorization_name: str
    is_token: bool


def parse_client_first(message: bytes) -> ClientFirst:
    """Return the parts of a client's first message. ValueError (also for UTF-8) for another form."""
    text = _text(message)
    flag, authorization, *rest = text.split(",")
    if flag != "n":
        raise ValueError("channel binding is not offered")
    authorization_name = unescape_name(_value(authorization, "a")) if authorization else ""
    if len(rest) < 2:
        raise ValueError("half a message")
    name, nonce = unescape_name(_value(rest[0], "n")), _value(rest[1], "r")
    if not _is_nonce(nonce):
        raise ValueError("a nonce that is none")
    extensions = dict(part.split("=", 1) for part in rest[2:])
    header = f"{flag},{authorization},"
    is_token = extensions.get(TOKEN_EXTENSION, "").lower() == "true"
    return ClientFirst(header, text[len(header) :], name, nonce, authorization_name, is_token)


class ClientFinal(NamedTuple):
    """The second message of a client. `without_proof` is the part that the proof covers."""

    binding: bytes
    nonce: str
    proof: bytes
    without_proof: str


def parse_client_final(message: bytes) -> ClientFinal:
    """Return the parts of a client's second message. ValueError for another form."""
    text = _text(message)
    without_proof, comma, proof = text.rpartition(",")
    parts = without_proof.split(",")
    if not comma or len(parts) < 2:
        raise ValueError("half a message")
    return ClientFinal(
        _decoded(_value(parts[0], "c")), _value(parts[1], "r"), _decoded(_value(proof, "p")), without_proof
    )


class ScramServer:
    """The server's side of one login."""

    def __init__(self, mechanism: ScramMechanism, credentials: ScramCredentials, server_nonce: str) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._server_nonce = server_nonce
        self.claimed_name = ""
        self._first: ClientFirst | None = None
        self._found: FoundCredential | None = None
        self._credential: ScramCredential | None = None
        self._server_first = ""

    def step(self, token: bytes) -> ServerStep:
        try:
            if self._first is None:
                return self._on_first(parse_client_first(token))
            return self._on_final(self._first, parse_client_final(token))
        except (ValueError, binascii.Error):
            raise invalid_credentials(self._mechanism.name) from None

    def _on_first(self, first: ClientFirst) -> ServerStep:
        if first.authorization_name not in ("", first.name):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self._first = first
        self.claimed_name = first.name
        found: FoundCredential | OffLoop | None
        if first.is_token:
            found = self._credentials.token(self._mechanism, first.name)
        else:
            found = self._credentials.scram(self._mechanism, first.name)
        if isinstance(found, OffLoop):
            then = found.then
            return OffLoop(found.work, lambda result: self._challenge(first, then(result)))
        return self._challenge(first, found)

    def _challenge(self, first: ClientFirst, found: FoundCredential | None) -> Challenge:
        self._found = found
        # Always made, so that a name that exists costs what another one costs.
        fake = self._credentials.fake(self._mechanism, first.name)
        credential = self._credential = fake if self._found is None else self._found.credential
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={first.nonce}{self._server_nonce},s={salt},i={credential.iterations}"
        return Challenge(self._server_first.encode())

    def _on_final(self, first: ClientFirst, final: ClientFinal) -> ServerStep:
        mechanism, credential = self._mechanism, self._credential
        assert credential is not None, "the first message chose it"
        # Equal, not only ending the same: a proof for another client's nonce could be replayed (CVE-2024-56128).
        is_fresh = is_same(final.nonce.encode(), (first.nonce + self._server_nonce).encode())
        is_bound = final.binding == first.header.encode()
        message = f"{first.bare},{self._server_first},{final.without_proof}".encode()
        signature = _hmac(mechanism, credential.stored_key, message)
        proof = final.proof if len(final.proof) == mechanism.key_bytes else bytes(mechanism.key_bytes)
        client_key = _xor(proof, signature)
        is_proved = is_same(hashlib.new(mechanism.digest, client_key).digest(), credential.stored_key)
        if not (is_fresh and is_bound and is_proved) or self._found is None:
            raise invalid_credentials(mechanism.name)
        verifier = base64.b64encode(_hmac(mechanism, credential.server_key, message))
        return Authenticated(self._found.session, b"v=" + verifier, self._found.expires_ms)


class ScramLogin:
    """The client's side of one login, by a password or a delegation token."""

    def __init__(
        self, mechanism: ScramMechanism, name: str, password: str, nonce: str, *, is_token: bool = False
    ) -> None:
        self.mechanism = mechanism.name
        self.name = name
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._bare = f"n={escape_name(name)},r={nonce}" + (f",{TOKEN_EXTENSION}=true" if is_token else "")
        self._verifier: bytes | None = None

    def first(self) -> bytes:
        return _NO_BINDING + self._bare.encode()

    def step(self, challenge: bytes) -> bytes | OffLoop | None:
        try:
            if self._verifier is not None:
                self._on_final(_decoded(_value(_text(challenge), "v")))
                return None
            return self._on_first(_text(challenge))
        except (ValueError, binascii.Error):
            raise AuthenticationFailed(f"the server's {self.mechanism} message cannot be read") from None

    def _on_first(self, text: str) -> OffLoop:
        parts = text.split(",")
        if len(parts) < 3:
            raise ValueError("half a message")
        nonce, salt, iterations = _value(parts[0], "r"), _decoded(_value(parts[1], "s")), int(_value(parts[2], "i"))
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationFailed("the server answers another login: its nonce is not ours")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_ANSWERED_MAX:
            raise AuthenticationFailed(
                f"the server asks for {iterations} iterations of {self.mechanism}; "
                f"expected {ITERATIONS_MIN} to {ITERATIONS_ANSWERED_MAX}"
            )
        without_proof = f"c={base64.b64encode(_NO_BINDING).decode()},r={nonce}"
        message = f"{self._bare},{text},{without_proof}".encode()
        return OffLoop(
            lambda: salted_password(self._mechanism, self._password, salt, iterations),
            lambda salted: self._prove(salted, message, without_proof),
        )

    def _prove(self, salted: bytes, message: bytes, without_proof: str) -> bytes:
        mechanism = self._mechanism
        client_key = _hmac(mechanism, salted, b"Client Key")
        stored_key = hashlib.new(mechanism.digest, client_key).digest()
        self._verifier = _hmac(mechanism, _hmac(mechanism, salted, b"Server Key"), message)
        proof = _xor(client_key, _hmac(mechanism, stored_key, message))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _on_final(self, verifier: bytes) -> None:
        assert self._verifier is not None
        if not is_same(verifier, self._verifier):
            raise AuthenticationFailed("the server did not prove that it knows the password")


def user_session(name: str) -> Session:
    return Session(Principal(USER, name))
