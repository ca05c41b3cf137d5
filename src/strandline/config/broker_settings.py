"""The settings of a broker that belong to no other table: network, topics, log files and monitoring."""

from __future__ import annotations

import dataclasses

from strandline.config.settings import (
    CLUSTER_WIDE,
    INT_MAX,
    PER_BROKER,
    at_least,
    boolean,
    integer,
    long,
    one_of,
    text,
    words,
)

MIB = 1024 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class BrokerSettings:
    """The table of broker settings. Each attribute is the setting of that name with underscores for dots."""

    # The wire.
    listeners: tuple[str, ...] = words(
        "listeners",
        ("PLAINTEXT://127.0.0.1:9092",),
        None,
        "Where clients and other nodes connect, as `NAME://host:port`, comma-separated; port 0 takes a free one. Those "
        "that `controller.listener.names` names are for the quorum. Apache Kafka listens on every interface by "
        "default; here the default is loopback, because it is served in the clear and without authentication. They "
        "cannot be changed while the node runs.",
    )
    listener_unauthenticated_allow: bool = boolean(
        "listener.unauthenticated.allow",
        False,
        "Strandline's own. Whether a new node may listen beyond this machine without authentication: PLAINTEXT, or SSL "
        "without `ssl.client.auth=required`. A node that has run before is only warned of such a listener.",
    )
    advertised_listeners: tuple[str, ...] | None = words(
        "advertised.listeners",
        None,
        None,
        "The addresses that clients and other nodes connect to; by default those of `listeners`. A node that listens "
        "on every interface (0.0.0.0) does not start without it. A listener without a host gets the machine's name.",
    )
    socket_request_max_bytes: int = integer(
        "socket.request.max.bytes", 100 * MIB, at_least(1), "The largest request; a longer frame closes the connection."
    )
    socket_send_buffer_bytes: int = integer(
        "socket.send.buffer.bytes",
        -1,
        at_least(-1),
        "SO_SNDBUF of client sockets; -1 leaves it to the system, which fits it to each connection. Apache Kafka takes "
        "102,400.",
    )
    socket_receive_buffer_bytes: int = integer(
        "socket.receive.buffer.bytes",
        -1,
        at_least(-1),
        "SO_RCVBUF of client sockets; -1 leaves it to the system, which fits it to each connection. Apache Kafka takes "
        "102,400.",
    )
    socket_listen_backlog_size: int = integer(
        "socket.listen.backlog.size",
        1024,
        at_least(1),
        "Connections that may wait to be accepted; the system has a limit of its own (`net.core.somaxconn`). Apache "
        "Kafka takes 50.",
    )
    queued_max_request_bytes: int = long(
        "queued.max.request.bytes",
        256 * MIB,
        at_least(-1),
        "Bytes of requests, whole or partly received, that all connections together may hold before reading pauses. "
        "Apache Kafka has no limit by default (-1); here memory is always bounded unless you ask otherwise.",
    )
    max_connections: int = integer(
        "max.connections",
        16_384,
        at_least(0),
        "Connections to this node at one time, and never more than descriptors (`ulimit -n`) allow; one more is closed "
        "at once. Apache Kafka has no limit by default.",
        update=CLUSTER_WIDE,
    )
    max_connections_per_ip: int = integer(
        "max.connections.per.ip", INT_MAX, at_least(0), "Connections from one address at one time.", update=CLUSTER_WIDE
    )
    max_connections_per_ip_overrides: str = text(
        "max.connections.per.ip.overrides",
        "",
        None,
        "Other numbers for some addresses or names, as `host:count`, comma-separated.",
        update=CLUSTER_WIDE,
    )
    max_connection_creation_rate: int = integer(
        "max.connection.creation.rate",
        INT_MAX,
        at_least(0),
        "Connections accepted in a second; others wait in the kernel's queue.",
        update=CLUSTER_WIDE,
    )
    connection_first_request_timeout_ms: int = long(
        "connection.first.request.timeout.ms",
        30_000,
        at_least(-1),
        "Strandline's own. A connection without one whole request after this time is closed; -1 never.",
        update=CLUSTER_WIDE,
    )
    connection_partial_request_timeout_ms: int = long(
        "connection.partial.request.timeout.ms",
        60_000,
        at_least(-1),
        "Strandline's own. A request that is begun and not whole after this time closes its connection, unless at "
        "least 1 KiB of it comes each second; -1 never.",
        update=CLUSTER_WIDE,
    )
    connections_max_idle_ms: int = long(
        "connections.max.idle.ms", 600_000, at_least(-1), "An idle connection is closed after this time; -1 never."
    )
    request_timeout_ms: int = integer(
        "request.timeout.ms",
        30_000,
        at_least(1),
        "The longest wait for an answer of another node; here each kind of request has a time limit of its own.",
        effect=False,
    )

    # Topics.
    num_partitions: int = integer("num.partitions", 1, at_least(1), "Partitions of a topic created without a number.")
    auto_create_topics_enable: bool = boolean(
        "auto.create.topics.enable", True, "Create a topic when a client asks for one that is not there."
    )
    delete_topic_enable: bool = boolean("delete.topic.enable", True, "Whether topics can be deleted.")
    fetch_max_bytes: int = integer("fetch.max.bytes", 55 * MIB, at_least(1024), "The most a Fetch is answered with.")
    max_incremental_fetch_session_cache_slots: int = integer(
        "max.incremental.fetch.session.cache.slots", 1000, at_least(0), "Incremental fetch sessions kept."
    )
    max_request_partition_size_limit: int = integer(
        "max.request.partition.size.limit",
        2000,
        at_least(1),
        "Partitions in one answer of DescribeTopicPartitions; a client asks for the next ones with a cursor.",
    )

    # The log.
    open_files_max: int = integer(
        "open.files.max",
        1024,
        at_least(16),
        "Strandline's own. Files of closed segments that are open at one time; others are opened on demand.",
        update=CLUSTER_WIDE,
    )
    log_flush_offset_checkpoint_interval_ms: int = integer(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        at_least(0),
        "How often the recovery points are written; recovery after a crash starts there.",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = integer(
        "log.flush.start.offset.checkpoint.interval.ms",
        60_000,
        at_least(0),
        "How often log start offsets are written.",
    )
    log_dir_failure_timeout_ms: int = long(
        "log.dir.failure.timeout.ms",
        30_000,
        at_least(1),
        "How long a node whose metadata log failed goes on serving clients before it stops, with status 1.",
    )
    producer_id_expiration_ms: int = integer(
        "producer.id.expiration.ms",
        86_400_000,
        at_least(1),
        "How long a partition remembers an idempotent producer that is silent.",
        update=CLUSTER_WIDE,
    )
    producer_id_expiration_check_interval_ms: int = integer(
        "producer.id.expiration.check.interval.ms",
        600_000,
        at_least(1),
        "How often silent producers are looked for.",
    )
    producer_id_count_max: int = integer(
        "producer.id.count.max",
        200_000,
        at_least(1),
        "Strandline's own. How many idempotent producers all partitions of a node remember together. Beyond that the "
        "one silent for longest is forgotten, if it was silent for 5 minutes; else new ones have to retry.",
    )
    log_retention_check_interval_ms: int = long(
        "log.retention.check.interval.ms", 300_000, at_least(1), "How often old segments are looked for."
    )

    # Watching it.
    metrics_enable: bool = boolean(
        "metrics.enable",
        True,
        "Strandline's own. Whether each request is counted and timed; what costs nothing is shown in any case.",
    )
    http_security_protocol: str = text(
        "http.security.protocol",
        "PLAINTEXT",
        one_of("PLAINTEXT", "SSL"),
        "Strandline's own. What `http.listener` speaks: HTTP, or HTTPS with the `ssl.` settings of the node or of the "
        "listener HTTP (`listener.name.http.ssl.keystore.location`). With `ssl.client.auth=required` a scraper needs a "
        "certificate.",
    )
    http_listener: str = text(
        "http.listener",
        "127.0.0.1:9644",
        None,
        "Strandline's own. Where `/metrics`, `/public_metrics`, `/livez` and `/readyz` are served, as `host:port`; "
        "port 0 takes a free one, `off` serves none. The default steps back if its port is taken; a given one must be "
        "free.",
    )
    log_format: str = text(
        "log.format",
        "text",
        one_of("text", "json"),
        "Strandline's own. Lines on standard error for people, or one JSON object each.",
    )
    log_level: str = text(
        "log.level",
        "INFO",
        one_of("DEBUG", "INFO", "WARNING", "ERROR"),
        "Strandline's own. The least severe lines that are written.",
    )
    telemetry_max_bytes: int = integer(
        "telemetry.max.bytes",
        MIB,
        at_least(1),
        "The largest metrics, compressed or not, that a client may push in one request.",
    )

    num_recovery_threads_per_data_dir: int = integer(
        "num.recovery.threads.per.data.dir",
        2,
        at_least(1),
        "Worker processes that recover logs after a crash. Few and small logs are recovered without one.",
        update=CLUSTER_WIDE,
    )

    # Accepted, so that a stock server.properties starts without warnings.
    num_network_threads: int = integer(
        "num.network.threads", 3, at_least(1), "One loop serves all connections.", effect=False, update=CLUSTER_WIDE
    )
    num_io_threads: int = integer(
        "num.io.threads", 8, at_least(1), "One loop serves all requests.", effect=False, update=CLUSTER_WIDE
    )
    queued_max_requests: int = integer(
        "queued.max.requests",
        500,
        at_least(1),
        "A request is begun as soon as it is there; `queued.max.request.bytes` is the limit here.",
        effect=False,
    )
    inter_broker_listener_name: str | None = text(
        "inter.broker.listener.name",
        None,
        None,
        "The listener that brokers use among themselves. Where it is not set: the one that is named like "
        "`security.inter.broker.protocol`, else the first one for clients.",
    )
    security_inter_broker_protocol: str = text(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "The protocol that brokers speak among themselves, where `inter.broker.listener.name` is not set. Only one of "
        "the two may be set.",
    )
    listener_security_protocol_map: str | None = text(
        "listener.security.protocol.map",
        None,
        None,
        "What each listener speaks, as `NAME:PROTOCOL`, comma-separated. A listener that is not mapped speaks the "
        "protocol that it is named like, else PLAINTEXT. SASL is not there yet and stops the start.",
        update=PER_BROKER,
    )
