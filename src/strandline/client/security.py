"""How a client secures its connections: Kafka's settings, or librdkafka's names for them, read once and in one place.

Secrets are neither in `repr` nor in messages. Stores are read for each connection, so a client that runs for months
uses a renewed certificate. OAUTHBEARER and GSSAPI are left to librdkafka (`is_spoken`).
"""

from __future__ import annotations

import os
import secrets
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from strandline.errors import Disconnected, InvalidConfig
from strandline.security.sasl.exchange import ClientLogin
from strandline.security.sasl.jaas import LoginModule, parse_jaas
from strandline.security.sasl.oauthbearer import OAUTHBEARER, BearerLogin
from strandline.security.sasl.plain import PLAIN, PlainLogin
from strandline.security.sasl.scram import SCRAM_MECHANISMS, ScramLogin
from strandline.security.tls.contexts import make_contexts
from strandline.security.tls.stores import read_stores

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SAME: Final = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
"""Names of librdkafka for settings of Kafka."""
_VERIFICATION: Final = "enable.ssl.certificate.verification"
NAMES: Final = frozenset(
    (
        *_SAME,
        *_SAME.values(),
        _VERIFICATION,
        "sasl.jaas.config",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "ssl.certificate.location",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.truststore.password",
        "ssl.truststore.type",
    )
)
"""The settings that are followed; others are for Java alone, or for librdkafka."""
_OF_JAVA: Final = ("sasl.client.callback.", "sasl.login.", "security.providers", "ssl.engine.", "ssl.keymanager.")
_OF_JAVA_TOO: Final = ("ssl.provider", "ssl.secure.random.", "ssl.trustmanager.", "ssl.protocol", "ssl.enabled.")
_TEXT_DEFAULTS: Final = {
    "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
    "ssl.endpoint.identification.algorithm": "https",
}
_OTHER_HOST: Final = (62, 64)
"""What OpenSSL says of a certificate for another host name or another address."""


class NotAdmitted(Disconnected):
    """A connection that one side does not allow: by its settings, certificate or login. Another attempt ends alike."""


class LoginRefused(NotAdmitted):
    """A login that the broker rejects: the name, the password or the token is wrong."""


