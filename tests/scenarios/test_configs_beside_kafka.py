"""The table of changes, put to Apache Kafka itself: what it says of Kafka's codes is true, and ours are the same."""

from __future__ import annotations

import pytest
from bench.brokers import Broker
from tests.clients.kafka_server import kafka as kafka  # the fixture
from tests.hostile.peer import Peer
from tests.scenarios.config_cases import BROKER, CASES, EXISTING, GROUP, METRICS, TOPIC

import strandline
from strandline.codec.messages import incremental_alter_configs_request as incremental
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from strandline.config.kafka_settings import OTHER_SETTINGS, REFUSED

DESCRIBED = ((TOPIC, EXISTING), (BROKER, "1"), (GROUP, "another-group"), (METRICS, "another-subscription"))
OURS_ALONE = {
    "confluent.key.schema.validation",
    "confluent.key.subject.name.strategy",
    "confluent.value.schema.validation",
    "confluent.value.subject.name.strategy",
    "flush.mode",
    "strandline.lag.objectives",
    "strandline.owner",
    "strandline.retention.lock.ms",
    "strandline.schema.validation",
    "strandline.validate.records",
}
NOT_WHILE_IT_RUNS = {"listeners"}
"""Kafka opens and closes listeners while it runs; here that needs a start."""
SET_BY_THE_HARNESS = 4
ANOTHER_DEFAULT = {"min.insync.replicas"}
"""A fresh Kafka keeps it as a dynamic setting of the cluster, for its eligible leader replicas."""


def codes(peer: Peer) -> list[int]:
    topic = CreatableTopic(name=EXISTING, num_partitions=1, replication_factor=1)
    assert peer.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0
    found = []
    for case in CASES:
        config = incremental.AlterableConfig(name=case.name, config_operation=case.operation, value=case.value)
        resource = incremental.AlterConfigsResource(
            resource_type=case.resource_type, resource_name=case.resource_name, configs=[config]
        )
        (response,) = peer.ask(incremental.IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        found.append(response.error_code)
    return found


def described(peer: Peer, kind: int, name: str) -> dict[str, tuple[object, ...]]:
    """Type, read-only, sensitive, and value and synonyms where neither side was given another value."""
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    (result,) = peer.ask(DescribeConfigsRequest(resources=[asked], include_synonyms=True), 4).results
    found = {}
    for config in result.configs:
        # Names with a unit of their own: what the harness sets for one shows as a synonym of the others.
        synonyms = [
            (each.name, each.value, each.source) for each in config.synonyms if each.source != SET_BY_THE_HARNESS
        ]
        plain = config.config_source != SET_BY_THE_HARNESS and config.name not in ANOTHER_DEFAULT
        found[config.name] = (
            config.config_type,
            config.read_only,
            config.is_sensitive,
            *((config.value, config.config_source, synonyms) if plain and kind != BROKER else ()),
        )
    return found


@pytest.mark.slow
@pytest.mark.java
def test_kafka_answers_what_the_table_says(kafka: Broker) -> None:
    with Peer(kafka.port) as theirs:
        found = codes(theirs)
        wrong = [(case, code) for case, code in zip(CASES, found, strict=True) if code != case.code]
        assert not wrong
        with strandline.embedded() as log, Peer(log.port) as ours:
            assert codes(ours) == found
            for kind, name in DESCRIBED:
                of_ours, of_theirs = described(ours, kind, name), described(theirs, kind, name)
                both = of_ours.keys() & of_theirs.keys() - NOT_WHILE_IT_RUNS
                assert {each: of_ours[each] for each in both} == {each: of_theirs[each] for each in both}
                if kind != BROKER:
                    assert of_ours.keys() - OURS_ALONE == of_theirs.keys()
                else:
                    refused = {other.name for other in OTHER_SETTINGS if other.verdict == REFUSED}
                    assert not of_theirs.keys() - of_ours.keys() - refused
