"""Spark, and a whole pipeline, on a cluster with TLS, logins and an authorizer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.cli.conftest import COMMAND, CommandLine
from tests.spark_fixtures import BROKER_PROPERTIES

import strandline
from strandline.config.properties import parse_properties
from strandline.local.embedded_broker import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 120
PIPELINE = """
from strandline import pipeline

orders = pipeline.source("orders", schema="customer STRING, amount BIGINT")

@pipeline.stream
def large(orders):
    return orders.where("amount > 100")
"""


@pytest.fixture(scope="module")
def log() -> Iterator[EmbeddedBroker]:
    with strandline.embedded(secure=True, properties=BROKER_PROPERTIES) as log:
        yield log


def options_of(log: EmbeddedBroker) -> dict[str, str]:
    assert log.command_config is not None
    settings = parse_properties(Path(log.command_config).read_text())
    return {f"kafka.{name}": value for name, value in settings.items()} | {"kafka.bootstrap.servers": log.bootstrap}


def put(log: EmbeddedBroker, topic: str, *amounts: int) -> None:
    producer = Producer(log.client_config)
    for amount in amounts:
        producer.produce(topic, json.dumps({"customer": "ada", "amount": amount}))
    assert producer.flush(TIMEOUT_S) == 0


def cli_of(log: EmbeddedBroker) -> CommandLine:
    cli = CommandLine(log.bootstrap)
    assert log.command_config is not None
    cli.environ["STRANDLINE_COMMAND_CONFIG"] = log.command_config
    return cli


@pytest.mark.lengthy("starts Spark")
def test_a_query_from_topic_to_topic(spark: SparkSession, log: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    log.create_topic(topic)
    log.create_topic(f"{topic}-copy")
    put(log, topic, 1, 2, 3)
    options, checkpoint = options_of(log), tmp_path / "checkpoint"
    frame = spark.readStream.format("strandline").options(**options, subscribe=topic, startingOffsets="earliest").load()
    writer = frame.select("value").writeStream.format("strandline").options(**options, topic=f"{topic}-copy")
    query = writer.option("checkpointLocation", str(checkpoint)).queryName(topic).trigger(availableNow=True).start()
    query.awaitTermination(TIMEOUT_S)
    assert query.exception() is None
    copied = spark.read.format("strandline").options(**options, subscribe=f"{topic}-copy").load()
    assert copied.count() == 3
    password = log.client_config["sasl.password"].encode()
    files = [path for path in checkpoint.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if password in path.read_bytes()]


@pytest.mark.lengthy("starts Spark in a process of its own")
def test_a_pipeline(log: EmbeddedBroker, tmp_path: Path) -> None:
    log.create_topic("orders")
    put(log, "orders", 50, 150, 250)
    (tmp_path / "shop.py").write_text(PIPELINE)
    cli = cli_of(log)
    ran = subprocess.run(
        [*COMMAND, "pipeline", "run", "shop.py", "--once"],
        cwd=tmp_path,
        env=cli.environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    topics = "\n".join(cli.ok("topic", "list").lines)
    written = cli.ok("consume", "large", "--from", "earliest", "--format", "%s\n")
    assert [json.loads(line)["amount"] for line in written.lines] == [150, 250], topics
    assert any("shop" in line for line in cli.ok("pipeline", "list").lines)
    password = log.client_config["sasl.password"]
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and password.encode() in path.read_bytes()]
    assert not kept
    assert password not in ran.stderr + ran.stdout
