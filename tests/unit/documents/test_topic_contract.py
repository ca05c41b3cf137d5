"""What a topic's contract changes, without a cluster."""

from __future__ import annotations

import pytest

from strandline.cli.contract.topic_contract import (
    OBJECTIVES,
    OWNER,
    TopicContract,
    TopicState,
    compare,
    export_topic,
    is_same_value,
    losses,
    parse_topic,
)
from strandline.documents.fields import Fields

NOW = TopicState(
    "orders",
    6,
    3,
    own={"retention.ms": "604800000", "min.insync.replicas": "2"},
    in_force={"retention.ms": "604800000", "min.insync.replicas": "2", "cleanup.policy": "delete"},
    fallbacks={"retention.ms": ("log.retention.ms", "3600000")},
)


def wanted(**fields: object) -> TopicContract:
    return parse_topic(Fields({"name": "orders", **fields}), None)


def test_other_clusters_do_not_keep_owners() -> None:
    topic = wanted(owner="shop", lag={"billing": "1s"}, retention="7d")
    assert compare(topic, NOW, keeps_own=False).is_empty
    assert set(compare(topic, NOW, keeps_own=True).set_) == {OWNER, OBJECTIVES}
    assert set(compare(topic, None, keeps_own=False).set_) == {"retention.ms"}


def test_what_brokers_set_themselves_is_no_drift() -> None:
    assert compare(wanted(retention="7d"), NOW, keeps_own=True).is_empty
    assert compare(wanted(retention="7d", settings={"min.insync.replicas": 1}), NOW, keeps_own=True).set_


def test_partitions_with_unequal_replicas_are_drift() -> None:
    uneven = TopicState("orders", 6, 3, is_uniform=False)
    assert compare(wanted(replication=3), uneven, keeps_own=True).replication == 3
    assert compare(wanted(), uneven, keeps_own=True).is_empty
    assert "replication" not in export_topic(uneven)


def test_a_retention_that_is_taken_back_costs_what_the_brokers_delete() -> None:
    change = compare(wanted(), NOW, keeps_own=True)
    assert change.unset == ("retention.ms",)
    assert losses(change) == ["records older than 1 hour will be deleted"]
    assert change.after_change("retention.ms") == "3600000"


@pytest.mark.parametrize(
    ("name", "one", "other", "same"),
    [
        ("cleanup.policy", "compact,delete", "delete, compact", True),
        ("min.cleanable.dirty.ratio", "0.5", "0.50", True),
        ("unclean.leader.election.enable", "TRUE", "true", True),
        ("retention.ms", "1", "10", False),
        ("someone.elses", "1", "1.0", False),
    ],
)
def test_values_that_mean_the_same(name: str, one: str, other: str, same: bool) -> None:
    assert is_same_value(name, one, other) is same
