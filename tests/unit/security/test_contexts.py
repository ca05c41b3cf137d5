"""Contexts from settings: every form of a store, what a handshake then allows, and each bad store in a sentence."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.authority import Authority, openssl

from strandline.config.entries import broker_entries
from strandline.config.node_config import BrokerConfig
from strandline.errors import InvalidConfig
from strandline.security.tls.certificates import pem_certificates, read_certificate
from strandline.security.tls.contexts import TlsContexts, make_contexts, why_not_replaceable, why_not_trusted
from strandline.security.tls.stores import store_files

DAY_S = 24 * 60 * 60


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


@pytest.fixture(scope="module")
def authority(directory: Path) -> Authority:
    return Authority(directory)


@pytest.fixture(scope="module")
def store(authority: Authority) -> Path:
    return authority.issue("node")


def text_of(settings: dict[str, str]) -> Callable[[str], str | None]:
    config = BrokerConfig.load("", settings)
    return lambda key: config.listener_text("OUTSIDE", key)


def contexts(settings: dict[str, str], *, after_s: float = 0.0) -> TlsContexts:
    return make_contexts(text_of(settings), now_s=time.time() + after_s)


def test_a_pem_file(authority: Authority, store: Path) -> None:
    made = contexts(authority.settings(store))
    assert made.certificate.subject == "CN=node"
    assert made.client.check_hostname
    assert made.server.verify_mode is ssl.CERT_NONE
    assert why_not_trusted(made.server, made.client) is None


def test_pem_in_settings(authority: Authority, store: Path) -> None:
    key, _, chain = store.read_text().partition("-----END PRIVATE KEY-----")
    settings = {
        "ssl.keystore.key": f"{key}-----END PRIVATE KEY-----",
        # Many put a text of several lines into one.
        "ssl.keystore.certificate.chain": chain.strip().replace("\n", "\\n"),
        "ssl.truststore.certificates": authority.trusted.read_text(),
    }
    made = contexts(settings)
    assert why_not_trusted(made.server, made.client) is None
    shown = {each.name: each for each in broker_entries(BrokerConfig.load("", settings))}
    for name in settings:
        assert shown[name].is_sensitive
        assert shown[name].value is None
        assert all(each.value is None for each in shown[name].synonyms)


def test_a_listener_has_a_certificate_of_its_own(authority: Authority, store: Path) -> None:
    other = authority.issue("other")
    settings = authority.settings(store) | {"listener.name.outside.ssl.keystore.location": str(other)}
    assert contexts(settings).certificate.subject == "CN=other"


def test_an_encrypted_key(authority: Authority) -> None:
    locked = authority.issue("locked", password="of the key")
    made = contexts(authority.settings(locked, ssl_key_password="of the key"))
    assert why_not_trusted(made.server, made.client) is None


def test_names_and_times_of_a_certificate(authority: Authority) -> None:
    store = authority.issue("named", subject="/C=DE/O=Ex, ample+OU=a/CN=named", names=("DNS:a", "IP:::1"), days=7)
    (der,) = pem_certificates(store.read_text())
    certificate = read_certificate(der)
    assert certificate.subject == "CN=named,OU=a+O=Ex\\, ample,C=DE"
    assert abs(certificate.ends_s - time.time() - 7 * DAY_S) < DAY_S
    assert certificate.alternative_names == {b"\x82\x01a", b"\x87\x10" + bytes(15) + b"\1"}


@pytest.mark.parametrize(
    ("asked", "versions"),
    [
        ({}, (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)),
        ({"ssl.enabled.protocols": "TLSv1.3"}, (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3)),
        (
            {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_RSA_WITH_AES_256_GCM_SHA384"},
            (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
        ),
        (
            {"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256"},
            (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3),
        ),
    ],
)
def test_versions_and_suites(
    authority: Authority, store: Path, asked: dict[str, str], versions: tuple[ssl.TLSVersion, ssl.TLSVersion]
) -> None:
    made = contexts(authority.settings(store) | asked)
    for context in (made.server, made.client):
        assert (context.minimum_version, context.maximum_version) == versions
        assert context.options & ssl.OP_NO_RENEGOTIATION
    assert why_not_trusted(made.server, made.client) is None


def test_suites_are_those_of_the_setting(authority: Authority, store: Path) -> None:
    made = contexts(authority.settings(store) | {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"})
    older = [each["name"] for each in made.server.get_ciphers() if each["protocol"] != "TLSv1.3"]
    assert older == ["ECDHE-ECDSA-CHACHA20-POLY1305"]


def test_a_client_that_is_not_trusted_is_rejected(authority: Authority, store: Path, directory: Path) -> None:
    stranger = Authority(directory, "stranger")
    theirs = contexts(stranger.settings(stranger.issue("guest"), ssl_truststore_location=str(authority.trusted)))
    for wanted in ("required", "requested"):
        ours = contexts(authority.settings(store, ssl_client_auth=wanted))
        assert why_not_trusted(ours.server, theirs.client) is not None
        assert why_not_trusted(ours.server, ours.client) is None
    assert why_not_trusted(contexts(authority.settings(store)).server, theirs.client) is None
    assert why_not_trusted(theirs.server, contexts(authority.settings(store)).client) is not None


def test_without_a_name_in_the_setting_hosts_are_not_checked(authority: Authority, store: Path) -> None:
    made = contexts(authority.settings(store, ssl_endpoint_identification_algorithm=""))
    assert not made.client.check_hostname
    assert made.client.verify_mode is ssl.CERT_REQUIRED


def damaged(store: Path, change: Callable[[str], str]) -> Path:
    path = store.with_suffix(f".{abs(hash(change))}.pem")
    path.write_text(change(store.read_text()))
    return path


def only_key(pem: str) -> str:
    return pem[: pem.index("-----BEGIN CERTIFICATE")]


def test_each_bad_store_is_refused_in_a_sentence_that_names_the_setting(
    authority: Authority, store: Path, directory: Path
) -> None:
    other = authority.issue("another")
    locked = authority.issue("closed", password="of the key")
    mixed = directory / "mixed.pem"
    mixed.write_text(only_key(other.read_text()) + store.read_text().removeprefix(only_key(store.read_text())))
    cut = damaged(store, lambda pem: pem.replace("-----BEGIN CERTIFICATE-----\n", "-----BEGIN CERTIFICATE-----\nAAAA"))
    good = authority.settings(store)
    jks, noise, empty, key = (directory / name for name in ("a.jks", "noise", "empty", "key.pem"))
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    noise.write_bytes(b"no store")
    empty.write_bytes(b"")
    key.write_text(only_key(store.read_text()))
    cases: list[tuple[dict[str, str], str]] = [
        ({"ssl.keystore.location": ""}, "a listener of TLS has no certificate; expected ssl.keystore.location"),
        ({"ssl.keystore.location": "/no/such"}, "ssl.keystore.location=/no/such cannot be read: no such file"),
        ({"ssl.truststore.location": "/no/such"}, "ssl.truststore.location=/no/such cannot be read: no such file"),
        ({"ssl.keystore.location": str(mixed)}, "the private key belongs to another certificate"),
        ({"ssl.keystore.location": str(locked)}, "has an encrypted key; expected ssl.key.password"),
        (
            {"ssl.keystore.location": str(locked), "ssl.key.password": "wrong"},
            "ssl.key.password is not right, or the key is damaged",
        ),
        ({"ssl.keystore.location": str(jks)}, f"keytool -importkeystore -srckeystore {jks}"),
        ({"ssl.truststore.location": str(jks)}, "expected PEM, or PKCS12"),
        ({"ssl.keystore.location": str(noise)}, "is neither PEM nor PKCS12"),
        ({"ssl.keystore.location": str(empty)}, "is neither PEM nor PKCS12"),
        ({"ssl.keystore.location": str(key)}, "has no private key with its certificates"),
        ({"ssl.keystore.location": str(authority.trusted)}, "has no private key with its certificates"),
        ({"ssl.keystore.location": str(cut)}, "has no certificate that can be read"),
        ({"ssl.truststore.location": str(key)}, "has no certificate; expected those that peers are checked by"),
        ({"ssl.client.auth": "required", "ssl.truststore.location": ""}, "ssl.client.auth=required checks clients"),
        ({"ssl.keystore.key": "a"}, "both ssl.keystore.location and ssl.keystore.key are set"),
        ({"ssl.keystore.location": "", "ssl.keystore.key": "a"}, "belong together; expected both"),
        ({"ssl.truststore.certificates": "a"}, "both ssl.truststore.location and ssl.truststore.certificates are set"),
        ({"ssl.cipher.suites": "TLS_NULL_WITH_NULL_NULL"}, "has no suite that is known here"),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "of TLS 1.3 alone, which cannot be set here"),
        (
            {"ssl.cipher.suites": "TLS_RSA_WITH_AES_256_GCM_SHA384", "ssl.enabled.protocols": "TLSv1.3"},
            "leave no version of TLS",
        ),
    ]
    for more, why in cases:
        with pytest.raises(InvalidConfig) as refused:
            contexts(good | more)
        assert why in str(refused.value), more
        assert "of the key" not in str(refused.value)
        assert "wrong" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "ssl.enabled.protocols='TLSv1.1,TLSv1.2' is not allowed"),
        ({"ssl.client.auth": "always"}, "ssl.client.auth='always' is not allowed"),
        ({"ssl.endpoint.identification.algorithm": "LDAP"}, "expected https, empty"),
        ({"ssl.engine.factory.class": "a.b.C"}, "ssl.engine.factory.class is refused"),
        ({"listener.name.outside.ssl.provider": "BC"}, "ssl.provider is refused"),
    ],
)
def test_settings_that_are_not_there(settings: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        BrokerConfig.load("", settings)
    assert why in str(refused.value)


@pytest.mark.parametrize(("after_s", "how"), [(21 * DAY_S, "has expired"), (-2 * DAY_S, "is not valid yet")])
def test_a_certificate_outside_its_time(authority: Authority, store: Path, after_s: float, how: str) -> None:
    with pytest.raises(InvalidConfig, match=f"the certificate of CN=node {how}"):
        contexts(authority.settings(store), after_s=after_s)


def test_what_may_take_the_place_of_a_certificate(authority: Authority, store: Path) -> None:
    before = contexts(authority.settings(store))

    def why(path: Path, *, may_change_subject: bool = False, may_drop_names: bool = False) -> str | None:
        after = contexts(authority.settings(path))
        return why_not_replaceable(before, after, may_change_subject=may_change_subject, may_drop_names=may_drop_names)

    same = authority.issue("same", subject="/CN=node", names=("DNS:localhost", "IP:127.0.0.1", "DNS:more"))
    renamed = authority.issue("renamed")
    fewer = authority.issue("fewer", subject="/CN=node", names=("DNS:localhost",))
    assert why(same) is None
    assert "ssl.allow.dn.changes=true" in (why(renamed) or "")
    assert why(renamed, may_change_subject=True) is None
    assert "ssl.allow.san.changes=true" in (why(fewer) or "")
    assert why(fewer, may_drop_names=True) is None


def test_a_file_that_changed_shows(authority: Authority) -> None:
    store = authority.issue("watched")
    text = text_of(authority.settings(store))
    before = store_files(text)
    assert store_files(text) == before
    authority.issue("watched again", to=store)
    assert store_files(text) != before
    store.unlink()
    assert store_files(text)[str(store)] == (0, 0, 0)


def test_pkcs12_by_the_extra(authority: Authority, store: Path, directory: Path) -> None:
    pytest.importorskip("cryptography")
    packed, trusted = directory / "node.p12", directory / "trusted.p12"
    openssl(
        *("pkcs12", "-export", "-in", str(store), "-certfile", str(authority.trusted)),
        *("-out", str(packed), "-passout", "pass:of the store"),
    )
    openssl(
        *("pkcs12", "-export", "-nokeys", "-in", str(authority.trusted)),
        *("-out", str(trusted), "-passout", "pass:of the trust"),
    )
    settings = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(packed),
        "ssl.keystore.password": "of the store",
        "ssl.truststore.location": str(trusted),
        "ssl.truststore.password": "of the trust",
    }
    made = contexts(settings)
    assert made.certificate.subject == "CN=node"
    assert why_not_trusted(made.server, made.client) is None
    with pytest.raises(InvalidConfig, match=r"ssl\.keystore\.password is not right"):
        contexts(settings | {"ssl.keystore.password": "wrong"})
    del settings["ssl.truststore.password"]
    with pytest.raises(InvalidConfig, match=r"ssl\.truststore\.password is not set"):
        contexts(settings)


def test_pkcs12_without_the_extra(
    authority: Authority, store: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = directory / "unread.p12"
    openssl("pkcs12", "-export", "-in", str(store), "-out", str(packed), "-passout", "pass:x")
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(InvalidConfig, match=re.escape("pip install 'strandline[pkcs12]'")):
        contexts({"ssl.keystore.location": str(packed), "ssl.keystore.password": "x"})


@pytest.mark.lengthy("starts processes")
@pytest.mark.java
def test_a_store_of_java(directory: Path) -> None:
    if shutil.which("keytool") is None:
        pytest.skip("keytool is not on PATH")
    made = directory / "java.jks"
    subprocess.run(
        [
            *("keytool", "-genkeypair", "-keystore", str(made), "-storetype", "JKS", "-storepass", "changeit"),
            *("-keypass", "changeit", "-dname", "CN=java", "-keyalg", "RSA", "-alias", "a"),
        ],
        check=True,
        capture_output=True,
    )
    with pytest.raises(InvalidConfig, match="is in Java's own format"):
        contexts({"ssl.keystore.location": str(made)})
