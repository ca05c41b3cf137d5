"""An embedded broker: one process, with its data directory and port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from strandline.local.node_process import NodeProcess


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

    def arguments(self) -> Sequence[str]:
        words = ["strandline.broker", "--data", str(self.data), "--listen", self.bootstrap]
        for name, value in ({"http.listener": "off"} | self.properties).items():
            words += ["-X", f"{name}={value}"]
        return words

    def create_topic(self, name: str, partitions: int = 1, **configs: str | int) -> None:
        """Create a topic. Configs are Kafka's with underscores for dots: `segment_bytes=65536`."""
        create_topic(self.bootstrap, name, partitions, 1, configs)


def create_topic(
    bootstrap: str, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str | int]
) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    settings = {key.replace("_", "."): str(value) for key, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=settings)
    was_there = name in admin.list_topics().topics
    try:
        admin.create_topics([topic])[name].result()
    except KafkaException as error:
        # On a busy machine librdkafka sends the request again when its first connection is lost, and finds its own
        # topic.
        if was_there or error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
