"""The settings of an HTTP service, in the words of Kafka Connect where it has them.

    listeners=https://0.0.0.0:8081
    listeners.https.ssl.keystore.location=/etc/strandline/registry.pem
    http.authentication=basic
    bootstrap.servers=broker-1.example.com:9092
    security.protocol=SASL_SSL
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config=... the user of the service itself ...

What has no prefix is for the service as a client of the cluster. `http.login.` before such a setting replaces it for
the logins that prove the credentials of callers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from strandline.client.cluster_client import host_and_port
from strandline.client.failures import ClientFailed
from strandline.client.security import ClientSecurity
from strandline.config.cluster_checks import is_loopback
from strandline.errors import InvalidConfig
from strandline.security.http_credentials import BASIC, BEARER
from strandline.security.sasl.scram import SCRAM_MECHANISMS

TLS_PREFIX: Final = "listeners.https."
LOGIN_PREFIX: Final = "http.login."
SUBJECT_CLAIM: Final = "sasl.oauthbearer.sub.claim.name"
_LISTENER: Final = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[^\s:/\[\],]*):([0-9]{1,5})", re.IGNORECASE)
_TLS_DEFAULTS: Final = {"ssl.enabled.protocols": "TLSv1.2,TLSv1.3", "ssl.client.auth": "none"}
_TLS_NAMES: Final = frozenset(
    (
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    )
)
_NUMBERS: Final = {"http.body.bytes.max": 1024 * 1024, "http.authentication.cache.ms": 30_000}
_TEXTS: Final = ("http.authentication", "http.hosts", "http.origins")


@dataclass(frozen=True)
class DoorSettings:
    """Where a service listens, who may enter, and how it reaches the cluster."""

    host: str
    port: int
    has_tls: bool
    authentication: frozenset[str]
    """`basic`, `bearer`, both, or none: then every caller is `User:ANONYMOUS`."""
    bootstrap: str
    hosts: frozenset[str] = frozenset()
    """Names besides its own that clients may call the service by."""
    origins: frozenset[str] = frozenset()
    """Other sites whose pages may change something here."""
    body_bytes_max: int = _NUMBERS["http.body.bytes.max"]
    cache_s: float = _NUMBERS["http.authentication.cache.ms"] / 1000
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The settings of the service as a client of the cluster."""
    login: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The settings of a client that logs in with the credentials of a caller."""

    @classmethod
    def of(cls, properties: Mapping[str, str], *, has_own_login: bool = False) -> DoorSettings:
        """Return the settings of these properties. Those of the service itself are ignored.

        A service with a login of its own reaches clusters by itself, and says what may be exposed.
        Raise InvalidConfig, in a sentence, for settings that are unknown, contradict each other or are not safe.
        """
        _check_names(properties)
        has_tls, host, port = _listener(properties.get("listeners", ""))
        authentication = frozenset(_words(properties, "http.authentication")) - {"none"}
        if unknown := authentication - {BASIC, BEARER}:
            raise InvalidConfig(f"http.authentication={min(unknown)} is unknown; expected basic, bearer, both, or none")
        if has_own_login and authentication:
            raise InvalidConfig("http.authentication is not for this service; expected a login of its own")
        bootstrap = "" if has_own_login else _bootstrap(properties, "bootstrap.servers")
        client = {name: text for name, text in properties.items() if name.startswith(("security.", "sasl.", "ssl."))}
        if not has_own_login:
            ClientSecurity.spoken(client)
        login = client | {"bootstrap.servers": bootstrap} | _under(properties, LOGIN_PREFIX)
        made = cls(
            host,
            port,
            has_tls,
            authentication,
            bootstrap,
            frozenset(_words(properties, "http.hosts")),
            frozenset(each.rstrip("/") for each in _words(properties, "http.origins")),
            _number(properties, "http.body.bytes.max"),
            _number(properties, "http.authentication.cache.ms") / 1000,
            _TLS_DEFAULTS | _under(properties, TLS_PREFIX),
            client,
            login,
        )
        if not has_own_login:
            made._check_exposure()
            made._check_login()
        return made

    @property
    def is_exposed(self) -> bool:
        """Whether other machines can reach the service."""
        return not is_loopback(self.host)

    def tls_text(self, name: str) -> str | None:
        """Return a setting of TLS by its name in Kafka."""
        return self.tls.get(name)

    def _check_exposure(self) -> None:
        if (self.has_tls and self.authentication) or not self.is_exposed:
            return
        lacks = " and ".join(
            words
            for is_there, words in ((self.has_tls, "TLS"), (bool(self.authentication), "authentication"))
            if not is_there
        )
        raise InvalidConfig(
            f"listeners={'https' if self.has_tls else 'http'}://{self.host}:{self.port} serves other machines without "
            f"{lacks}; expected https:// with listeners.https.ssl.keystore.location, and http.authentication=basic or "
            "bearer, or else a loopback address such as 127.0.0.1"
        )

    def _check_login(self) -> None:
        if not self.authentication:
            return
        _bootstrap(self.login, "bootstrap.servers")
        protocol = self.login.get("security.protocol", "PLAINTEXT").upper()
        if not protocol.startswith("SASL_"):
            raise InvalidConfig(
                f"http.authentication needs a listener of the cluster where users log in, and security.protocol="
                f"{protocol} has no login; expected {LOGIN_PREFIX}security.protocol=SASL_SSL and "
                f"{LOGIN_PREFIX}bootstrap.servers"
            )
        mechanism = self.login.get("sasl.mechanism", "SCRAM-SHA-512")
        if BASIC in self.authentication and mechanism not in ("PLAIN", *SCRAM_MECHANISMS):
            raise InvalidConfig(
                f"http.authentication=basic cannot use sasl.mechanism={mechanism}; expected "
                f"{LOGIN_PREFIX}sasl.mechanism=SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN"
            )

    def login_settings(self, mechanism: str = "") -> dict[str, str]:
        """Return what a login of a caller has in common with all others; no secret of the service is among it."""
        mine = ("sasl.jaas.config", "sasl.username", "sasl.password", "bootstrap.servers", SUBJECT_CLAIM)
        kept = {name: text for name, text in self.login.items() if name not in mine}
        return kept | {"sasl.mechanism": mechanism or self.login.get("sasl.mechanism", "SCRAM-SHA-512")}


def _check_names(properties: Mapping[str, str]) -> None:
    known = {*_NUMBERS, *_TEXTS}
    for name in properties:
        wrong = name.startswith("http.") and not name.startswith(LOGIN_PREFIX) and name not in known
        wrong |= name.startswith(TLS_PREFIX) and name.removeprefix(TLS_PREFIX) not in _TLS_NAMES
        if wrong:
            # A setting of security that is misspelt must not be passed over.
            raise InvalidConfig(f"{name} is unknown; expected a setting of docs/security.md, section HTTP services")
    for name, allowed in {"ssl.client.auth": ("none", "requested", "required")}.items():
        given = properties.get(TLS_PREFIX + name, "none")
        if given not in allowed:
            raise InvalidConfig(f"{TLS_PREFIX}{name}={given} is not allowed; expected {', '.join(allowed)}")
    for version in _words(properties, TLS_PREFIX + "ssl.enabled.protocols"):
        if version not in ("tlsv1.2", "tlsv1.3"):
            raise InvalidConfig(f"{TLS_PREFIX}ssl.enabled.protocols has {version}; expected TLSv1.2, TLSv1.3")


def _listener(text: str) -> tuple[bool, str, int]:
    match = _LISTENER.fullmatch(text.strip())
    if match is None or int(match[3]) > 65_535:
        raise InvalidConfig(f"listeners={text} is not allowed; expected for example http://127.0.0.1:8081")
    return match[1].lower() == "https", match[2].strip("[]"), int(match[3])


def _bootstrap(properties: Mapping[str, str], name: str) -> str:
    text = properties.get(name, "")
    servers = [server for server in text.split(",") if server.strip()]
    try:
        for server in servers:
            host_and_port(server)
    except ClientFailed:
        servers = []
    if not servers:
        raise InvalidConfig(f"{name}={text} names no broker; expected host:port, separated by commas")
    return text


def _under(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): text for name, text in properties.items() if name.startswith(prefix)}


def _words(properties: Mapping[str, str], name: str) -> list[str]:
    return [each.strip().lower() for each in properties.get(name, "").split(",") if each.strip()]


def _number(properties: Mapping[str, str], name: str) -> int:
    text = properties.get(name, str(_NUMBERS[name]))
    if not re.fullmatch("[0-9]{1,12}", text.strip(), re.ASCII):
        raise InvalidConfig(f"{name}={text} is not allowed; expected a whole number of 0 or more")
    return int(text)