@dataclass(frozen=True)
class ClientSecurity:
    """The protocol, stores and login of one client. It can be compared, hashed and sent to workers."""

    protocol: str = "PLAINTEXT"
    _settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> ClientSecurity:
        """Return the security of a client with these settings; those about other things are ignored.

        Raise InvalidConfig for a protocol that is unknown, and for a login that is not complete.
        """
        taken: dict[str, str] = {}
        for name, value in settings.items():
            if name.startswith(("sasl.", "ssl.")) or name == _VERIFICATION:
                taken[_SAME.get(name, name)] = str(value)
        protocol = str(settings.get("security.protocol") or "PLAINTEXT").strip().upper()
        if protocol not in PROTOCOLS:
            raise InvalidConfig(f"security.protocol={protocol} is unknown; expected one of {', '.join(PROTOCOLS)}")
        if taken.get("ssl.truststore.location") == "probe":
            # librdkafka's word for the certificates of this machine, which are the default here.
            del taken["ssl.truststore.location"]
        made = cls(protocol, tuple(sorted(taken.items())))
        if made.is_spoken:
            made.login()
        return made

    @classmethod
    def spoken(cls, settings: Mapping[str, object]) -> ClientSecurity:
        """Return the same for a client that is ours alone. Raise InvalidConfig for what only librdkafka or Java has."""
        for name in settings:
            if is_security_name(name) and name not in NAMES:
                raise InvalidConfig(f"{name} is not supported: leave it out")
        made = cls.of(settings)
        if not made.is_spoken:
            known = ", ".join((*SCRAM_MECHANISMS, PLAIN))
            raise InvalidConfig(f"sasl.mechanism={made.mechanism} is not supported: say one of {known}")
        return made

    @property
    def is_plain(self) -> bool:
        return self.protocol == "PLAINTEXT"

    @property
    def has_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def mechanism(self) -> str | None:
        """The mechanism of the login; None if there is no login."""
        if not self.protocol.startswith("SASL_"):
            return None
        return (self._text("sasl.mechanism") or "GSSAPI").strip().upper()

    @property
    def is_spoken(self) -> bool:
        """Whether our own connections can log in; librdkafka has more mechanisms."""
        return self.mechanism in (None, PLAIN, *SCRAM_MECHANISMS)

    @property
    def shows_certificate(self) -> bool:
        names = ("ssl.keystore.location", "ssl.keystore.key", "ssl.key.location")
        return any(self._given(name) for name in names)

    @property
    def user(self) -> str:
        """The name of the login; empty if there is none."""
        return self._user_and_password()[0] if self.mechanism is not None and self.is_spoken else ""

    def login(self) -> ClientLogin | None:
        """Return the client's side of a new login; None if the protocol has none."""
        mechanism = self.mechanism
        if mechanism is None:
            return None
        if not self.is_spoken:
            raise NotAdmitted(
                f"sasl.mechanism={mechanism} is not spoken here; expected {', '.join((PLAIN, *SCRAM_MECHANISMS))}"
            )
        name, password, is_token = self._user_and_password()
        if mechanism == PLAIN:
            return PlainLogin(name, password)
        return ScramLogin(SCRAM_MECHANISMS[mechanism], name, password, secrets.token_hex(24), is_token=is_token)

    def secured(self, plain: socket.socket, host: str, address: str) -> socket.socket:
        """Return the connection after the handshake of TLS; the same one if the protocol has none.

        Raise NotAdmitted if a store cannot be used, or if the two sides do not accept each other.
        """
        if not self.has_tls:
            return plain
        try:
            context = make_contexts(self._text, now_s=time.time(), is_server=False).client
        except InvalidConfig as error:
            raise NotAdmitted(f"no connection to {address}: {error}") from None
        if (self._text(_VERIFICATION) or "true").lower() == "false":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        try:
            return context.wrap_socket(plain, server_hostname=host)
        except TimeoutError:
            raise
        except OSError as error:
            raise NotAdmitted(_tls_words(address, host, error)) from error

    def loss_words(self, address: str, error: OSError, *, is_known: bool) -> str:
        """Return what the loss of a connection means before a request was served; empty if it says nothing.

        `is_known` says whether the broker has answered ApiVersions, which it does before a login.
        """
        if not isinstance(error, ssl.SSLError | ConnectionError):
            return ""
        if not is_known and not self.has_tls:
            return f"{address} closed the connection before its first answer: does it speak TLS (security.protocol)?"
        if not is_known and not self.shows_certificate:
            return f"{address} closed the connection: does it require a certificate (ssl.keystore.location)?"
        if is_known and self.mechanism is None:
            return f"{address} closed the connection: does it require a login (security.protocol, sasl.mechanism)?"
        return ""

    def kafka(self) -> dict[str, str]:
        """Return the settings by Kafka's names, where Kafka has one."""
        return {"security.protocol": self.protocol, **dict(self._settings)}

    def librdkafka(self) -> dict[str, str]:
        """Return the same settings by the names of librdkafka. Raise InvalidConfig for a store that cannot be used."""
        kept = dict(self._settings)
        found = {"security.protocol": self.protocol}
        if self.mechanism is not None:
            found["sasl.mechanism"] = self.mechanism
            if self.is_spoken:
                found["sasl.username"], found["sasl.password"], _ = self._user_and_password()
        if self.has_tls:
            found |= self._librdkafka_tls()
        for name, value in kept.items():
            if name not in NAMES and not name.startswith((*_OF_JAVA, *_OF_JAVA_TOO)):
                found[name] = value
        found |= {name: kept[name] for name in (_VERIFICATION, "ssl.cipher.suites") if name in kept}
        return found

    def _librdkafka_tls(self) -> dict[str, str]:
        algorithm = self._text("ssl.endpoint.identification.algorithm") or "none"
        return {"ssl.endpoint.identification.algorithm": algorithm.lower()} | self._librdkafka_stores()

    def _librdkafka_stores(self) -> dict[str, str]:
        stores = read_stores(self._text)
        found: dict[str, str] = {}
        if stores.trusted is not None:
            found["ssl.ca.pem"] = stores.trusted
        location = self._text("ssl.keystore.location")
        if stores.own is None:
            return found
        if location and stores.own.key is stores.own.chain:
            # As files, because librdkafka takes only the first certificate of a text.
            found |= {"ssl.certificate.location": location, "ssl.key.location": location}
        elif certificates := self._given("ssl.certificate.location"):
            found |= {"ssl.certificate.location": certificates, "ssl.key.pem": stores.own.key}
        else:
            found |= {"ssl.certificate.pem": stores.own.chain, "ssl.key.pem": stores.own.key}
        if stores.own.password is not None:
            found["ssl.key.password"] = stores.own.password
        return found

    def _given(self, name: str) -> str | None:
        return next((value for each, value in self._settings if each == name), None)

    def _text(self, name: str) -> str | None:
        """Return the text in force of a setting of Kafka."""
        found = self._given(name)
        if name == "ssl.endpoint.identification.algorithm" and found is not None and found.lower() == "none":
            return ""
        files = {"ssl.keystore.key": "ssl.key.location", "ssl.keystore.certificate.chain": "ssl.certificate.location"}
        if found is None and name in files and (location := self._given(files[name])) is not None:
            return _content(location, files[name])
        return _TEXT_DEFAULTS.get(name) if found is None else found

    def _user_and_password(self) -> tuple[str, str, bool]:
        """Return name and password, and whether they are those of a delegation token."""
        jaas = self._text("sasl.jaas.config")
        module = LoginModule("", {}) if jaas is None else parse_jaas(jaas)
        name = self._text("sasl.username") or module.option("username")
        password = self._text("sasl.password") or module.option("password")
        if not name or not password:
            raise InvalidConfig(
                f"security.protocol={self.protocol} needs a name and a password; expected sasl.jaas.config, or "
                "sasl.username and sasl.password"
            )
        return name, password, (module.option("tokenauth") or "").lower() == "true"


