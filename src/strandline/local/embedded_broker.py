"""An embedded broker: one process, with its data directory and port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from strandline.local.node_process import NodeProcess

if TYPE_CHECKING:
    from strandline.local.security_kit import SecurityKit


class EmbeddedBroker(NodeProcess):
    """One broker process, and the data directory and port that stay when it is killed and started again."""

    def __init__(
        self,
        data: Path,
        *,
        port: int = 0,
        properties: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        stderr: BinaryIO,
    ) -> None:
        super().__init__(stderr=stderr, environ=environ)
        self.data = data
        self.port = port
        self.properties = dict(properties or {})
        self._kit: SecurityKit | None = None

    @property
    def client_config(self) -> dict[str, str]:
        """The settings of a client of librdkafka that may do everything."""
        return {"bootstrap.servers": self.bootstrap} | ({} if self._kit is None else self._kit.librdkafka_settings())

    @property
    def command_config(self) -> str | None:
        """The file for `--command-config` and Kafka's tools; None if the broker is not secured."""
        return None if self._kit is None else str(self._kit.command_config)

    def secure_with(self, directory: Path) -> None:
        """Use the certificates and the administrator of this directory, which are made if it has none."""
        self._kit = made_kit(directory)
        self._kit.format(self.data)

    def arguments(self) -> Sequence[str]:
        words = ["strandline.broker", "--data", str(self.data)]
        if self._kit is None:
            words += ["--listen", self.bootstrap]
        else:
            # In a file, because arguments are seen in `ps`.
            words += ["--config", str(self._kit.server_properties), "-X", f"listeners=SASL_SSL://{self.bootstrap}"]
        for name, value in ({"http.listener": "off"} | self.properties).items():
            words += ["-X", f"{name}={value}"]
        return words

    def create_topic(self, name: str, partitions: int = 1, **configs: str | int) -> None:
        """Create a topic. Configs are Kafka's with underscores for dots: `segment_bytes=65536`."""
        create_topic(self.client_config, name, partitions, 1, configs)


def kit_directory(data: Path) -> Path:
    """Return where the certificates of a node are kept: beside its data, because only a node writes there."""
    return data.with_name(f"{data.absolute().name}-security")


def made_kit(directory: Path) -> SecurityKit:
    """Return the certificates and the administrator of this directory, which are made if it has none."""
    from strandline.local.security_kit import SecurityKit

    kit = SecurityKit(directory)
    if not kit.is_made:
        kit.make()
    return kit


def create_topic(
    client: Mapping[str, str], name: str, partitions: int, replication_factor: int, configs: Mapping[str, str | int]
) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    settings = {key.replace("_", "."): str(value) for key, value in configs.items()}
    admin = AdminClient(dict(client))
    topic = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=settings)
    was_there = name in admin.list_topics().topics
    try:
        admin.create_topics([topic])[name].result()
    except KafkaException as error:
        # On a busy machine librdkafka sends the request again when its first connection is lost, and finds its own
        # topic.
        if was_there or error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
