"""What a user says to the source, and the sentence for what cannot be meant."""

from __future__ import annotations

import json

import pytest

from strandline.client.cluster_client import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from strandline.ids import TopicPartition
from strandline.spark.source.columns import ddl, value_ddl
from strandline.spark.source.options import parse_options, parse_shape
from strandline.spark.source.source_spec import (
    Everywhere,
    Offsets,
    OptionRefused,
    Timestamps,
    TopicSubscription,
    TriggerLimits,
)

LEAST = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_defaults_are_those_of_sparks_own_source_but_for_the_isolation_level() -> None:
    batch = parse_options(LEAST, streaming=False)
    stream = parse_options(LEAST, streaming=True)
    assert (batch.starting, batch.ending) == (Everywhere(EARLIEST), Everywhere(LATEST))
    assert (stream.starting, stream.ending) == (Everywhere(LATEST), Everywhere(LATEST))
    assert batch.isolation_level == READ_COMMITTED
    assert batch.fails_on_data_loss
    assert not batch.no_match_is_latest
    assert stream.limits == TriggerLimits(delay_ms_max=15 * 60_000)
    assert not stream.limits.are_set
    assert ddl(batch.shape) == (
        "`key` BINARY, `value` BINARY, `topic` STRING, `partition` INT, `offset` BIGINT, `timestamp` TIMESTAMP, "
        "`timestampType` INT"
    )


def test_a_stream_may_stop_somewhere() -> None:
    said = LEAST | {"stopAt": '{"orders":{"0":23,"1":0},"payments":{"0":5}}'}
    expected = {ORDERS_0: 23, ORDERS_1: 0, TopicPartition("payments", 0): 5}
    assert parse_options(said, streaming=True).stop_at == expected
    # One option for all sources of a query, and what is read as a table is read as it is.
    assert parse_options(said, streaming=False).stop_at is None
    for wrong in ("latest", '{"orders":{"0":-1}}', "{}"):
        with pytest.raises(OptionRefused, match="stopAt is"):
            parse_options(LEAST | {"stopAt": wrong}, streaming=True)


def test_a_stream_may_begin_where_it_began_before() -> None:
    said = LEAST | {"startAt": '{"orders":{"0":23}}', "startingOffsets": "latest"}
    options = parse_options(said, streaming=True)
    assert (options.start_at, options.starts_with_the_next_record) == ({ORDERS_0: 23}, False)
    assert parse_options(LEAST | {"startAt": '{"orders":{}}'}, streaming=True).start_at == {}
    with pytest.raises(OptionRefused, match="startAt is"):
        parse_options(LEAST | {"startAt": '{"orders":{"0":-1}}'}, streaming=True)


def test_names_are_read_in_any_case() -> None:
    said = {"KAFKA.Bootstrap.Servers": "b:1", "SUBSCRIBE": " a , b,a ", "INCLUDEHEADERS": "True"}
    options = parse_options(said, streaming=False)
    assert options.client.bootstrap == "b:1"
    assert options.subscription == TopicSubscription(topics=("a", "b"))
    assert "headers" in options.shape.columns


def test_topics_by_pattern_and_partitions_by_name() -> None:
    broker = {"kafka.bootstrap.servers": "b:1"}
    by_pattern = parse_options(broker | {"subscribePattern": "or.*"}, streaming=True)
    assert by_pattern.subscription == TopicSubscription(pattern="or.*")
    assigned = parse_options(broker | {"assign": '{"orders":[1,0,1]}'}, streaming=True)
    assert assigned.subscription == TopicSubscription(assigned=(ORDERS_0, ORDERS_1))


def test_where_to_start_and_end() -> None:
    offsets = {"startingOffsets": '{"orders":{"0":23,"1":-2}}', "endingOffsets": '{"orders":{"0":50,"1":-1}}'}
    options = parse_options(LEAST | offsets, streaming=False)
    assert options.starting == Offsets({ORDERS_0: 23, ORDERS_1: EARLIEST})
    assert options.ending == Offsets({ORDERS_0: 50, ORDERS_1: LATEST})
    times = {"startingOffsetsByTimestamp": '{"orders":{"0":1000}}', "endingTimestamp": "2000"}
    options = parse_options(LEAST | offsets | times, streaming=False)
    assert options.starting == Timestamps(by_partition={ORDERS_0: 1000})
    assert options.ending == Timestamps(everywhere=2000)
    # The time for all partitions goes before everything, as in Spark.
    options = parse_options(LEAST | offsets | times | {"startingTimestamp": "5"}, streaming=False)
    assert options.starting == Timestamps(everywhere=5)


