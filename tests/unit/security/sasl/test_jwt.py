"""Tokens of OAUTHBEARER: good ones of every algorithm, and a corpus of bad ones, each rejected for its own reason."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.test_authentication import Turns

from strandline.broker.network.sasl.jwks_source import JWKS_BYTES_MAX, JwksSource, RefreshTimes, reader_of
from strandline.broker.network.sasl.sasl_listeners import sasl_listener
from strandline.config.node_config import BrokerConfig
from strandline.errors import InvalidConfig
from strandline.security.sasl.exchange import Authenticated, Challenge
from strandline.security.sasl.jwt import KeyRing, TokenRules, check_token, parse_keys
from strandline.security.sasl.oauthbearer import BearerLogin, InvalidToken, ValidToken

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives import hashes, serialization  # an extra, which may be missing
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

NOW_S = 1_700_000_000
RULES = TokenRules("https://issuer", frozenset({"strandline"}))
CLAIMS: dict[str, Any] = {
    "iss": "https://issuer",
    "aud": "strandline",
    "sub": "alice",
    "iat": NOW_S - 10,
    "exp": NOW_S + 300,
    "scope": "read write",
}
RSA, OTHER, SMALL = (rsa.generate_private_key(65537, size) for size in (2048, 2048, 1024))
EC = {
    name: ec.generate_private_key(curve())
    for name, curve in (("P-256", ec.SECP256R1), ("P-384", ec.SECP384R1), ("P-521", ec.SECP521R1))
}
ED = ed25519.Ed25519PrivateKey.generate()
CURVES = {"ES256": ("P-256", 32), "ES384": ("P-384", 48), "ES512": ("P-521", 66)}


def text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def number(value: int) -> str:
    return text(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def jwk(key: Any, kid: str, **more: str) -> dict[str, str]:
    public = key.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        numbers = public.public_numbers()
        return {"kty": "RSA", "kid": kid, "n": number(numbers.n), "e": number(numbers.e), **more}
    if isinstance(public, ec.EllipticCurvePublicKey):
        point = public.public_numbers()
        curve = next(name for name, each in EC.items() if each is key)
        return {"kty": "EC", "kid": kid, "crv": curve, "x": number(point.x), "y": number(point.y), **more}
    raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return {"kty": "OKP", "kid": kid, "crv": "Ed25519", "x": text(raw), **more}


def jwks(*keys: dict[str, str]) -> bytes:
    return json.dumps({"keys": keys}).encode()


KEYS = jwks(jwk(RSA, "rsa"), jwk(ED, "ed"), *(jwk(each, name) for name, each in EC.items()))
RING = KeyRing(parse_keys(KEYS), lambda: 0.0)


def signed(algorithm: str, message: bytes, key: Any) -> bytes:
    if algorithm == "EdDSA":
        return bytes(key.sign(message))
    if algorithm == "HS256":
        return hmac.digest(key, message, "sha256")
    digest = getattr(hashes, f"SHA{algorithm[2:]}")()
    if algorithm.startswith("ES"):
        size = CURVES[algorithm][1]
        return b"".join(
            each.to_bytes(size, "big") for each in decode_dss_signature(key.sign(message, ec.ECDSA(digest)))
        )
    form: Any = padding.PKCS1v15()
    if algorithm.startswith("PS"):
        form = padding.PSS(mgf=padding.MGF1(digest), salt_length=digest.digest_size)
    return bytes(key.sign(message, form, digest))


def token(
    claims: dict[str, Any] | None = None,
    *,
    algorithm: str = "RS256",
    kid: str | None = "rsa",
    key: Any = RSA,
    **header: Any,
) -> str:
    head = {"alg": algorithm, **({} if kid is None else {"kid": kid}), **header}
    message = f"{text(json.dumps(head).encode())}.{text(json.dumps(CLAIMS if claims is None else claims).encode())}"
    return f"{message}.{text(signed(algorithm, message.encode(), key))}"


def check(content: str) -> ValidToken:
    return check_token(content, RING.key_of, RULES, NOW_S * 1000)


def but(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in (CLAIMS | changes).items() if value is not None}


@pytest.mark.parametrize(
    "algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
)
def test_good_tokens(algorithm: str) -> None:
    kid = CURVES[algorithm][0] if algorithm in CURVES else {"EdDSA": "ed"}.get(algorithm, "rsa")
    key = EC[kid] if algorithm in CURVES else {"EdDSA": ED}.get(algorithm, RSA)
    found = check(token(algorithm=algorithm, kid=kid, key=key))
    assert found == ValidToken("alice", (NOW_S + 300) * 1000, frozenset({"read", "write"}))


@pytest.mark.parametrize(
    "claims",
    [
        but(aud=["other", "strandline"]),
        but(scope=["a"]),
        but(scope=None),
        but(nbf=NOW_S),
        but(exp=NOW_S - 29),
        but(iat=NOW_S + 29),
    ],
)
def test_other_good_claims(claims: dict[str, Any]) -> None:
    assert check(token(claims)).name == "alice"


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        (but(exp=None), "exp or iat is missing"),
        (but(iat=None), "exp or iat is missing"),
        (but(exp=NOW_S - 30), "expired"),
        (but(exp=True), "exp is no time"),
        (but(exp="soon"), "exp is no time"),
        (but(exp=-1), "exp is no time"),
        (but(exp=1e300), "exp is no time"),
        (but(exp=float("inf")), "exp is no time"),
        (but(exp=float("nan")), "exp is no time"),
        (but(iat=NOW_S + 31), "not valid yet"),
        (but(nbf=NOW_S + 31), "not valid yet"),
        (but(iss=None), "another issuer"),
        (but(iss="https://issuer/"), "another issuer"),
        (but(iss=["https://issuer"]), "another issuer"),
        (but(aud=None), "another audience"),
        (but(aud="other"), "another audience"),
        (but(aud=[]), "another audience"),
        (but(aud=[["strandline"]]), "another audience"),
        (but(aud={"strandline": 1}), "another audience"),
        (but(sub=None), "sub is missing"),
        (but(sub=""), "sub is missing"),
        (but(sub=" "), "sub is missing"),
        (but(sub=7), "sub is missing"),
        (but(scope=7), "scope is neither"),
        (but(scope=[7]), "scope is neither"),
    ],
)
def test_bad_claims(claims: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidToken, match=says):
        check(token(claims))


PUBLIC = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
GOOD = token()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (token(algorithm="HS256", key=PUBLIC), "'HS256' is not accepted"),
        (GOOD.replace(GOOD.split(".")[0], text(b'{"alg":"none"}')), "'none' is not accepted"),
        (text(b'{"alg":"none"}') + "." + GOOD.split(".")[1] + ".", "'none' is not accepted"),
        (text(b'{"alg":"None"}') + "." + GOOD.split(".")[1] + ".", "'None' is not accepted"),
        (text(b'{"kid":"rsa"}') + "." + GOOD.split(".")[1] + ".", "is not accepted"),
        (token(key=OTHER), "signature is wrong"),
        (GOOD[:-4] + "AAAA", "signature is wrong"),
        (GOOD.rpartition(".")[0] + ".", "signature is wrong"),
        (token(but(sub="mallory"))[:-300] + GOOD[-300:], "signature is wrong"),
        (token(algorithm="ES256", kid="rsa", key=EC["P-256"]), "not for ES256"),
        (token(algorithm="RS256", kid="P-256"), "not for RS256"),
        (token(algorithm="ES256", kid="P-256", key=EC["P-256"])[:-6], "no JWT|signature is wrong"),
        (token(kid="unknown"), "key is unknown"),
        (token(kid=None), "key is unknown"),
        (token(kid="x" * 1001), "too long"),
        (token(crit=["exp"]), "critical"),
        ("", "no JWT"),
        ("a.b", "no JWT"),
        ("a.b.c.d", "no JWT"),
        ("!.!.!", "no JWT"),
        (GOOD.replace(".", "\n.", 1), "no JWT"),
        (GOOD + "=", "no JWT"),
        (text(b"[]") + "." + text(b"{}") + ".", "no JWT"),
        (text(b"{}") + "." + text(b"7") + ".", "no JWT"),
        (text(b"[" * 100_000) + "." + text(b"{}") + ".", "no JWT"),
    ],
    ids=range(25),
)
def test_bad_tokens(content: str, says: str) -> None:
    with pytest.raises(InvalidToken, match=says):
        check(content)


def test_an_algorithm_of_the_key_binds() -> None:
    ring = KeyRing(parse_keys(jwks(jwk(RSA, "rsa", alg="RS512"))), lambda: 0.0)
    with pytest.raises(InvalidToken, match="not for RS256"):
        check_token(GOOD, ring.key_of, RULES, NOW_S * 1000)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b'{"keys": []}',
        b'{"keys": [7]}',
        b'{"keys": [{"kty": "RSA"}]}',
        b'{"keys": [{"kty": "RSA", "n": "!", "e": "AQAB"}]}',
        b'{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}',
        jwks({"kty": "oct", "k": "c2VjcmV0", "kid": "rsa"}),
        jwks(jwk(RSA, "rsa", use="enc")),
        jwks(jwk(SMALL, "small")),
        b"[" * 100_000,
    ],
    ids=range(12),
)
def test_keys_that_are_none(content: bytes) -> None:
    with pytest.raises(InvalidConfig, match="JWKS"):
        parse_keys(content)


def test_unknown_ids_have_the_keys_read_again_within_limits() -> None:
    now, reads = [0.0], []
    ring = KeyRing({}, lambda: now[0])
    ring.on_missing = lambda: reads.append(1)
    for number_of in range(100):
        ring.key_of(f"unknown {number_of}")
        ring.key_of("unknown 0")
    assert len(reads) == KeyRing.MISSING_MAX
    now[0] = KeyRing.MISSING_S
    ring.key_of("unknown 0")
    assert len(reads) == KeyRing.MISSING_MAX + 1


def test_keys_of_a_file_are_replaced_and_kept(tmp_path: Path) -> None:
    file, runtime = tmp_path / "jwks.json", Turns()
    file.write_bytes(jwks(jwk(RSA, "one")))
    made: Any = runtime
    source = JwksSource(made, file.as_uri(), RefreshTimes(60_000, 100, 1000))
    assert source.ring.key_of("two") is None
    file.write_bytes(jwks(jwk(OTHER, "two")))
    runtime.run_threads()
    assert source.ring.key_of("two") is not None
    for broken in (b"{", b"x" * (JWKS_BYTES_MAX + 1)):
        file.write_bytes(broken)
        runtime.advance(60)
        runtime.run_threads()
        assert source.ring.key_of("two") is not None
    file.write_bytes(jwks(jwk(RSA, "three")))
    runtime.advance(1)
    runtime.run_threads()
    assert list(source.ring.keys) == ["three"]


@pytest.mark.parametrize(
    "url", ["", "http://h/keys", "ftp://h/keys", "file://other/keys", "https://", "keys.json", "jar:file:///x"]
)
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(InvalidConfig, match="https"):
        reader_of(url)


def test_a_source_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    runtime: Any = Turns()
    with pytest.raises(InvalidConfig, match="cannot be read"):
        JwksSource(runtime, (tmp_path / "none").as_uri(), RefreshTimes(1, 1, 1))
    with pytest.raises(InvalidConfig, match="cannot be read"):
        JwksSource(runtime, "https://127.0.0.1:1/keys", RefreshTimes(1, 1, 1))


OAUTH = "listeners=SASL_PLAINTEXT://127.0.0.1:9092\nsasl.enabled.mechanisms=OAUTHBEARER\n"


def test_a_listener_from_its_settings(tmp_path: Path) -> None:
    file, runtime = tmp_path / "jwks.json", Turns()
    file.write_bytes(KEYS)
    runtime.now = float(NOW_S)
    made: Any = runtime
    whole = {
        "jwks.endpoint.url": file.as_uri(),
        "expected.issuer": "https://issuer",
        "expected.audience": "a, strandline",
    }
    image: Any = None
    for missing in whole:
        some = "".join(f"sasl.oauthbearer.{name}={value}\n" for name, value in whole.items() if name != missing)
        with pytest.raises(InvalidConfig, match=missing):
            sasl_listener(BrokerConfig.load(OAUTH + some), "SASL_PLAINTEXT", made, image)
    given = "".join(f"sasl.oauthbearer.{name}={value}\n" for name, value in whole.items())
    listener = sasl_listener(BrokerConfig.load(OAUTH + given), "SASL_PLAINTEXT", made, image)
    assert listener is not None
    done = listener.mechanisms["OAUTHBEARER"].begin().step(BearerLogin(GOOD).first())
    assert isinstance(done, Authenticated)
    assert (str(done.session.principal), done.expires_ms) == ("User:alice", (NOW_S + 300) * 1000)
    bad = listener.mechanisms["OAUTHBEARER"].begin().step(BearerLogin(token(key=OTHER)).first())
    assert bad == Challenge(b'{"status":"invalid_token"}')


def test_the_corpus_has_a_digest_of_the_secret_attack() -> None:
    """The token signed with the public key as a secret is well formed: only the algorithm gives it away."""
    head, payload, signature = token(algorithm="HS256", key=PUBLIC).split(".")
    expected = hmac.new(PUBLIC, f"{head}.{payload}".encode(), hashlib.sha256).digest()
    assert text(expected) == signature
