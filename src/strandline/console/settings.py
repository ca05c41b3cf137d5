"""What a console shows, and what may be done with it.

    clusters=prod,test
    cluster.prod.bootstrap.servers=broker-1.example.com:9092
    cluster.prod.security.protocol=SASL_SSL
    cluster.prod.sasl.mechanism=SCRAM-SHA-512
    cluster.prod.registry=https://registry.example.com:8081
    cluster.prod.connect=https://connect.example.com:8083
    cluster.test.bootstrap.servers=127.0.0.1:9092
    console.read.only=true
    console.mask.cards=payments-* value $.card.number

A cluster with a login (`SASL_...`) has no user here: each visitor logs in as a user of that cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from strandline.client.cluster_client import host_and_port
from strandline.client.failures import ClientFailed
from strandline.client.security import ClientSecurity, is_security_name
from strandline.console.masking import MaskRule, parse_mask
from strandline.errors import InvalidConfig

PREFIX: Final = "console."
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}", re.ASCII)
_MASK: Final = "console.mask."
_OWN: Final = ("console.read.only", "console.audit.file", "console.session.hours", "console.grafana")
_SECRETS: Final = ("sasl.jaas.config", "sasl.username", "sasl.password")
_CLUSTER_TEXTS: Final = ("bootstrap.servers", "registry", "connect")
SESSION_HOURS_DEFAULT: Final = 12.0


@dataclass(frozen=True)
class ConsoleCluster:
    """One cluster: how it is reached, but for the login of the visitor."""

    name: str
    bootstrap: str
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The settings of security, without a user."""
    registry: str = ""
    connect: str = ""

    @property
    def has_login(self) -> bool:
        return self.client.get("security.protocol", "PLAINTEXT").upper().startswith("SASL_")

    @property
    def mechanism(self) -> str:
        """The mechanism by which names with passwords log in."""
        return self.client.get("sasl.mechanism", "SCRAM-SHA-512").upper()


@dataclass(frozen=True)
class ConsoleSettings:
    """The clusters, and the rules for all of them."""

    clusters: tuple[ConsoleCluster, ...]
    is_read_only: bool = False
    is_exposed: bool = False
    """Whether other machines can reach the console. Then a cluster without a login cannot be changed."""
    is_secure: bool = False
    """Whether browsers reach it by https, so that cookies are kept to that."""
    masks: tuple[MaskRule, ...] = ()
    audit_file: Path | None = None
    session_s: float = SESSION_HOURS_DEFAULT * 3600
    """A session ends after so long without a request."""
    grafana: str = ""

    @classmethod
    def of(cls, properties: Mapping[str, str], *, is_exposed: bool = False, is_secure: bool = False) -> ConsoleSettings:
        """Return the settings of these properties; those of the HTTP service are ignored. Raise InvalidConfig."""
        for name in properties:
            if name.startswith(PREFIX) and name not in _OWN and not name.startswith(_MASK):
                raise InvalidConfig(f"{name} is unknown; expected a setting of docs/console.md")
        names = [each.strip() for each in properties.get("clusters", "").split(",") if each.strip()]
        if not names:
            raise InvalidConfig("clusters names no cluster; expected for example clusters=prod,test")
        if len(set(names)) < len(names):
            raise InvalidConfig(f"clusters={','.join(names)} has a name twice")
        hours = properties.get("console.session.hours", str(SESSION_HOURS_DEFAULT))
        if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]+)?", hours, re.ASCII) or not float(hours):
            raise InvalidConfig(f"console.session.hours={hours} is not allowed; expected a number of hours")
        audit_file = properties.get("console.audit.file", "")
        return cls(
            tuple(_cluster(name, properties) for name in names),
            _flag(properties, "console.read.only"),
            is_exposed,
            is_secure,
            tuple(parse_mask(text) for name, text in sorted(properties.items()) if name.startswith(_MASK)),
            Path(audit_file) if audit_file else None,
            float(hours) * 3600,
            properties.get("console.grafana", ""),
        )

    def cluster(self, name: str) -> ConsoleCluster | None:
        return next((each for each in self.clusters if each.name == name), None)

    def why_read_only(self, cluster: ConsoleCluster) -> str | None:
        """Return why nothing may be changed in a cluster; None if users may change what their ACLs allow."""
        if self.is_read_only:
            return "this console is read-only (--read-only)"
        if self.is_exposed and not cluster.has_login:
            return "this console is open to other machines and the cluster has no login, so that it is read-only"
        return None


def _cluster(name: str, properties: Mapping[str, str]) -> ConsoleCluster:
    if not _NAME.fullmatch(name):
        raise InvalidConfig(f"clusters has {name!r}; a name has 1 to 40 of the characters a-z 0-9 _ -")
    prefix = f"cluster.{name}."
    given = {key.removeprefix(prefix): text.strip() for key, text in properties.items() if key.startswith(prefix)}
    for key in given:
        if key not in _CLUSTER_TEXTS and not is_security_name(key):
            raise InvalidConfig(f"{prefix}{key} is unknown; expected a setting of docs/console.md")
    bootstrap = given.get("bootstrap.servers", "")
    try:
        servers = [host_and_port(server) for server in bootstrap.split(",") if server.strip()]
    except ClientFailed:
        servers = []
    if not servers:
        raise InvalidConfig(f"{prefix}bootstrap.servers={bootstrap} names no broker; expected host:port")
    client = {key: text for key, text in given.items() if key not in _CLUSTER_TEXTS}
    made = ConsoleCluster(name, bootstrap, client, _url(prefix, given, "registry"), _url(prefix, given, "connect"))
    if made.has_login:
        # Every visitor would else act with the rights of that user.
        kept = {key: text for key, text in client.items() if key not in _SECRETS}
        return ConsoleCluster(made.name, made.bootstrap, kept, made.registry, made.connect)
    ClientSecurity.spoken(client)
    return made


def _url(prefix: str, given: Mapping[str, str], key: str) -> str:
    text = given.get(key, "").rstrip("/")
    if text and not re.match(r"https?://[^\s/]+", text):
        raise InvalidConfig(f"{prefix}{key}={text} is no address; expected for example http://127.0.0.1:8081")
    return text


def _flag(properties: Mapping[str, str], name: str) -> bool:
    text = properties.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise InvalidConfig(f"{name}={text} is not allowed; expected true or false")
    return text == "true"
