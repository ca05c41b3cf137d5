"""Kafka clients for the commands: reachable or a clear failure, quiet, and told what the user set with -X."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from strandline.cli.common.failures import UsageFailed, cannot_reach, kafka_errors
from strandline.cli.common.key_values import key_values
from strandline.client.addresses import parse_address

TIMEOUT_S_DEFAULT = 10.0


@dataclass(frozen=True)
class Cluster:
    """How to reach a cluster."""

    bootstrap: str
    properties: dict[str, str]
    timeout_s: float = TIMEOUT_S_DEFAULT

    def settings(self, **defaults: Any) -> dict[str, Any]:
        """librdkafka's configuration: ours, overruled by what the user set with -X."""
        # librdkafka would print its own complaints to stderr; a failure is told once, by us, with what to do next.
        quiet = {} if "debug" in self.properties else {"log_level": 0}
        common = {"bootstrap.servers": self.bootstrap, "client.id": "strandline-cli"}
        return common | quiet | {name.replace("_", "."): value for name, value in defaults.items()} | self.properties

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
    """A cluster of which at least one bootstrap server answers."""
    from strandline.client.bootstrap_probe import knock

    cluster = Cluster(bootstrap, key_values(properties, option="-X"), timeout_s)
    if reasons := knock(servers_of(bootstrap), timeout_s):
        raise cannot_reach(bootstrap, ", ".join(dict.fromkeys(reasons)))
    return cluster


def servers_of(bootstrap: str) -> list[tuple[str, int]]:
    return [host_and_port(each.strip()) for each in bootstrap.split(",")]


def host_and_port(server: str) -> tuple[str, int]:
    address = parse_address(server)
    if address is None:
        raise UsageFailed(f"{server!r} is not HOST:PORT")
    return address
