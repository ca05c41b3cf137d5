"""What `/metrics` says of transactions is true: what is open, for how long, and what it holds back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.scenarios.test_observability import figures
from tests.scenarios.transactional_clients import PlainSpoken

from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.testing import embedded


@pytest.fixture
def node() -> Iterator[EmbeddedBroker]:
    properties = {"http.listener": "127.0.0.1:0", "transaction.state.log.num.partitions": "4"}
    with embedded(properties=properties) as broker:
        yield broker


def test_transactions_are_counted_where_they_are_coordinated_and_where_they_write(node: EmbeddedBroker) -> None:
    node.create_topic("orders", partitions=2)
    here = {"topic": "orders", "partition": "0"}
    with PlainSpoken([node.port], "worker") as producer, PlainSpoken([node.port], "idle") as idle:
        producer.init()
        idle.init()
        before = figures(node)
        assert before.of("strandline_transactional_ids", state="Empty") == 2
        assert before.of("strandline_transactions_open") == 0
        assert before.of("strandline_transactions_oldest_seconds") == 0
        for value in ("a", "b", "c"):
            assert producer.produce("orders", value) == ErrorCode.NONE
        during = figures(node)
        assert during.of("strandline_transactional_ids", state="Ongoing") == 1
        assert during.of("strandline_transactions_open") == 1
        assert during.of("strandline_transactions_oldest_seconds") > 0
        assert during.of("strandline_transactions_overdue") == 0
        assert during.of("kafka_cluster_partition_laststableoffsetlag", **here) == 3
        assert during.of("strandline_partition_open_transactions", **here) == 1
        assert during.of("kafka_cluster_partition_laststableoffsetlag", topic="orders", partition="1") == 0
        assert producer.end(commits=True).error_code == ErrorCode.NONE
        # The next transaction begins only when all markers of the last one are written.
        assert producer.produce("orders", "d") == ErrorCode.NONE
        assert producer.end(commits=False).error_code == ErrorCode.NONE
        producer.init()
    after = figures(node, "/public_metrics")
    assert after.of("strandline_transactional_ids", state="Empty") == 2
    assert after.of("strandline_transactions_open") == 0
    assert after.of("strandline_transaction_markers_waiting") == 0
    assert after.of("kafka_server_replicamanager_partitionswithlatetransactionscount") == 0
    assert figures(node).of("kafka_cluster_partition_laststableoffsetlag", **here) == 0
