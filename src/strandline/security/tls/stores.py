"""Keys and certificates of one listener, read from Kafka's key store and trust store settings.

A store is PEM text or a file; a file is PEM or PKCS12, by its content. Java's own format (JKS) is refused. A file is
read whole and once, so that key and certificates belong together. No message has a part of a key or a password in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, NamedTuple

from strandline.errors import InvalidConfig, MalformedMessage
from strandline.security.tls.certificates import pem_certificates

STORE_BYTES_MAX: Final = 8 * 1024 * 1024
"""A key store or trust store file; the certificates of all public authorities together take a quarter of a megabyte."""

Text = Callable[[str], str | None]
"""Returns the text in force of a setting, for the listener in question."""

_JKS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PEM: Final = b"-----BEGIN"
_PKCS12: Final = b"\x30"


class KeyStore(NamedTuple):
    """A private key and its certificates, as PEM."""

    key: str
    chain: str
    password: str | None
    source: str
    """The setting that they come from, with the name of the file, for messages."""


class Stores(NamedTuple):
    """What a context is made of."""

    own: KeyStore | None
    trusted: str | None
    """Certificates as PEM; None if no trust store is set."""
    trust_source: str


def read_stores(text: Text) -> Stores:
    """Return the stores that the settings name. Raise InvalidConfig, which names the setting, for a bad one."""
    return Stores(_own(text), *_trusted(text))


def store_files(text: Text) -> dict[str, tuple[int, int, int]]:
    """Return the files of the stores with what changes when they do; a file that is missing has zeros."""
    found = {}
    for setting in ("ssl.keystore.location", "ssl.truststore.location"):
        if location := text(setting):
            try:
                status = os.stat(location)
                found[location] = status.st_mtime_ns, status.st_size, status.st_ino
            except OSError:
                found[location] = 0, 0, 0
    return found


def _own(text: Text) -> KeyStore | None:
    key, chain = text("ssl.keystore.key"), text("ssl.keystore.certificate.chain")
    location = text("ssl.keystore.location")
    password = text("ssl.key.password") or None
    if key or chain:
        if location:
            raise InvalidConfig("both ssl.keystore.location and ssl.keystore.key are set; expected one of them")
        if not key or not chain:
            raise InvalidConfig("ssl.keystore.key and ssl.keystore.certificate.chain belong together; expected both")
        return KeyStore(_unfolded(key), _unfolded(chain), password, "ssl.keystore.key")
    if not location:
        return None
    source = f"ssl.keystore.location={location}"
    content = _read(location, source)
    if content.lstrip().startswith(_PEM):
        pem = _decoded(content, source)
        if "PRIVATE KEY-----" not in pem or not _certificates(pem, source):
            raise InvalidConfig(f"{source} has no private key with its certificates; expected both, as PEM")
        return KeyStore(pem, pem, password, source)
    _check_pkcs12(content, source)
    return _own_of_pkcs12(content, text("ssl.keystore.password"), source)


def _trusted(text: Text) -> tuple[str | None, str]:
    location, inline = text("ssl.truststore.location"), text("ssl.truststore.certificates")
    if inline:
        if location:
            raise InvalidConfig("both ssl.truststore.location and ssl.truststore.certificates are set; expected one")
        source, pem = "ssl.truststore.certificates", _unfolded(inline)
    elif location:
        source = f"ssl.truststore.location={location}"
        content = _read(location, source)
        if content.lstrip().startswith(_PEM):
            pem = _decoded(content, source)
        else:
            _check_pkcs12(content, source)
            pem = _trusted_of_pkcs12(content, text("ssl.truststore.password"), source)
    else:
        return None, "ssl.truststore.location"
    if not _certificates(pem, source):
        raise InvalidConfig(f"{source} has no certificate; expected those that peers are checked by")
    return pem, source


def _read(location: str, source: str) -> bytes:
    try:
        with open(location, "rb") as file:
            content = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidConfig(f"{source} cannot be read: {(error.strerror or str(error)).lower()}") from error
    if len(content) > STORE_BYTES_MAX:
        raise InvalidConfig(f"{source} is larger than {STORE_BYTES_MAX} bytes; expected a store of certificates")
    return content


def _decoded(content: bytes, source: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{source} is PEM with bytes that are no text, at {error.start}") from error


def _certificates(pem: str, source: str) -> list[bytes]:
    try:
        return pem_certificates(pem)
    except MalformedMessage as error:
        raise InvalidConfig(f"{source} has {error}") from error


def _unfolded(pem: str) -> str:
    """Return PEM text that a property file may hold in one line, with its lines."""
    return pem.replace("\\n", "\n")


def _check_pkcs12(content: bytes, source: str) -> None:
    if content.startswith(_JKS):
        location = source.partition("=")[2]
        raise InvalidConfig(
            f"{source} is in Java's own format (JKS), which is not read here; expected PEM, or PKCS12 as made by: "
            f"keytool -importkeystore -srckeystore {location} -destkeystore {location}.p12 -deststoretype PKCS12"
        )
    if not content.startswith(_PKCS12):
        raise InvalidConfig(f"{source} is neither PEM nor PKCS12; expected one of them")


def _own_of_pkcs12(content: bytes, password: str | None, source: str) -> KeyStore:
    from strandline.security.tls.pkcs12 import read_pkcs12

    key, chain, _ = read_pkcs12(content, password, source, "ssl.keystore.password")
    if not key or not chain:
        raise InvalidConfig(f"{source} has no private key with its certificates; expected both")
    return KeyStore(key, chain, None, source)


def _trusted_of_pkcs12(content: bytes, password: str | None, source: str) -> str:
    from strandline.security.tls.pkcs12 import read_pkcs12

    _, chain, others = read_pkcs12(content, password, source, "ssl.truststore.password")
    return others or chain
