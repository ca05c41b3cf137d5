"""What a second, secured listener of both servers needs: certificates, and users of SASL."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from bench.wire import Connection, ServerRefused, frame, string
from strandline.security.issuing import CertificateAuthority

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
PASSWORD = "a secret of the bench"


@dataclass(frozen=True)
class Certificates:
    """PEM files of an authority and of a server that it issued a certificate to."""

    trusted: Path
    key_and_certificate: Path

    def server_settings(self) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.key_and_certificate),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trusted),
        }

    def client_config(self) -> dict[str, str]:
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.trusted)}


def certificates(directory: Path) -> Certificates:
    authority = CertificateAuthority("bench")
    issued = authority.issue("localhost", ("localhost", "127.0.0.1"))
    made = Certificates(directory / "trusted.pem", directory / "server.pem")
    made.trusted.write_text(authority.own.certificate)
    made.key_and_certificate.write_text(issued.key + issued.certificate)
    return made


def plain_users(names: list[str]) -> str:
    """Return the JAAS text of a listener on which these users log in by SASL PLAIN, all with one password."""
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in names)
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"


def choose_mechanism(connection: Connection, mechanism: str) -> None:
    answer = connection.exchange(frame(SASL_HANDSHAKE, 1, string(mechanism)))
    (code,) = struct.unpack_from(">h", answer, 8)
    if code:
        raise ServerRefused(f"SaslHandshake: error code {code}")


def authenticate(connection: Connection, token: bytes) -> bytes:
    """Send one token of a mechanism; return the server's."""
    answer = connection.exchange(frame(SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token))
    code, words = struct.unpack_from(">hh", answer, 8)
    if code:
        raise ServerRefused(f"SaslAuthenticate: error code {code}")
    return answer[12 + max(words, 0) + 4 :]


def log_in(connection: Connection, name: str) -> None:
    choose_mechanism(connection, "PLAIN")
    authenticate(connection, f"\0{name}\0{PASSWORD}".encode())
