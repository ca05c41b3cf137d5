"""JSON Web Tokens of OAUTHBEARER, checked against the public keys of their issuer (RFC 7515, 7517, 7519).

Only signatures with a private key are accepted, by an algorithm that fits the type of the key. So neither `none` nor a
public key that is used as an HMAC secret passes. Loaded only by a listener with OAUTHBEARER, because `cryptography` is
an extra: `pip install strandline[oauth]`.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

from strandline.errors import InvalidConfig
from strandline.security.sasl.oauthbearer import InvalidToken, ValidToken

KEY_ID_CHARACTERS_MAX: Final = 1000
RSA_BITS_MIN: Final = 2048
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {
    "P-256": ("SECP256R1", "ES256", 32),
    "P-384": ("SECP384R1", "ES384", 48),
    "P-521": ("SECP521R1", "ES512", 66),
}
ALGORITHMS: Final = (*_RSA, "ES256", "ES384", "ES512", "EdDSA")


class VerificationKey(NamedTuple):
    """A public key, and the algorithms that may be used with it."""

    key: Any
    algorithms: tuple[str, ...]
    part_bytes: int = 0
    """Bytes of each of the two numbers of an ECDSA signature."""


class TokenRules(NamedTuple):
    """What a token must say."""

    issuer: str
    audience: frozenset[str]
    skew_s: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"


def _crypto(name: str) -> Any:
    try:
        return import_module(f"cryptography.{name}")
    except ImportError:
        raise InvalidConfig(
            "OAUTHBEARER needs the package cryptography; expected: pip install strandline[oauth]"
        ) from None


def parse_keys(content: bytes) -> dict[str, VerificationKey]:
    """Return the keys of a JWKS by their ids. InvalidConfig if it has none that can be used."""
    try:
        entries = json.loads(content)["keys"]
        found = {str(entry.get("kid", "")): key for entry in entries if (key := _key(entry)) is not None}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error):
        raise InvalidConfig("the JWKS cannot be read; expected a JSON object with an array `keys`") from None
    if not found:
        raise InvalidConfig("the JWKS has no public key for signatures; expected an RSA, EC or Ed25519 key")
    return found


def _key(entry: Mapping[str, Any]) -> VerificationKey | None:
    """Return the key of one entry; None for what is no key for signatures, such as a secret."""
    if entry.get("use", "sig") != "sig":
        return None
    kind, made = entry.get("kty"), None
    if kind == "RSA":
        numbers = _crypto("hazmat.primitives.asymmetric.rsa").RSAPublicNumbers(_number(entry["e"]), _number(entry["n"]))
        key = numbers.public_key()
        made = VerificationKey(key, _RSA) if key.key_size >= RSA_BITS_MIN else None
    elif kind == "EC" and entry.get("crv") in _CURVES:
        curve, algorithm, size = _CURVES[entry["crv"]]
        ec = _crypto("hazmat.primitives.asymmetric.ec")
        numbers = ec.EllipticCurvePublicNumbers(_number(entry["x"]), _number(entry["y"]), getattr(ec, curve)())
        made = VerificationKey(numbers.public_key(), (algorithm,), size)
    elif kind == "OKP" and entry.get("crv") == "Ed25519":
        ed = _crypto("hazmat.primitives.asymmetric.ed25519")
        made = VerificationKey(ed.Ed25519PublicKey.from_public_bytes(_bytes(entry["x"])), ("EdDSA",))
    if made is not None and "alg" in entry:
        made = made._replace(algorithms=tuple(each for each in made.algorithms if each == entry["alg"]))
    return made


def _bytes(text: str) -> bytes:
    # No other letters: Python would pass over them, and one token would have many forms.
    if not text.isascii() or any(not (letter.isalnum() or letter in "-_") for letter in text):
        raise ValueError("no base64url")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _number(text: str) -> int:
    return int.from_bytes(_bytes(text), "big")


KeyOf = Callable[[str], VerificationKey | None]
"""Returns the key of an id; None if it is not known (now)."""


def check_token(token: str, key_of: KeyOf, rules: TokenRules, now_ms: int) -> ValidToken:
    """Return what a token says. InvalidToken, with the reason for the log of the server, if it is not to be trusted."""
    try:
        head, payload, signature = token.split(".")
        header, claims = json.loads(_bytes(head)), json.loads(_bytes(payload))
        signed = _bytes(signature)
    except (ValueError, RecursionError, binascii.Error):
        raise InvalidToken("it is no JWT") from None
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise InvalidToken("it is no JWT")
    _check_signature(header, key_of, f"{head}.{payload}".encode(), signed)
    return _checked(claims, rules, now_ms)


def _check_signature(header: Mapping[str, Any], key_of: KeyOf, message: bytes, signature: bytes) -> None:
    algorithm, key_id = header.get("alg"), header.get("kid", "")
    if algorithm not in ALGORITHMS:
        raise InvalidToken(f"algorithm {str(algorithm)[:20]!r} is not accepted")
    if "crit" in header:
        raise InvalidToken("it has critical extensions")
    if not isinstance(key_id, str) or len(key_id) > KEY_ID_CHARACTERS_MAX:
        raise InvalidToken("its key id is no text, or too long")
    found = key_of(key_id)
    if found is None:
        raise InvalidToken("its key is unknown")
    if algorithm not in found.algorithms:
        raise InvalidToken(f"its key is not for {algorithm}")
    invalid = _crypto("exceptions").InvalidSignature
    try:
        _verify(found, algorithm, message, signature)
    except (invalid, ValueError):
        raise InvalidToken("its signature is wrong") from None


def _verify(found: VerificationKey, algorithm: str, message: bytes, signature: bytes) -> None:
    if algorithm == "EdDSA":
        found.key.verify(signature, message)
        return
    hashes = _crypto("hazmat.primitives.hashes")
    digest = getattr(hashes, f"SHA{algorithm[2:]}")()
    if algorithm.startswith("ES"):
        size = found.part_bytes
        if len(signature) != 2 * size:
            raise InvalidToken("its signature is wrong")
        first, second = int.from_bytes(signature[:size], "big"), int.from_bytes(signature[size:], "big")
        encoded = _crypto("hazmat.primitives.asymmetric.utils").encode_dss_signature(first, second)
        found.key.verify(encoded, message, _crypto("hazmat.primitives.asymmetric.ec").ECDSA(digest))
        return
    padding = _crypto("hazmat.primitives.asymmetric.padding")
    if algorithm.startswith("PS"):
        form = padding.PSS(mgf=padding.MGF1(digest), salt_length=digest.digest_size)
    else:
        form = padding.PKCS1v15()
    found.key.verify(signature, message, form, digest)


def _checked(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> ValidToken:
    now_s = now_ms / 1000
    expires, issued = _time(claims, "exp"), _time(claims, "iat")
    if expires is None or issued is None:
        raise InvalidToken("exp or iat is missing")
    if now_s >= expires + rules.skew_s:
        raise InvalidToken("it is expired")
    begins = _time(claims, "nbf")
    if issued > now_s + rules.skew_s or (begins is not None and begins > now_s + rules.skew_s):
        raise InvalidToken("it is not valid yet")
    if claims.get("iss") != rules.issuer:
        raise InvalidToken("it is of another issuer")
    audience = claims.get("aud")
    named = audience if isinstance(audience, list) else [audience]
    if not any(isinstance(each, str) and each in rules.audience for each in named):
        raise InvalidToken("it is for another audience")
    name = claims.get(rules.subject_claim)
    if not isinstance(name, str) or not name.strip():
        raise InvalidToken(f"{rules.subject_claim} is missing")
    scope = claims.get(rules.scope_claim, [])
    scopes = scope.split() if isinstance(scope, str) else scope
    if not isinstance(scopes, list) or not all(isinstance(each, str) for each in scopes):
        raise InvalidToken(f"{rules.scope_claim} is neither a text nor a list")
    return ValidToken(name.strip(), int(expires * 1000), frozenset(scopes))


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not 0 <= value < 1e12
    ):
        raise InvalidToken(f"{name} is no time")
    return float(value)


class KeyRing:
    """The keys of an issuer, and the ids that were asked for and are not among them.

    A token with an unknown id fails, and the keys are fetched again, because the issuer may have a new one. One id does
    so once a minute, and so do few ids together, because a peer can invent any number of them.
    """

    MISSING_MAX: Final = 16
    MISSING_S: Final = 60.0

    def __init__(self, keys: Mapping[str, VerificationKey], monotonic: Callable[[], float]) -> None:
        self.keys = dict(keys)
        self.on_missing: Callable[[], object] = lambda: None
        """Called when keys should be fetched again."""
        self._monotonic = monotonic
        self._missing: dict[str, float] = {}

    def key_of(self, key_id: str) -> VerificationKey | None:
        found = self.keys.get(key_id)
        if found is None and not key_id and len(self.keys) == 1:
            # Without an id there is no choice to make.
            return next(iter(self.keys.values()))
        if found is None:
            self._note_missing(key_id)
        return found

    def _note_missing(self, key_id: str) -> None:
        now = self._monotonic()
        self._missing = {each: at for each, at in self._missing.items() if now - at < self.MISSING_S}
        if key_id not in self._missing and len(self._missing) < self.MISSING_MAX:
            self._missing[key_id] = now
            self.on_missing()
