"""A certificate authority of one's own: a key, its certificate, and the certificates that it issues.

It needs the package `cryptography`, which is the extra `strandline[security]`. Keys are of the curve P-256.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from strandline.errors import InvalidConfig

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 825
_EARLIER: Final = datetime.timedelta(hours=1)
"""Certificates begin so much before now, for nodes whose clocks are behind."""


class Issued(NamedTuple):
    """A private key and its certificate, as PEM."""

    key: str
    certificate: str

    def __repr__(self) -> str:
        return "Issued()"


class CertificateAuthority:
    """An authority, with its key in memory."""

    def __init__(self, name: str) -> None:
        """Raise InvalidConfig if the package is missing."""
        try:
            from cryptography.hazmat.primitives.asymmetric import ec
        except ImportError as error:
            raise InvalidConfig(
                "certificates are made by the package cryptography, which is missing; expected "
                "`pip install 'strandline[security]'`"
            ) from error
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.own = self._certificate(self._key, name, (), is_authority=True)

    def issue(self, name: str, hosts: Sequence[str] = ()) -> Issued:
        """Return a key and a certificate with `CN=name`; with hosts it is for nodes, otherwise for clients."""
        from cryptography.hazmat.primitives.asymmetric import ec

        return self._certificate(ec.generate_private_key(ec.SECP256R1()), name, hosts, is_authority=False)

    def _certificate(self, key: Any, name: str, hosts: Sequence[str], *, is_authority: bool) -> Issued:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        def named(common_name: str) -> Any:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])

        now = datetime.datetime.now(datetime.UTC)
        days = AUTHORITY_DAYS if is_authority else CERTIFICATE_DAYS
        made = (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named(self._name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _EARLIER)
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if is_authority:
            usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
            made = made.add_extension(usage, critical=True)
        else:
            # Nodes connect to each other, so their certificates are for both sides.
            uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
            made = made.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        if hosts:
            alternatives = x509.SubjectAlternativeName([_alternative(x509, host) for host in hosts])
            made = made.add_extension(alternatives, critical=False)
        certificate = made.sign(self._key, hashes.SHA256())
        pem = serialization.Encoding.PEM
        private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return Issued(private.decode(), certificate.public_bytes(pem).decode())


def _alternative(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
