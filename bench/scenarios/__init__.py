"""One module per scenario, each with NAME, SUMMARY and `run(stage) -> list[Figure]`.

The order below is the order of a full run: first what the warmed pair of brokers serves, then what needs brokers of its
own, last what needs none. A scenario leaves no topic behind and depends on no other.
"""

from __future__ import annotations

from typing import Protocol, cast

from bench.figures import Figure
from bench.scenarios import (
    acls,
    avro_arrow,
    cdc,
    cli_start,
    cluster_failover,
    cluster_latency,
    cluster_partitions,
    cluster_produce_1k,
    cluster_produce_100_lz4,
    cold_read,
    commits,
    compaction,
    connect,
    connect_sinks,
    coordinator_failover,
    end_to_end,
    fanout,
    fetch_1k,
    first_output,
    flush_ack,
    group_join,
    half_open,
    idle,
    idle_connections,
    idle_groups,
    idle_partitions,
    large_log,
    library,
    librdkafka_one_record,
    many_partitions,
    memory,
    metadata,
    metrics_cost,
    one_record,
    pipeline_window,
    produce_1k,
    produce_100_lz4,
    producer_ids,
    queue,
    queue_latency,
    quota,
    rebuild,
    recovery,
    registry,
    retention,
    scram,
    serve_brokers,
    spark_available_now,
    spark_latency,
    spark_read,
    spark_sink,
    startup,
    tls,
    topics_1000,
    transactions,
    validation,
    views,
)
from bench.stage import Stage


class Scenario(Protocol):
    NAME: str
    SUMMARY: str

    def run(self, stage: Stage) -> list[Figure]: ...


SCENARIOS: dict[str, Scenario] = {
    module.NAME: cast(Scenario, module)
    for module in (
        produce_1k,
        produce_100_lz4,
        fetch_1k,
        one_record,
        end_to_end,
        fanout,
        metadata,
        commits,
        connect,
        connect_sinks,
        cdc,
        transactions,
        spark_read,
        spark_available_now,
        spark_sink,
        spark_latency,
        pipeline_window,
        views,
        rebuild,
        first_output,
        memory,
        startup,
        recovery,
        idle,
        idle_partitions,
        idle_connections,
        half_open,
        serve_brokers,
        flush_ack,
        librdkafka_one_record,
        cold_read,
        compaction,
        many_partitions,
        retention,
        metrics_cost,
        validation,
        topics_1000,
        idle_groups,
        producer_ids,
        quota,
        tls,
        scram,
        acls,
        group_join,
        queue,
        queue_latency,
        cluster_produce_1k,
        cluster_produce_100_lz4,
        cluster_latency,
        cluster_partitions,
        cluster_failover,
        coordinator_failover,
        library,
        avro_arrow,
        large_log,
        cli_start,
        registry,
    )
}
