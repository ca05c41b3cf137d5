"""Kafka's own producer pushes its metrics (KIP-714), as Kafka's own tool has asked it to."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.kafka_jars import KafkaUnavailable, kafka_class_path
from tests.clients.kafka_server import kafka_tool
from tests.interop.kafka_tools import TOOLS, Tools
from tests.scenarios.test_observability import ANY_PORT, figures

from strandline.testing import embedded

pytestmark = [pytest.mark.slow, pytest.mark.java]


def test_kafkas_producer_pushes_what_kafkas_tool_asks_for(tmp_path: Path) -> None:
    try:
        kafka_class_path()
    except KafkaUnavailable as reason:
        pytest.skip(f"no Apache Kafka: {reason}")
    with embedded(properties=ANY_PORT) as log:
        log.create_topic("orders")
        tools = Tools(log.bootstrap, tmp_path)
        match = "client_software_name=apache-kafka-java,client_id=performer"
        asked = (
            "--name",
            "producers",
            "--metrics",
            "org.apache.kafka.producer.",
            "--interval",
            "200",
            "--match",
            match,
        )
        tools.run("ClientMetricsCommand", "--alter", *asked)
        assert "interval.ms=200" in tools.run("ClientMetricsCommand", "--describe", "--name", "producers")
        kafka_tool(
            f"{TOOLS}.ProducerPerformance",
            *("--topic", "orders", "--num-records", "60", "--record-size", "100", "--throughput", "20"),
            *("--producer-props", f"bootstrap.servers={log.bootstrap}", "client.id=performer"),
            logs=tmp_path,
        )
        seen = figures(log)
        pushed = {name: dict(labels) for name, labels in seen.all if name.startswith("kafka_client_")}
        assert all(name.startswith("kafka_client_producer_") for name in pushed), "no other metrics were asked for"
        assert {labels["client_id"] for labels in pushed.values()} == {"performer"}
        counted = [value for (name, _), value in seen.all.items() if name == "kafka_client_producer_record_send_total"]
        # The last push comes when the producer is closed, so that no record is missing from the sum of the deltas.
        assert counted == [60], sorted(pushed)
        assert seen.of("kafka_network_requestmetrics_requests_total", request="PushTelemetry") >= 2
        tools.run("ClientMetricsCommand", "--delete", "--name", "producers")
        assert "producers" not in tools.run("ClientMetricsCommand", "--list")