@dataclass(frozen=True)
class BearerSecurity(ClientSecurity):
    """The security of a client that logs in by OAUTHBEARER with a token that is given."""

    name: str = ""
    token: str = field(default="", repr=False)

    @classmethod
    def with_token(cls, settings: Mapping[str, object], name: str, token: str) -> BearerSecurity:
        """Return it for a token of this name. Raise InvalidConfig for settings of TLS that are wrong."""
        made = cls.of({**settings, "sasl.mechanism": OAUTHBEARER})
        assert isinstance(made, BearerSecurity)
        return replace(made, name=name, token=token)

    @property
    def is_spoken(self) -> bool:
        return bool(self.token)

    @property
    def user(self) -> str:
        return self.name

    def login(self) -> ClientLogin:
        # The broker rejects a name that is not the token's, so that the name is proven with the token.
        return BearerLogin(self.token, self.name)

    def librdkafka(self) -> dict[str, str]:
        """Return the settings without the token, which librdkafka takes from a callback alone."""
        found = {"security.protocol": self.protocol, "sasl.mechanism": OAUTHBEARER}
        return found | (self._librdkafka_tls() if self.has_tls else {})


PLAINTEXT: Final = ClientSecurity()


class SecuredServers(str):
    """Bootstrap servers that know how connections to them are secured, for parts that pass on an address alone.

    As text they are the addresses, so that secrets get into no file and no message.
    """

    security: ClientSecurity

    def __new__(cls, servers: str, security: ClientSecurity) -> SecuredServers:
        made = super().__new__(cls, servers)
        made.security = security
        return made

    def __getnewargs__(self) -> tuple[str, ClientSecurity]:  # type: ignore[override]
        return str(self), self.security


def security_of(servers: str) -> ClientSecurity:
    """Return how connections to these bootstrap servers are secured; plain text knows of nothing."""
    return servers.security if isinstance(servers, SecuredServers) else PLAINTEXT


def librdkafka_of(servers: str) -> dict[str, str]:
    """Return the settings of a client of librdkafka for these bootstrap servers."""
    security = security_of(servers)
    return {"bootstrap.servers": str(servers)} | ({} if security.is_plain else security.librdkafka())


def spark_options_of(servers: str) -> dict[str, str]:
    """Return the options of Spark's source and sink for these bootstrap servers."""
    settings = {} if security_of(servers).is_plain else security_of(servers).kafka()
    return {f"kafka.{name}": value for name, value in {"bootstrap.servers": str(servers), **settings}.items()}


def is_security_name(name: str) -> bool:
    """Return whether a setting of a client is about security."""
    return name.startswith(("sasl.", "ssl.", "security.")) or name == _VERIFICATION


def _content(location: str, setting: str) -> str:
    try:
        with open(location, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = os.strerror(error.errno or 0).lower() if isinstance(error, OSError) else "it is no PEM"
        raise InvalidConfig(f"{setting}={location} cannot be read: {why}") from None


def alert_words(address: str, error: OSError) -> str:
    """Return what an alert of TLS says, which a server may send after the handshake; empty if it is none."""
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    if "ALERT" not in reason:
        return ""
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return f"{address} requires a certificate of the client: say ssl.keystore.location (ssl.certificate.location)"
    said = reason.partition("ALERT_")[2].replace("_", " ").lower()
    if "UNKNOWN_CA" in reason or "CERTIFICATE" in reason:
        return f"{address} does not accept the certificate of ssl.keystore.location: {said}"
    return f"{address} ended the handshake of TLS: {said}"


def _tls_words(address: str, host: str, error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_HOST:
            return (
                f"the certificate of {address} does not name {host}: connect by a name that it has, "
                "or let the node have a certificate for this one"
            )
        return (
            f"the certificate of {address} is not trusted ({error.verify_message}): "
            "ssl.truststore.location (ssl.ca.location) needs the certificate of its authority"
        )
    return alert_words(address, error) or (
        f"{address} does not speak TLS: say security.protocol=PLAINTEXT or SASL_PLAINTEXT, or the port of TLS"
    )
