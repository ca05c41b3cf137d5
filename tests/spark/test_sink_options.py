"""Options and columns of the sink: what is done, what has no meaning, what is refused and in which words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from strandline.codec.compression import Compression
from strandline.runtime.fault_points import SINK_POINTS, VARIABLE
from strandline.spark.sink.commit_message import TaskWritten, told, told_by_all
from strandline.spark.sink.failures import SinkFailed, SinkRefused
from strandline.spark.sink.options import TRANSACTION_TIMEOUT_MS_DEFAULT, parse_options
from strandline.spark.sink.schema import check_columns
from strandline.spark.sink.writers import batch_writer, stream_writer

BROKER = {"kafka.bootstrap.servers": "here:9092"}
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def frame(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_options_of_sparks_own_sink_mean_the_same() -> None:
    options = parse_options(
        BROKER
        | {
            "topic": "orders",
            "kafka.acks": "all",
            "kafka.compression.type": "lz4",
            "kafka.linger.ms": "5",
            "kafka.transaction.timeout.ms": "7000",
            "checkpointLocation": "/somewhere",
            "subscribe": "also for the source",
            "kafka.group.id": "also for the source",
        }
    )
    assert (options.bootstrap, options.topic) == ("here:9092", "orders")
    assert options.compression == Compression.LZ4
    assert options.transaction_timeout_ms == 7000
    assert parse_options(BROKER).transaction_timeout_ms == TRANSACTION_TIMEOUT_MS_DEFAULT
    assert parse_options(BROKER | {"transactionTimeoutMs": "9"}).transaction_timeout_ms == 9


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"acks": "1"}, "would lose records"),
        ({"kafka.acks": "0"}, "would lose records"),
        ({"kafka.enable.idempotence": "false"}, "would double records"),
        ({"kafka.transactional.id": "mine"}, "the sink names its transactions itself"),
        ({"kafka.key.serializer": "x"}, "leave it out"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism=GSSAPI is not supported"),
        ({"kafka.sasl.login.class": "x"}, "kafka.sasl.login.class is not supported"),
        ({"kafka.compression.type": "rar"}, "it is one of none, gzip, snappy, lz4, zstd"),
        ({"kafka.batch.size": "many"}, "no number above 0"),
        ({"kafka.lingr.ms": "1"}, "no setting of a Kafka producer"),
        ({"transactionTimeout": "1"}, "transactionTimeoutMs"),
    ],
)
def test_what_cannot_be_done_is_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(SinkRefused) as caught:
        parse_options(BROKER | given)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "topic", "words"),
    [
        ({"key": StringType()}, "t", "no column value"),
        ({"value": IntegerType()}, "t", "value is int and must be string or binary"),
        ({"value": StringType()}, None, "set the option topic, or select a column topic"),
        ({"value": StringType(), "partition": StringType()}, "t", "partition is string and must be int"),
        ({"value": StringType(), "headers": MapType(StringType(), BinaryType())}, "t", "headers is map<string,binary>"),
    ],
)
def test_a_data_frame_that_cannot_be_written_is_refused(
    columns: dict[str, DataType], topic: str | None, words: str
) -> None:
    with pytest.raises(SinkRefused) as caught:
        check_columns(frame(**columns), topic)
    assert words in str(caught.value)


def test_columns_that_the_sink_does_not_know_are_left_out() -> None:
    both = {"value": BinaryType(), "key": StringType(), "topic": StringType(), "partition": IntegerType()}
    check_columns(frame(**both, other=IntegerType()), None)
    check_columns(frame(value=StringType(), headers=HEADERS), "t")


def test_a_log_is_only_added_to() -> None:
    schema = frame(value=StringType())
    with pytest.raises(SinkRefused, match="only added to"):
        stream_writer(BROKER | {"topic": "t"}, schema, overwrite=True)
    with pytest.raises(SinkRefused, match="only added to"):
        batch_writer(BROKER | {"topic": "t"}, schema, overwrite=True)


def test_a_batch_is_not_committed_without_word_of_each_task() -> None:
    first, second = TaskWritten("sink", 1, None), TaskWritten("sink", 2, None)
    assert told_by_all([first, second]) == [first, second]
    with pytest.raises(SinkFailed, match="word of 1 of its 2 tasks"):
        told_by_all([first, None])
    assert told([first, None]) == [first]


@pytest.mark.parametrize("action", ["kill", "fail"])
def test_a_fault_happens_once_at_its_point(tmp_path: Path, action: str) -> None:
    file = tmp_path / "done"
    script = "from strandline.runtime.fault_points import fault_point as at\nat('before-flush')\nat('after-flush')\n"
    environ = os.environ | {VARIABLE: f"after-flush:{action}:{file}"}
    first, second = (
        subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, check=False, text=True)
        for _ in range(2)
    )
    assert first.returncode == (-9 if action == "kill" else 1)
    assert action == "kill" or "PlantedFault" in first.stderr
    assert second.returncode == 0
    assert file.exists()
    assert "after-flush" in SINK_POINTS


def test_security_goes_to_every_connection_and_shows_no_secret() -> None:
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="hidden";'
    given = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": login,
        "kafka.ssl.truststore.location": "/authority.pem",
    }
    options = parse_options(BROKER | given)
    assert (options.security.protocol, options.security.user) == ("SASL_SSL", "a")
    assert "hidden" not in repr(options)
    assert hash(options) == hash(parse_options(BROKER | given))
    with pytest.raises(SinkRefused) as caught:
        parse_options(BROKER | given | {"kafka.sasl.jaas.config": "hidden"})
    assert "hidden" not in str(caught.value)
