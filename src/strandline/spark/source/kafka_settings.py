"""Settings of a Kafka consumer that a user brings along as `kafka.<name>`, and what becomes of them (pure)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from strandline.client.security import ClientSecurity, is_security_name
from strandline.errors import InvalidConfig

PARTITION_BYTES: Final = 4 * 1024 * 1024
"""Of one Fetch. Kafka's own consumer takes 1 MiB; a reader of whole ranges is quicker with more."""
FETCH_BYTES: Final = 50 * 1024 * 1024

DONE: Final = (
    "bootstrap.servers",
    "client.id",
    "default.api.timeout.ms",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "group.id",
    "isolation.level",
    "max.partition.fetch.bytes",
    "request.timeout.ms",
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "ssl.truststore.location",
    "ssl.keystore.location",
)
WITHOUT_MEANING: Final = (
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "auto.include.jmx.reporter",
    "check.crcs",
    "client.dns.lookup",
    "client.rack",
    "connections.max.idle.ms",
    "enable.metrics.push",
    "exclude.internal.topics",
    "fetch.min.bytes",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "max.poll.records",
    "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partition.assignment.strategy",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
    "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
)
OF_PRODUCERS: Final = (
    "acks",
    "batch.size",
    "buffer.memory",
    "compression.type",
    "delivery.timeout.ms",
    "enable.idempotence",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "max.request.size",
    "metadata.max.idle.ms",
    "retries",
    "transaction.timeout.ms",
)
"""Some programs give the same options to both ends, and Spark's own source does not mind."""
REFUSED: Final = {
    "auto.offset.reset": "say where to start with startingOffsets",
    "enable.auto.commit": "the checkpoint alone says what was read; leave it out",
    "interceptor.classes": "transform the data frame instead",
    "key.deserializer": "keys come as bytes; decode them in the data frame",
    "value.deserializer": "values come as bytes; decode them in the data frame, or with valueSchema",
}


def check(settings: Mapping[str, str]) -> None:
    """ValueError with a sentence for the first setting that cannot be followed; names are without their `kafka.`."""
    for name in settings:
        if name in REFUSED:
            raise ValueError(f"kafka.{name} cannot be set: {REFUSED[name]}")
        if name not in (*DONE, *WITHOUT_MEANING, *OF_PRODUCERS) and not is_security_name(name):
            near = difflib.get_close_matches(name, (*DONE, *WITHOUT_MEANING), 1)
            hint = f"did you mean kafka.{near[0]}?" if near else "correct the name, or leave it out"
            raise ValueError(f"kafka.{name} is no setting of a Kafka consumer: {hint}")
    if not settings.get("bootstrap.servers", "").strip():
        raise ValueError("kafka.bootstrap.servers is missing: say host:port of a broker")
    try:
        ClientSecurity.spoken(settings)
    except InvalidConfig as error:
        raise ValueError(f"kafka.{error}") from None
