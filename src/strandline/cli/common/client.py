"""Kafka clients for the commands: reachable or a clear failure, quiet, and told what the user set with -X."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from strandline.cli.common.failures import SECURITY_HINT, CommandFailed, UsageFailed, cannot_reach, kafka_errors
from strandline.client.addresses import parse_address

if TYPE_CHECKING:
    from strandline.client.security import ClientSecurity

TIMEOUT_S_DEFAULT = 10.0


@dataclass(frozen=True)
class Cluster:
    """How to reach a cluster."""

    bootstrap: str
    properties: dict[str, str] = field(repr=False)
    """What the user set with -X or in a file, passwords among it."""
    timeout_s: float = TIMEOUT_S_DEFAULT

    @property
    def security(self) -> ClientSecurity:
        """How connections are secured; UsageFailed if the user's settings do not say that."""
        from strandline.client.security import ClientSecurity
        from strandline.errors import InvalidConfig

        try:
            return ClientSecurity.of(self.properties)
        except InvalidConfig as error:
            raise UsageFailed(str(error)) from None

    @property
    def servers(self) -> str:
        """The bootstrap servers, for parts that take nothing else."""
        from strandline.client.security import SecuredServers

        return SecuredServers(self.bootstrap, self.security) if self.properties else self.bootstrap

    def settings(self, **defaults: Any) -> dict[str, Any]:
        """Return librdkafka's configuration: ours, overruled by what the user set with -X or in a file."""
        # librdkafka would print its own complaints to stderr; a failure is told once, by us, with what to do next.
        quiet = {} if "debug" in self.properties else {"log_level": 0}
        common = {"bootstrap.servers": self.bootstrap, "client.id": "strandline-cli"}
        common |= {name.replace("_", "."): value for name, value in defaults.items()}
        return common | quiet | self._of_librdkafka()

    def _of_librdkafka(self) -> dict[str, str]:
        from strandline.client.security import is_security_name
        from strandline.errors import InvalidConfig

        others = {name: value for name, value in self.properties.items() if not is_security_name(name)}
        if len(others) == len(self.properties):
            return others
        try:
            return others | self.security.librdkafka()
        except InvalidConfig as error:
            raise UsageFailed(str(error)) from None

    def admin(self) -> Any:
        with self.errors("cannot configure the client"):
            return admin_api().AdminClient(self.settings())

    def producer(self, **defaults: Any) -> Any:
        with self.errors("cannot configure the producer"):
            return kafka_api().Producer(self.settings(**defaults))

    def consumer(self, **defaults: Any) -> Any:
        with self.errors("cannot configure the consumer"):
            return kafka_api().Consumer(self.settings(**defaults))

    def errors(self, doing: str) -> AbstractContextManager[None]:
        return kafka_errors(bootstrap=self.bootstrap, doing=doing)


# confluent-kafka takes 80 ms to import and its type hints differ from release to release. So it is loaded when a
# command needs it, and as Any.
def kafka_api() -> Any:
    return import_module("confluent_kafka")


def admin_api() -> Any:
    return import_module("confluent_kafka.admin")


def connect(bootstrap: str, properties: list[str] | None, timeout_s: float) -> Cluster:
    """Return a cluster of which at least one bootstrap server answers, and admits us."""
    from strandline.cli.common.command_config import client_properties
    from strandline.client.bootstrap_probe import knock

    cluster = Cluster(bootstrap, client_properties(properties), timeout_s)
    if cluster.properties and not cluster.security.is_plain and cluster.security.is_spoken:
        _check_admitted(cluster)
    elif reasons := knock(servers_of(bootstrap), timeout_s):
        raise cannot_reach(bootstrap, ", ".join(dict.fromkeys(reasons)))
    return cluster


def _check_admitted(cluster: Cluster) -> None:
    """Connect once as this command does, because librdkafka tries a wrong password again until the time is over."""
    from strandline.client.connection import BrokerConnection
    from strandline.client.security import NotAdmitted
    from strandline.errors import Disconnected, TimedOut

    reasons = []
    for address in servers_of(cluster.bootstrap):
        try:
            BrokerConnection(
                *address, client_id="strandline-cli", timeout_s=cluster.timeout_s, security=cluster.security
            ).close()
            return
        except NotAdmitted as error:
            raise CommandFailed(str(error), hint=SECURITY_HINT) from None
        except (Disconnected, TimedOut) as error:
            reasons.append(str(error))
    raise cannot_reach(cluster.bootstrap, ", ".join(reasons))


def servers_of(bootstrap: str) -> list[tuple[str, int]]:
    return [host_and_port(each.strip()) for each in bootstrap.split(",")]


def host_and_port(server: str) -> tuple[str, int]:
    address = parse_address(server)
    if address is None:
        raise UsageFailed(f"{server!r} is not HOST:PORT")
    return address
