"""`SSLContext`s for the connections that a listener accepts, and for those that this node makes to others like it."""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from strandline.errors import InvalidConfig, MalformedMessage
from strandline.security.tls.certificates import Certificate, pem_certificates, read_certificate
from strandline.security.tls.stores import KeyStore, Stores, Text, read_stores

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_SUITES_OF_TLS13: Final = frozenset(
    ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
)
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsContexts(NamedTuple):
    """What the connections of one listener use; replaced whole when a store changes."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    certificate: Certificate | None
    """That of this node; None if it only connects to others, and shows none."""
    has_trust_store: bool


def make_contexts(text: Text, *, now_s: float, is_server: bool = True) -> TlsContexts:
    """Return the contexts that the settings of a listener describe. Without a certificate they serve no client.

    Raise InvalidConfig, in a sentence that names the setting, for stores that cannot be used: missing, of the wrong
    format, locked, expired, or a key that belongs to another certificate.
    """
    stores = read_stores(text)
    if stores.own is None and is_server:
        raise InvalidConfig(
            "a listener of TLS has no certificate; expected ssl.keystore.location, or ssl.keystore.key with "
            "ssl.keystore.certificate.chain"
        )
    certificate = None if stores.own is None else _own_certificate(stores.own, now_s)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client_auth = text("ssl.client.auth") or "none"
    if client_auth != "none" and stores.trusted is None:
        raise InvalidConfig(
            f"ssl.client.auth={client_auth} checks clients, and there is nothing to check them by; expected "
            "ssl.truststore.location or ssl.truststore.certificates"
        )
    server.verify_mode = _CLIENT_AUTH[client_auth]
    if client_auth != "none":
        # Each connection shows its certificate: a session that is resumed would keep one that has expired since.
        server.num_tickets = 0
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = (text("ssl.endpoint.identification.algorithm") or "").lower() == "https"
    for context in (server, client):
        _restrict(context, text)
        if stores.own is not None:
            _load_own(context, stores.own)
        _load_trusted(context, stores)
    if stores.trusted is None:
        client.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return TlsContexts(server, client, certificate, stores.trusted is not None)


def _own_certificate(own: KeyStore, now_s: float) -> Certificate:
    try:
        certificate = read_certificate(pem_certificates(own.chain)[0])
    except (IndexError, MalformedMessage) as error:
        raise InvalidConfig(f"{own.source} has no certificate that can be read") from error
    if not certificate.begins_s <= now_s <= certificate.ends_s:
        how = "has expired" if now_s > certificate.ends_s else "is not valid yet"
        raise InvalidConfig(f"{own.source}: the certificate of {certificate.subject} {how}; expected another one")
    return certificate


def _restrict(context: ssl.SSLContext, text: Text) -> None:
    """Allow only the versions and suites of the settings, and no renegotiation."""
    versions = [each.strip() for each in (text("ssl.enabled.protocols") or "").split(",") if each.strip()]
    suites = [each.strip() for each in (text("ssl.cipher.suites") or "").split(",") if each.strip()]
    if suites:
        _check_suites(suites)
        older = [each for each in suites if each not in _SUITES_OF_TLS13]
        if older:
            try:
                context.set_ciphers(":".join(map(_openssl_name, older)))
            except ssl.SSLError as error:
                raise InvalidConfig(f"ssl.cipher.suites={','.join(suites)} has no suite that is known here") from error
        allowed = {"TLSv1.2"} if older else set()
        allowed |= {"TLSv1.3"} if len(older) < len(suites) else set()
        versions = [each for each in versions if each in allowed]
    if not versions:
        raise InvalidConfig("ssl.enabled.protocols and ssl.cipher.suites leave no version of TLS; expected one")
    context.minimum_version = min(_VERSIONS[each] for each in versions)
    context.maximum_version = max(_VERSIONS[each] for each in versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    # As in Java, every certificate of the trust store is trusted, also one that another authority issued.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _check_suites(suites: list[str]) -> None:
    of_tls13 = _SUITES_OF_TLS13.intersection(suites)
    if of_tls13 and of_tls13 != _SUITES_OF_TLS13:
        raise InvalidConfig(
            f"ssl.cipher.suites has {', '.join(sorted(of_tls13))} of TLS 1.3 alone, which cannot be set here; expected "
            f"all of {', '.join(sorted(_SUITES_OF_TLS13))}, or none"
        )


def _openssl_name(suite: str) -> str:
    """Return `ECDHE-RSA-AES128-GCM-SHA256` for `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`; other names as they are."""
    if not suite.startswith("TLS_"):
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    return (cipher if exchange == "RSA" else f"{exchange}_{cipher}").replace("_", "-")


def _load_own(context: ssl.SSLContext, own: KeyStore) -> None:
    def password() -> str:
        if own.password is None:
            raise InvalidConfig(f"{own.source} has an encrypted key; expected ssl.key.password")
        return own.password

    try:
        with _as_file(own.chain) as chain, _as_file(own.key) as key:
            context.load_cert_chain(chain, key, password)
    except ssl.SSLError as error:
        reason = error.reason or ""
        if "MISMATCH" in reason:
            why = "the private key belongs to another certificate"
        elif own.password is not None and ("DECRYPT" in reason or "BAD" in reason or not reason):
            why = "ssl.key.password is not right, or the key is damaged"
        else:
            why = f"the key or a certificate cannot be used ({reason.replace('_', ' ').lower() or 'unknown format'})"
        raise InvalidConfig(f"{own.source}: {why}") from None


def _load_trusted(context: ssl.SSLContext, stores: Stores) -> None:
    if stores.trusted is not None:
        try:
            # DER, one after the other: PEM text with a comment in it would be refused.
            context.load_verify_locations(cadata=b"".join(pem_certificates(stores.trusted)))
        except (ssl.SSLError, ValueError) as error:
            raise InvalidConfig(f"{stores.trust_source} has a certificate that cannot be read") from error


@contextlib.contextmanager
def _as_file(pem: str) -> Iterator[str]:
    """Give the name of a file with this text, because OpenSSL reads keys only from files. It is never on a disk."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("pem")
        try:
            os.write(fd, pem.encode())
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
    else:
        # Mode 0600, and gone at the end.
        with tempfile.NamedTemporaryFile() as file:
            file.write(pem.encode())
            file.flush()
            yield file.name