def test_limits_of_a_trigger() -> None:
    said = {"maxOffsetsPerTrigger": "100", "minOffsetsPerTrigger": "10", "maxTriggerDelay": "2m"}
    options = parse_options(LEAST | said | {"maxBytesPerTrigger": "5000"}, streaming=True)
    assert options.limits == TriggerLimits(100, 10, 120_000, 5000)
    assert options.limits.are_set


def test_settings_of_a_consumer_that_are_followed() -> None:
    said = {
        "kafka.isolation.level": "read_uncommitted",
        "kafka.client.id": "me",
        "kafka.request.timeout.ms": "5000",
        "kafka.default.api.timeout.ms": "7000",
        "kafka.max.partition.fetch.bytes": "1000",
        "kafka.fetch.max.wait.ms": "20",
        "kafka.group.id": "mine",
        "kafka.max.poll.records": "10",
        "kafkaConsumer.pollTimeoutMs": "3000",
        "fetchOffset.numRetries": "0",
    }
    options = parse_options(LEAST | said, streaming=True)
    assert options.isolation_level == READ_UNCOMMITTED
    assert (options.client.client_id, options.client.request_timeout_s, options.client.api_timeout_s) == (
        "me",
        5.0,
        7.0,
    )
    assert (options.partition_bytes_max, options.wait_ms_max, options.stall_timeout_s) == (1000, 20, 3.0)
    assert options.offset_retries == 0


def test_options_of_the_other_end_are_passed_over() -> None:
    """Programs hand one set of options to source and sink; Spark's own do not mind."""
    shared = {"topic": "copies", "checkpointLocation": "/c", "kafka.acks": "all", "kafka.compression.type": "lz4"}
    assert parse_options(LEAST | shared, streaming=True) == parse_options(LEAST, streaming=True)


def test_a_path_is_no_topic() -> None:
    with pytest.raises(OptionRefused, match=r"load\(\) takes no path: name topics with the option subscribe"):
        parse_options(LEAST | {"path": "orders"}, streaming=False)


def test_columns_are_chosen() -> None:
    assert ddl(parse_shape(LEAST | {"columns": "offset, VALUE"})) == "`offset` BIGINT, `value` BINARY"
    assert parse_shape(LEAST | {"includeLeaderEpoch": "true"}).columns[-1] == "leaderEpoch"
    # Who names an optional column wants it.
    assert parse_shape(LEAST | {"columns": "headers"}).columns == ("headers",)


def test_columns_of_json_values() -> None:
    schema = {"valueSchema": "id BIGINT, name STRING"}
    assert ddl(parse_shape(LEAST | schema | {"columns": "offset"})) == (
        "id BIGINT, name STRING, `offset` BIGINT, _corrupt STRING"
    )
    assert ddl(parse_shape(LEAST | schema | {"columns": "", "mode": "FAILFAST"})) == "id BIGINT, name STRING"
    assert "`value`" not in ddl(parse_shape(LEAST | schema))
    in_structs = schema | {"columns": "key", "valueColumn": "v", "keySchema": "id BIGINT"}
    assert ddl(parse_shape(LEAST | in_structs)) == (
        "`v` STRUCT<id BIGINT, name STRING>, `key` BINARY, _corrupt STRING, _key STRUCT<id BIGINT>, _corrupt_key STRING"
    )


def test_a_json_schema_becomes_columns() -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": "string", "format": "date-time"},
            "score": {"type": ["number", "null"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "buyer": {"type": "object", "properties": {"name": {"type": "string"}, "vip": {"type": "boolean"}}},
        },
    }
    assert value_ddl(json.dumps(schema)) == (
        "`id` BIGINT, `at` TIMESTAMP, `score` DOUBLE, `tags` ARRAY<STRING>, "
        "`buyer` STRUCT<`name`: STRING, `vip`: BOOLEAN>"
    )


