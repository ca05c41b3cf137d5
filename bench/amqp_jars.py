"""RabbitMQ's Java client, brought by Maven into a cache directory of this work tree."""

from __future__ import annotations

from pathlib import Path

from bench.kafka_jars import KafkaUnavailable
from bench.maven import MavenFailed, copy_jars, pom

AMQP_VERSION = "5.25.0"
CACHE = Path(__file__).resolve().parent.parent / ".cache" / f"amqp-client-{AMQP_VERSION}"


def amqp_class_path() -> str:
    """Return the class path of the client alone, because Kafka's jars have the logging that it needs."""
    libs, complete = CACHE / "libs", CACHE / "complete"
    if not complete.exists():
        project = pom("bench-amqp", [("com.rabbitmq", "amqp-client", AMQP_VERSION)], alone=True)
        try:
            copy_jars(project, libs)
        except MavenFailed as said:
            raise KafkaUnavailable(f"Maven could not bring RabbitMQ's client {AMQP_VERSION}: {said}") from said
        # Written last, so that an interrupted download is repeated and not mistaken for a whole one.
        complete.write_text(project)
    return f"{libs}/*"
