"""Settings that change under a running node: who holds a copy is told, and partitions in use obey."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.unit.log.engine import batch_of

from strandline.broker.main import node_on, stop
from strandline.broker.node import Node
from strandline.broker.replicas import replicas
from strandline.codec.messages.config_record import ConfigRecord
from strandline.config.node_config import BrokerConfig
from strandline.config.settings import READ_ONLY, settings_of
from strandline.errors import RequestError
from strandline.partition.partition import Partition
from strandline.quorum.controller.config_changes import ConfigAlteration, ConfigOperation
from strandline.quorum.controller.new_topics import NewTopic

TOPIC, BROKER = 2, 4
STATIC = {"listeners": "PLAINTEXT://127.0.0.1:0", "http.listener": "off"}


def run(tmp_path: Path, story: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    """A real node in this process, for as long as the story lasts."""

    async def main() -> None:
        node = node_on(asyncio.get_running_loop(), tmp_path, BrokerConfig.load("", STATIC))
        node.start()
        try:
            await story(node)
        finally:
            await stop(node)

    asyncio.run(main())


async def write(node: Node, records: list[Any]) -> None:
    done = asyncio.get_running_loop().create_future()
    node.metadata.write(records, done.set_result)
    assert await done is None


async def change(node: Node, kind: int, name: str, **settings: str | None) -> None:
    """Set each setting, or delete it where it is None; Kafka's names with underscores for dots."""
    operations = [ConfigOperation(key.replace("_", "."), value, int(value is None)) for key, value in settings.items()]
    asked = ConfigAlteration(kind, name, operations)
    ((records, refusal),) = node.controller.decide_configs([asked], node_id=node.node_id)
    assert refusal is None
    await write(node, records)


async def create(node: Node, name: str, partitions: int = 1, **settings: str) -> Partition:
    configs = [(key.replace("_", "."), value) for key, value in settings.items()]
    records, (outcome,) = node.controller.create_topics([NewTopic(name, partitions, 1, configs=configs)])
    assert not isinstance(outcome, RequestError)
    await write(node, records)
    partition = node.partition(name, partitions - 1)
    assert partition is not None
    return partition


def append(partition: Partition) -> tuple[int, list[int]]:
    """Append a record: what commits it, and a list that gets the code once it is committed."""
    batch = memoryview(bytearray(batch_of([b"a record"])))
    _, commits_at, _ = partition.append(batch, partition.runtime.now_ms())
    told: list[int] = []

    class Listener:
        def on_commit(self, error_code: int) -> None:
            told.append(error_code)

    if partition.high_watermark >= commits_at:
        told.append(0)
    else:
        partition.when_committed(commits_at, Listener())
    return commits_at, told