REFUSED = [
    ({"subscrib": "x"}, "subscrib is no option of the source: did you mean subscribe"),
    ({"qwertz": "x"}, "qwertz is no option of the source: correct the name, or leave it out"),
    ({"path": "x"}, "load\\(\\) takes no path: name topics with the option subscribe"),
    ({"assign": "{}"}, "subscribe and assign cannot be said together: say one of"),
    ({"subscribe": " , "}, "subscribe names no topic"),
    ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is missing: say host:port"),
    ({"kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset cannot be set: .*startingOffsets"),
    ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit cannot be set"),
    ({"kafka.value.deserializer": "x"}, "kafka.value.deserializer cannot be set: values come as bytes"),
    ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol=TLS is unknown; expected one of PLAINTEXT, SSL"),
    ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism=GSSAPI is not supported: say one of SCRAM-SHA-256"),
    ({"kafka.ssl.engine.factory.class": "x"}, "kafka.ssl.engine.factory.class is not supported: leave it out"),
    ({"kafka.fetch.max.bites": "1"}, "did you mean kafka.fetch.max.bytes"),
    ({"kafka.isolation.level": "x"}, "kafka.isolation.level is 'x': say read_committed or read_uncommitted"),
    ({"startingOffsets": "latest"}, "startingOffsets of a batch cannot be latest: nothing would be read"),
    ({"startingOffsets": '{"orders":{"0":-1}}'}, "startingOffsets of a batch cannot be latest"),
    ({"endingOffsets": "earliest"}, "endingOffsets of a batch cannot be earliest"),
    ({"startingOffsets": '{"orders":[0]}'}, "startingOffsets is .*: say it like"),
    ({"startingOffsets": '{"orders":{"0":-3}}'}, "startingOffsets is .*: say it like"),
    ({"startingOffsets": '{"orders":{"0":true}}'}, "startingOffsets is .*: say it like"),
    ({"startingOffsets": "soon"}, "startingOffsets is 'soon': say it like"),
    ({"startingTimestamp": "yesterday"}, "startingTimestamp is 'yesterday': say milliseconds since 1970"),
    ({"startingOffsetsByTimestampStrategy": "guess"}, "is 'guess': say error or latest"),
    ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is '0': say a whole number, 1 or above"),
    ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "minOffsetsPerTrigger 6 is above .* 5"),
    ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon': say a time like"),
    ({"minPartitions": "-1"}, "minPartitions is '-1'"),
    ({"failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe': say true or false"),
    ({"columns": "valu"}, "columns names 'valu': a record has key, value, topic"),
    ({"columns": ""}, "columns is empty"),
    ({"mode": "failfast"}, "mode has no meaning without valueSchema"),
    ({"valueColumn": "v"}, "valueColumn has no meaning without valueSchema"),
    ({"valueSchema": "id INT", "mode": "x"}, "mode is 'x': say permissive or failfast"),
]


@pytest.mark.parametrize(("said", "words"), REFUSED, ids=[json.dumps(said) for said, _ in REFUSED])
def test_what_cannot_be_meant_gets_a_sentence(said: dict[str, str], words: str) -> None:
    with pytest.raises(OptionRefused, match=words):
        parse_options(LEAST | said, streaming=False)


def test_nothing_to_read_from_is_told() -> None:
    with pytest.raises(OptionRefused, match="nothing says which topics to read: say one of subscribe"):
        parse_options({"kafka.bootstrap.servers": "b:1"}, streaming=False)
    with pytest.raises(OptionRefused, match=r"subscribePattern .* is no regular expression"):
        parse_options({"kafka.bootstrap.servers": "b:1", "subscribePattern": "("}, streaming=False)
    with pytest.raises(OptionRefused, match=r"assign is .*: say it like"):
        parse_options({"kafka.bootstrap.servers": "b:1", "assign": '{"orders":["x"]}'}, streaming=False)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(OptionRefused, match=f"{name} has no meaning for a stream"):
        parse_options(LEAST | {name: "latest"}, streaming=True)


def test_a_stream_may_begin_with_the_next_record() -> None:
    options = parse_options(LEAST | {"startingOffsets": '{"orders":{"0":-1}}'}, streaming=True)
    assert options.starting == Offsets({ORDERS_0: LATEST})


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("", "valueSchema is empty"),
        ("{", "begins like a JSON Schema and is no JSON"),
        ("{}", "is no JSON Schema of an object"),
        ('{"type":"object","properties":{"a":{}}}', "'a' has no one type that a column can have"),
        ('{"type":"object","properties":{"a":{"type":["string","integer"]}}}', "'a' has no one type"),
    ],
)
def test_a_schema_that_is_none_gets_a_sentence(schema: str, words: str) -> None:
    with pytest.raises(OptionRefused, match=words):
        value_ddl(schema)


def test_security_goes_to_the_client_and_shows_no_secret() -> None:
    given = {
        "kafka.bootstrap.servers": "here:9092",
        "subscribe": "orders",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "a",
        "kafka.sasl.password": "hidden",
        "kafka.ssl.ca.location": "/authority.pem",
    }
    options = parse_options(given, streaming=False)
    assert (options.client.security.protocol, options.client.security.user) == ("SASL_SSL", "a")
    assert "hidden" not in repr(options)
