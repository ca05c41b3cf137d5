"""Java clients push their metrics when a subscription asks for them (KIP-714), and the node shows them."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import pytest
from bench.kafka_jars import KafkaUnavailable
from tests.clients.broker import BROKER_PROPERTIES
from tests.clients.client import New, until
from tests.clients.java_client import JavaClient

from strandline.local.free_ports import free_port
from strandline.testing import embedded

pytestmark = [pytest.mark.slow, pytest.mark.java]


def test_subscribed_clients_push(tmp_path: Path) -> None:
    port = free_port()
    with embedded(properties=BROKER_PROPERTIES | {"http.listener": f"127.0.0.1:{port}"}) as broker:
        try:
            client = JavaClient(broker.bootstrap, tmp_path)
        except KafkaUnavailable as reason:
            pytest.skip(f"no Java clients: {reason}")
        wanted = {"interval.ms": "100", "metrics": "org.apache.kafka.consumer."}
        client.alter_config("client_metrics", "consumers", put=wanted)
        client.create_topic("orders")
        client.produce("orders", [New(value=b"v")])
        reader = client.reader("orders", {0: 0})
        shown = ""

        def pushed() -> bool:
            nonlocal shown
            reader.poll()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                shown = answer.read().decode()
            pushes = re.search(r"^strandline_client_telemetry_pushes_total (\d+)", shown, re.MULTILINE)
            return pushes is not None and int(pushes[1]) >= 2

        until("two pushes of a consumer", pushed)
        assert re.search(r"^strandline_client_telemetry_refused_total 0$", shown, re.MULTILINE)
        assert re.search(r"consumer\S*fetch", shown)
        reader.close()
        client.close()