def why_not_replaceable(
    before: TlsContexts, after: TlsContexts, *, may_change_subject: bool, may_drop_names: bool
) -> str | None:
    """Return why the new certificate may not take the place of the old one; None if it may."""
    old, new = before.certificate, after.certificate
    if old is None or new is None:
        return None if old is new else "a certificate cannot be added or taken away while a node runs"
    if not may_change_subject and old.subject != new.subject:
        return f"its subject is {new.subject} and was {old.subject}; expected the same, or ssl.allow.dn.changes=true"
    if not may_drop_names and not old.alternative_names <= new.alternative_names:
        return "it lacks names that the old one has; expected all of them, or ssl.allow.san.changes=true"
    return None


def why_not_trusted(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Return why a handshake between these contexts fails, tried in memory without a host name; None if it works."""
    checked = client.check_hostname
    client.check_hostname = False
    try:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = [
            server.wrap_bio(to_server, to_client, server_side=True),
            client.wrap_bio(to_client, to_server, server_side=False),
        ]
        return _shake_hands(ends)
    finally:
        client.check_hostname = checked


def _shake_hands(ends: list[ssl.SSLObject]) -> str | None:
    steps: list[Callable[[], object]] = [end.do_handshake for end in ends]
    for _ in range(10):
        unfinished = []
        for step in steps:
            try:
                step()
            except ssl.SSLWantReadError:
                unfinished.append(step)
            except ssl.SSLError as error:
                return error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else str(error.reason)
        if not unfinished:
            # With TLS 1.3 a server rejects a client's certificate only after the client is done.
            with contextlib.suppress(ssl.SSLWantReadError):
                ends[0].read(1)
            return None
        steps = unfinished
    return "the handshake does not end"