def test_flush_mode_changes_who_waits_for_the_disk(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        partition = await create(node, "orders")
        assert partition.flush_before_ack
        _, told = append(partition)
        assert told == [], "the only copy: not before the disk has it"
        partition.reconfigure(node.config.topic_config({"flush.mode": "async"}))
        assert told == [0], "nobody is left waiting for a flush that tells no one any more"
        await change(node, TOPIC, "orders", flush_mode="async")
        assert append(partition)[1] == [0]
        await change(node, TOPIC, "orders", flush_mode="ack")
        assert partition.flush_before_ack
        assert append(partition)[1] == []
        await change(node, TOPIC, "orders", flush_mode=None)
        await change(node, BROKER, "", flush_mode="async")
        assert not partition.flush_before_ack

    run(tmp_path, story)


def test_flush_messages_and_flush_ms_are_obeyed_at_once(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        partition = await create(node, "orders", flush_mode="async")
        append(partition)
        assert node.flusher.is_idle
        await change(node, TOPIC, "orders", flush_messages="2")
        append(partition)
        assert not node.flusher.is_idle, "two records ask for the disk"
        await change(node, TOPIC, "orders", flush_messages=None, flush_ms="0")
        append(partition)
        node.replicas.timed_flushes.flush_due(node.runtime.monotonic())
        assert partition.log.unflushed == 0 or not node.flusher.is_idle
        await change(node, TOPIC, "orders", flush_ms=None)
        assert not node.replicas.timed_flushes._flushed_at

    run(tmp_path, story)


def test_every_partition_of_every_topic_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "PARTITIONS_PER_STEP", 5)

    async def story(node: Node) -> None:
        await create(node, "many", 12)
        own = await create(node, "own", max_message_bytes="5000")
        await change(node, BROKER, "1", message_max_bytes="3000")
        assert {each.config.max_message_bytes for each in node.replicas.all() if each.topic == "many"} == {3000}
        assert own.config.max_message_bytes == 5000
        await change(node, TOPIC, "many", max_message_bytes="4000")
        assert {each.config.max_message_bytes for each in node.replicas.all() if each.topic == "many"} == {4000}
        later = await create(node, "later")
        assert later.config.max_message_bytes == 3000
        assert later.log.config is later.config

    run(tmp_path, story)


HELD_COPIES: dict[str, tuple[str, Callable[[Node], int]]] = {
    "max.connections": ("77", lambda node: node.listener.admission.connections_max),
    "max.connections.per.ip": ("78", lambda node: node.listener.admission.connections_per_host_max),
    "max.connections.per.ip.overrides": (
        "127.0.0.1:79",
        lambda node: node.listener.admission.per_host_overrides.get("127.0.0.1", 0),
    ),
    "max.connection.creation.rate": ("80", lambda node: node.listener.admission.creations_per_s_max),
    "connection.first.request.timeout.ms": (
        "81",
        lambda node: node.dispatcher.limits.deadlines.first_request_timeout_ms,
    ),
    "connection.partial.request.timeout.ms": (
        "82",
        lambda node: node.dispatcher.limits.deadlines.partial_request_timeout_ms,
    ),
    "open.files.max": ("83", lambda node: node.directory.open_files.open_files_max),
    "group.consumer.assignment.interval.ms": (
        "85",
        lambda node: node.groups._config.consumer_settings("any").assignment_interval_ms,
    ),
    "group.share.assignment.interval.ms": (
        "91",
        lambda node: node.groups._config.share_settings("any").assignment_interval_ms,
    ),
    "errors.deadletterqueue.auto.create.topics.enable": (
        "true",
        lambda node: int(node.config.errors_deadletterqueue_auto_create_topics_enable),
    ),
    "errors.deadletterqueue.topic.name.prefix": (
        "92",
        lambda node: int(node.config.errors_deadletterqueue_topic_name_prefix.replace("dlq.", "0")),
    ),
    "log.cleaner.backoff.ms": ("86", lambda node: node.cleaner.backoff_ms),
    "log.cleaner.threads": ("2", lambda node: node.config.log_cleaner_threads),
    "log.cleaner.dedupe.buffer.size": ("5000000", lambda node: node.cleaner.share().dedupe_buffer_bytes),
    "log.cleaner.io.buffer.size": ("87", lambda node: node.cleaner.share().io_buffer_bytes),
    "log.cleaner.io.buffer.load.factor": ("1", lambda node: int(node.cleaner.share().load_factor)),
    "log.cleaner.io.max.bytes.per.second": ("88", lambda node: int(node.cleaner.share().io_bytes_per_s)),
    "log.scrub.interval.ms": ("89", lambda node: node.config.log_scrub_interval_ms),
    "log.scrub.max.bytes.per.second": ("90", lambda node: node.config.log_scrub_max_bytes_per_second),
    "remote.fetch.max.wait.ms": ("93", lambda node: node.config.remote_fetch_max_wait_ms),
    "remote.list.offsets.request.timeout.ms": ("94", lambda node: node.config.remote_list_offsets_request_timeout_ms),
    "remote.log.manager.copier.thread.pool.size": (
        "2",
        lambda node: node.config.remote_log_manager_copier_thread_pool_size,
    ),
    "remote.log.manager.copy.max.bytes.per.second": (
        "95",
        lambda node: node.config.remote_log_manager_copy_max_bytes_per_second,
    ),
    "remote.log.reader.threads": ("3", lambda node: node.config.remote_log_reader_threads),
    "remote.log.manager.fetch.max.bytes.per.second": (
        "1000000",
        lambda node: node.config.remote_log_manager_fetch_max_bytes_per_second,
    ),
    "strandline.remote.checkpoint.interval.ms": (
        "1000001",
        lambda node: node.config.strandline_remote_checkpoint_interval_ms,
    ),
    "strandline.object.buffer.bytes": ("2000001", lambda node: node.config.strandline_object_buffer_bytes),
    "strandline.object.checkpoint.interval.ms": (
        "1000003",
        lambda node: node.config.strandline_object_checkpoint_interval_ms,
    ),
    "strandline.object.flush.bytes": ("1000004", lambda node: node.config.strandline_object_flush_bytes),
    "strandline.object.flush.interval.ms": ("1003", lambda node: node.config.strandline_object_flush_interval_ms),
    "strandline.object.merge.interval.ms": ("1000006", lambda node: node.config.strandline_object_merge_interval_ms),
    "strandline.object.orphan.ms": ("1000007", lambda node: node.config.strandline_object_orphan_ms),
    "num.recovery.threads.per.data.dir": ("3", lambda node: node.config.num_recovery_threads_per_data_dir),
    "producer.id.expiration.ms": ("84", lambda node: node.config.producer_id_expiration_ms),
    "transaction.partition.verification.enable": (
        "false",
        lambda node: int(node.config.transaction_partition_verification_enable),
    ),
}


ONLY_CHECKED = {"listener.security.protocol.map"}
"""Nobody holds anything of it: there is one protocol, and another one is refused."""


def test_every_dynamic_setting_of_a_node_is_in_the_table() -> None:
    dynamic = {
        setting.name for _, setting in settings_of(BrokerConfig) if setting.effect and setting.update != READ_ONLY
    }
    # Only with the prefix of a listener; see test_tls_listeners.
    dynamic = {name for name in dynamic if not name.startswith("ssl.")}
    assert dynamic - ONLY_CHECKED == set(HELD_COPIES)


@pytest.mark.parametrize("name", HELD_COPIES)
def test_whoever_holds_a_copy_is_told(tmp_path: Path, name: str) -> None:
    value, held = HELD_COPIES[name]
    expected = int(value == "true") if value in ("true", "false") else int(value.rpartition(":")[2])
    key = name.replace(".", "_")

    async def until(what: Callable[[], bool]) -> None:
        # Names of hosts are looked up in a thread.
        for _ in range(100_000):
            if what():
                return
            await asyncio.sleep(0)

    async def story(node: Node) -> None:
        before = held(node)
        assert before != expected
        await change(node, BROKER, "", **{key: value})
        await until(lambda: held(node) == expected)
        assert held(node) == expected
        await change(node, BROKER, "", **{key: None})
        await until(lambda: held(node) == before)
        assert held(node) == before
        await change(node, BROKER, "1", **{key: value})

    async def after_a_restart(node: Node) -> None:
        await until(lambda: held(node) == expected)
        assert held(node) == expected

    run(tmp_path, story)
    run(tmp_path, after_a_restart)


def test_the_controller_decides_by_the_new_settings(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        await change(node, BROKER, "", log_cleaner_min_compaction_lag_ms="100")
        asked = NewTopic("refused", 1, 1, configs=[("max.compaction.lag.ms", "50")])
        _, (outcome,) = node.controller.create_topics([asked])
        assert isinstance(outcome, RequestError)

    run(tmp_path, story)


def test_what_an_older_version_left_in_the_log_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Records that this version would refuse: the node starts, says which, and goes on without them."""
    odd = [
        (BROKER, "1", "num.partitions", "5"),
        (BROKER, "", "message.max.bytes", "many"),
        (BROKER, "", "log.retention.ms", "5000"),
        (TOPIC, "orders", "a.setting.of.tomorrow", "1"),
        (TOPIC, "orders", "segment.bytes", "1"),
        (TOPIC, "orders", "flush.messages", "7"),
    ]

    async def story(node: Node) -> None:
        await create(node, "orders")
        await write(
            node,
            [
                ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
                for kind, name, key, value in odd
            ],
        )

    async def after_a_restart(node: Node) -> None:
        assert node.config.num_partitions == 1
        partition = node.partition("orders", 0)
        assert partition is not None
        config = partition.config
        assert (config.max_message_bytes, config.retention_ms, config.flush_messages) == (1_048_588, 5000, 7)
        assert config.segment_bytes == 1 << 30

    run(tmp_path, story)
    run(tmp_path, after_a_restart)
    assert "num.partitions" in caplog.text
    assert "message.max.bytes" in caplog.text
