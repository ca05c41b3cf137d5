"""The options of the sink: those of Spark's own Kafka sink, and `transactionTimeoutMs`.

Settings of a Kafka producer come as `kafka.<name>`. What they ask for is done, or is meaningless to a producer that has
no threads and no cache (`linger.ms`, `buffer.memory`, ...), or is refused with a reason, because a setting that is
ignored would mislead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from strandline.client.security import PLAINTEXT, ClientSecurity, is_security_name
from strandline.codec.compression import Compression
from strandline.errors import InvalidConfig
from strandline.spark.sink.failures import SinkRefused

TRANSACTION_TIMEOUT_MS_DEFAULT: Final = 300_000
"""A batch may take that long. Readers of the topic wait as long for a driver that was given up; one that comes back
frees them with its first batch."""
BATCH_BYTES_DEFAULT: Final = 512 * 1024
REQUEST_BYTES_DEFAULT: Final = 1024 * 1024

QUERY_OPTION: Final = "queryId"
BATCH_OPTION: Final = "batchId"
"""What `update_mode` says of the frame that it writes inside of a query."""

_OURS: Final = ("topic", "transactiontimeoutms", "acks", QUERY_OPTION.lower(), BATCH_OPTION.lower())
_SPARKS: Final = ("checkpointlocation", "queryname", "path", "querylogdir", "includeheaders")
_SOURCES: Final = (
    "assign",
    "endingoffsets",
    "endingoffsetsbytimestamp",
    "endingtimestamp",
    "failondataloss",
    "groupidprefix",
    "maxoffsetspertrigger",
    "minoffsetspertrigger",
    "minpartitions",
    "startingoffsets",
    "startingoffsetsbytimestamp",
    "startingtimestamp",
    "subscribe",
    "subscribepattern",
)
"""Some programs give the same options to both ends, and Spark's own sink does not mind."""
_CONSUMERS: Final = (
    "auto.offset.reset",
    "enable.auto.commit",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "group.id",
    "isolation.level",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "max.poll.records",
    "session.timeout.ms",
)
_DONE: Final = (
    "bootstrap.servers",
    "acks",
    "batch.size",
    "client.id",
    "compression.type",
    "delivery.timeout.ms",
    "enable.idempotence",
    "max.request.size",
    "request.timeout.ms",
    "security.protocol",
    "transaction.timeout.ms",
)
_WITHOUT_MEANING: Final = (
    "auto.include.jmx.reporter",
    "buffer.memory",
    "client.dns.lookup",
    "connections.max.idle.ms",
    "enable.metrics.push",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "metadata.max.age.ms",
    "metadata.max.idle.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retries",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
)
_REFUSED: Final = {
    "transactional.id": "the sink names its transactions itself; leave it out",
    "key.serializer": "keys are bytes or strings in a column; leave it out",
    "value.serializer": "values are bytes or strings in a column; leave it out",
    "partitioner.class": "rows go where the column partition says, or by their key; leave it out",
    "interceptor.classes": "transform the data frame instead",
}


@dataclass(frozen=True)
class SinkOptions:
    bootstrap: str
    topic: str | None = None
    """For all rows; without it each row names its own in a column."""
    client_id: str = "strandline-spark-sink"
    compression: Compression = Compression.NONE
    batch_bytes: int = BATCH_BYTES_DEFAULT
    record_bytes_max: int = REQUEST_BYTES_DEFAULT
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS_DEFAULT
    checkpoint: str | None = None
    """Where the query keeps its plans, if it was said as an option."""
    security: ClientSecurity = PLAINTEXT


def parse_options(given: Mapping[str, str]) -> SinkOptions:
    """The options by their names in lower case, as Spark hands them over; SinkRefused says what is wrong with one."""
    options = {name.lower(): str(value) for name, value in given.items()}
    settings = {name.removeprefix("kafka."): value for name, value in options.items() if name.startswith("kafka.")}
    _check_names(options, settings)
    bootstrap = settings.get("bootstrap.servers", "").strip()
    if not bootstrap:
        raise SinkRefused("The option kafka.bootstrap.servers is missing: say host:port of a broker.")
    for name in ("acks", "kafka.acks"):
        if options.get(name, "all").lower() not in ("all", "-1"):
            raise SinkRefused(f"{name}={options[name]} would lose records: the sink needs all; leave it out.")
    if settings.get("enable.idempotence", "true").lower() != "true":
        raise SinkRefused("kafka.enable.idempotence=false would double records: leave it out.")
    timeout_name = "transactiontimeoutms" if "transactiontimeoutms" in options else "kafka.transaction.timeout.ms"
    defaults = SinkOptions(bootstrap)
    record_bytes_max = _number(options, "kafka.max.request.size", defaults.record_bytes_max)
    return SinkOptions(
        bootstrap,
        topic=options.get("topic"),
        client_id=settings.get("client.id", defaults.client_id),
        compression=_compression(settings.get("compression.type", "none")),
        batch_bytes=min(_number(options, "kafka.batch.size", defaults.batch_bytes), record_bytes_max),
        record_bytes_max=record_bytes_max,
        request_timeout_ms=_number(options, "kafka.request.timeout.ms", defaults.request_timeout_ms),
        delivery_timeout_ms=_number(options, "kafka.delivery.timeout.ms", defaults.delivery_timeout_ms),
        transaction_timeout_ms=_number(options, timeout_name, defaults.transaction_timeout_ms),
        checkpoint=options.get("checkpointlocation"),
        security=_security(settings),
    )


def batch_of_a_query(given: Mapping[str, str]) -> tuple[str, int] | None:
    """The query and the number of its batch that a frame is, if it is said."""
    options = {name.lower(): str(value) for name, value in given.items()}
    query_id, batch_id = options.get(QUERY_OPTION.lower()), options.get(BATCH_OPTION.lower())
    if query_id is None and batch_id is None:
        return None
    if not query_id or batch_id is None or not batch_id.isdigit():
        raise SinkRefused("queryId and batchId are said together, inside of foreachBatch: leave out both elsewhere.")
    return query_id, int(batch_id)


def _check_names(options: Mapping[str, str], settings: Mapping[str, str]) -> None:
    for name in settings:
        if name in _REFUSED:
            raise SinkRefused(f"kafka.{name} cannot be set: {_REFUSED[name]}.")
        is_known = name in _DONE or name in _WITHOUT_MEANING or name in _CONSUMERS
        if not is_known and not is_security_name(name):
            raise SinkRefused(f"kafka.{name} is no setting of a Kafka producer: correct the name, or leave it out.")
    for name in options:
        if not name.startswith("kafka.") and name not in (*_OURS, *_SPARKS, *_SOURCES):
            raise SinkRefused(
                f"{name} is no option of the sink: it has topic, transactionTimeoutMs, "
                "and the settings of a Kafka producer as kafka.<name>."
            )


def _security(settings: Mapping[str, str]) -> ClientSecurity:
    try:
        return ClientSecurity.spoken(settings)
    except InvalidConfig as error:
        raise SinkRefused(f"kafka.{error}.") from None


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default)).strip()
    if not text.isdigit() or int(text) == 0:
        raise SinkRefused(f"{name}={text} is no number above 0.")
    return int(text)


def _compression(name: str) -> Compression:
    try:
        return Compression[name.strip().upper()]
    except KeyError:
        known = ", ".join(each.name.lower() for each in Compression)
        raise SinkRefused(f"kafka.compression.type={name} is no codec: it is one of {known}.") from None
