"""`strandline topic describe --storage`: the files of a log as a user sees them."""

from __future__ import annotations

import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import CommandLine
from tests.clients.broker import existing_bootstrap
from tests.clients.client import until

from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import Conversation
from strandline.cli.common.output import Output
from strandline.cli.config.access import ConfigValue, Target, read_entries
from strandline.cli.topic.storage import policy_lines, show, show_without
from strandline.cli.topic.storage_reading import Storage, StoredReplica
from strandline.cli.topic.topics import described
from strandline.codec.messages.describe_storage_request import DescribeStorageRequest, StorageTopic
from strandline.codec.messages.describe_storage_response import DescribeStorageResponse, StoredPartition
from strandline.testing import embedded

pytestmark = pytest.mark.skipif(existing_bootstrap() is not None, reason="only our brokers tell of their files")

MIB = 1 << 20
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
SMALL_SEGMENTS = ("-c", "segment.bytes=1048576")


def fill(bootstrap: str, topic: str, megabytes: float, *, age_ms: int = 0, partition: int = 0) -> int:
    """Records of 100,000 bytes that no codec makes smaller, written that long ago if one believes them; how many."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1})
    count = round(megabytes * 10)
    for number in range(count):
        written_ms = int(time.time() * 1000) - age_ms
        producer.produce(topic, value=b"x" * 100_000, key=b"%d" % number, partition=partition, timestamp=written_ms)
    assert producer.flush(30) == 0
    return count


def new_topic(cli: CommandLine, *settings: str, partitions: int = 1) -> str:
    name = f"stored-{uuid.uuid4().hex[:8]}"
    words = [word for setting in settings for word in ("-c", setting)]
    cli.ok("topic", "create", name, "-p", str(partitions), *SMALL_SEGMENTS, *words)
    return name


def stored(cli: CommandLine, topic: str, *arguments: str) -> list[dict[str, Any]]:
    (described,) = cli.ok("topic", "describe", topic, "--storage", "--json", *arguments).objects
    storage: list[dict[str, Any]] = described["storage"]
    return storage


def test_segments_with_offsets_sizes_times_and_states(cli: CommandLine) -> None:
    topic = new_topic(cli)
    count = fill(cli.bootstrap or "", topic, 2.5, age_ms=2 * HOUR_MS)
    (log,) = stored(cli, topic)
    assert (log["log_start_offset"], log["log_end_offset"], log["high_watermark"]) == (0, count, count)
    assert log["segments_total"] == len(log["segments"]) == 3
    assert sum(segment["size_bytes"] for segment in log["segments"]) == log["size_bytes"] > 2.5 * 10**6
    ends = [segment["end_offset"] for segment in log["segments"]]
    assert [segment["base_offset"] for segment in log["segments"]] == [0, *ends[:-1]]
    assert ends[-1] == count
    assert [segment["state"] for segment in log["segments"]] == ["sealed", "sealed", "active"]
    for segment in log["segments"]:
        assert segment["first_timestamp_ms"] <= segment["max_timestamp_ms"] <= time.time() * 1000 - 2 * HOUR_MS + 1000
    lines = cli.ok("topic", "describe", topic, "--storage").lines
    head = lines.index(f"{topic}-0 on broker 1 (leader): offsets 0–{count - 1}, 2.39 MiB in 3 segments")
    table = next(at for at in range(head, len(lines)) if lines[at].startswith("SEGMENT"))
    assert [line.split()[-1] for line in lines[table + 1 : table + 4]] == ["sealed", "sealed", "active"]


def test_what_is_deleted_next_and_when(cli: CommandLine) -> None:
    topic = new_topic(cli)
    fill(cli.bootstrap or "", topic, 2.5, age_ms=2 * HOUR_MS)
    (log,) = stored(cli, topic)
    first = log["segments"][0]
    deletion = log["deletion"]
    assert (deletion["cause"], deletion["base_offset"], deletion["end_offset"]) == ("time", 0, first["end_offset"])
    assert 0 <= deletion["at_ms"] - (first["max_timestamp_ms"] + 7 * DAY_MS) <= 1
    assert deletion["words"] == (
        f"segment 0–{first['end_offset'] - 1} (977 KiB) is deleted in 6 d 21 h, when its newest record is 1 week old"
    )


def test_a_changed_setting_is_told_at_once(cli: CommandLine) -> None:
    topic = new_topic(cli)
    fill(cli.bootstrap or "", topic, 2.5)
    cli.ok("topic", "alter", topic, "-c", "retention.bytes=10485760", "-c", "retention.ms=-1", "--yes")
    until("the new settings", lambda: stored(cli, topic)[0]["deletion"]["cause"] == "size")
    words = stored(cli, topic)[0]["deletion"]["words"]
    assert words.startswith("segment 0–9 (977 KiB) is deleted when ")
    assert words.endswith(" MiB more have come: 10 MiB are kept")
    cli.ok("topic", "alter", topic, "-c", "retention.bytes=-1", "--yes")
    until("no limit", lambda: stored(cli, topic)[0]["deletion"]["cause"] is None)
    words = stored(cli, topic)[0]["deletion"]["words"]
    assert words == "nothing is deleted: neither retention.ms nor retention.bytes sets a limit"


def test_settings_that_mean_for_ever(cli: CommandLine) -> None:
    """2^63-1 is what many set in place of -1: no time, nor size, is so large."""
    most = str(2**63 - 1)
    policy = ("cleanup.policy=compact,delete", f"min.compaction.lag.ms={2**63 - 2}", f"max.compaction.lag.ms={most}")
    topic = new_topic(cli, *policy, f"retention.ms={most}", f"retention.bytes={most}", f"segment.ms={most}")
    fill(cli.bootstrap or "", topic, 1.5)
    (log,) = stored(cli, topic)
    assert log["deletion"]["words"] == "nothing is deleted: neither retention.ms nor retention.bytes sets a limit"
    assert "are younger than min.compaction.lag.ms" in log["compaction"]["words"]
    cli.ok("topic", "compact", topic)
    cli.ok("doctor", "--timeout", "30")


def test_an_empty_partition_has_little_to_show(cli: CommandLine, topic: str) -> None:
    lines = cli.ok("topic", "describe", topic, "--storage", "-p", "1").lines
    begin = lines.index(f"{topic}-1 on broker 1 (leader): empty, the next offset is 0, 0 B in 1 segment")
    assert lines[begin + 1] == "  deletion    nothing to delete: the log is empty"
    assert not any(line.startswith("SEGMENT") for line in lines)
    assert not any(line.startswith(f"{topic}-0") for line in lines)


@pytest.mark.slow
def test_times_of_files_that_an_earlier_process_wrote(tmp_path: Path) -> None:
    with embedded(data=tmp_path / "data") as broker:
        cli = CommandLine(broker.bootstrap)
        topic = new_topic(cli)
        fill(broker.bootstrap, topic, 2.5, age_ms=3 * HOUR_MS)
        before = stored(cli, topic)[0]["segments"]
        broker.stop()
        broker.start()
        assert stored(cli, topic)[0]["segments"] == before
        assert all(segment["first_timestamp_ms"] for segment in before)


def test_many_segments_are_shown_from_both_ends(cli: CommandLine) -> None:
    topic = new_topic(cli, "segment.bytes=1048576", "segment.ms=1000")
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cli.bootstrap, "batch.num.messages": 1})
    begin_ms = int(time.time() * 1000) - HOUR_MS
    for number in range(20):
        # Each is more than a second after the one before, so each begins a segment.
        producer.produce(topic, value=b"x", timestamp=begin_ms + number * 2000)
    assert producer.flush(30) == 0
    lines = cli.ok("topic", "describe", topic, "--storage").lines
    table = lines.index(next(line for line in lines if line.startswith("SEGMENT")))
    shown = [line.split()[0] for line in lines[table + 1 :]]
    assert shown == ["0", "1", "2", "3", "4", "5", "...", "14", "15", "16", "17", "18", "19"]
    assert lines[table + 7] == "... 8 more"
    everything = cli.ok("topic", "describe", topic, "--storage", "--all").lines
    assert not any(line.startswith("...") for line in everything)
    assert len(stored(cli, topic)[0]["segments"]) == 20


def test_what_cannot_be_asked_says_so(cli: CommandLine, topic: str) -> None:
    missing = cli.run("topic", "describe", topic, "--storage", "-p", "7")
    assert (missing.status, "has no partition 7" in missing.stderr) == (3, True)
    alone = cli.run("topic", "describe", topic, "--replicas")
    assert (alone.status, "say --storage --replicas" in alone.stderr) == (2, True)
    assert cli.run("topic", "describe", f"{topic}-typo", "--storage").status == 3


def test_the_doctor_says_that_logs_are_well(cli: CommandLine, topic: str) -> None:
    texts = [finding["text"] for finding in cli.run("doctor", "--json").objects if finding["check"] == "storage"]
    assert len(texts) == 1
    assert texts[0].endswith("no damage is known, and nothing keeps the cleaner")


def settings(**values: str) -> dict[str, ConfigValue]:
    return {name.replace("_", "."): ConfigValue(name.replace("_", "."), value, 1) for name, value in values.items()}


@pytest.mark.parametrize(
    ("entries", "lines"),
    [
        (None, ["unknown: this cluster does not offer DescribeConfigs"]),
        (
            settings(cleanup_policy="delete", retention_ms="604800000", retention_bytes="1073741824"),
            [
                "a segment goes when its newest record is 1 week old (retention.ms), or when the partition has 1 GiB "
                "without it (retention.bytes)"
            ],
        ),
        (
            settings(cleanup_policy="delete", retention_ms="-1", retention_bytes="-1"),
            ["nothing is deleted: no retention is set"],
        ),
        (
            settings(cleanup_policy="compact", min_cleanable_dirty_ratio="0.25"),
            [
                "nothing is deleted by age or size: cleanup.policy is compact",
                "sealed segments are cleaned when more than 25% of them is dirty (min.cleanable.dirty.ratio)",
            ],
        ),
    ],
)
def test_what_settings_alone_say(entries: dict[str, ConfigValue] | None, lines: list[str]) -> None:
    assert [words for _, words in policy_lines(entries)] == lines


def test_other_clusters_tell_how_large_replicas_are(cli: CommandLine, topic: str, capfdbinary: Any) -> None:
    """What a cluster without DescribeStorage answers; ours knows the requests of others, too."""
    fill(cli.bootstrap or "", topic, 0.2)
    cluster = Cluster(cli.bootstrap or "", {})
    admin = cluster.admin()
    described_topic = described(cluster, admin, topic)
    show_without(Output(), cluster, described_topic, read_entries(cluster, admin, Target("topic", topic)))
    sys.stdout.flush()
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert lines[1].startswith("storage   this cluster does not tell of its segments")
    assert "  deletion    a segment goes when its newest record is 1 week old (retention.ms)" in lines
    rows = [line.split() for line in lines[-3:]]
    assert [row[:2] for row in rows] == [["0", "1"], ["1", "1"], ["2", "1"]]
    assert rows[0][-3:] == ["195", "KiB", "-"]


def test_a_broker_tells_only_of_what_it_has(cli: CommandLine, topic: str) -> None:
    host, _, port = (cli.bootstrap or "").partition(":")

    def ask(*topics: StorageTopic) -> DescribeStorageResponse:
        with Conversation(host, int(port), 10.0) as conversation:
            answer = conversation.ask(DescribeStorageRequest(topics=list(topics)), DescribeStorageResponse)
        assert answer is not None
        return answer

    there = StorageTopic(topic=topic, partitions=[2, 0, 2, 7, -1])
    answer = ask(there, StorageTopic(topic="nowhere", partitions=[0]), StorageTopic(topic="no/name", partitions=[0]))
    assert [(part.topic, part.partition) for part in answer.partitions] == [(topic, 2), (topic, 0)]
    assert [part.segments for part in answer.partitions] == [[], []]
    assert (answer.node_id, answer.error_code) == (1, 0)
    assert 0 < answer.usable_bytes < answer.total_bytes
    assert ask().partitions == []


@pytest.mark.slow
def test_a_log_that_could_not_be_opened_says_why(tmp_path: Path) -> None:
    with embedded(data=tmp_path / "data") as broker:
        cli = CommandLine(broker.bootstrap)
        topic = new_topic(cli)
        fill(broker.bootstrap, topic, 1.5)
        broker.kill()
        # Where batches follow that is no torn tail but damage: the files stay as they are, and the log offline.
        path = tmp_path / "data" / f"{topic}-0" / "00000000000000000000.log"
        content = bytearray(path.read_bytes())
        content[250_000] ^= 4
        path.write_bytes(content)
        broker.start()
        # A worker recovers the log while the broker serves.
        until(
            "the log is found damaged", lambda: any("the CRC is wrong" in each["error"] for each in stored(cli, topic))
        )
        (log,) = stored(cli, topic)
        lines = cli.ok("topic", "describe", topic, "--storage").lines
        at = lines.index(f"{topic}-0 on broker 1 (leader): offline")
        assert lines[at + 1] == f"  because     {log['error']}"
        health = cli.run("cluster", "health")
        assert health.status == 5
        assert f"{topic}-0 on broker 1 is offline: {log['error']}" in health.stdout.decode()
        refused = cli.run("topic", "scrub", topic, "--now")
        assert (refused.status, log["error"] in refused.stderr) == (1, True)


def test_a_log_that_is_being_recovered_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    part = StoredPartition(
        topic="orders", partition=3, is_leader=True, error_code=9, error_message="recovering: 1 of 4 partitions"
    )
    storage = Storage(replicas=[StoredReplica(part, DescribeStorageResponse(node_id=1))])
    show(Output(), storage, all_replicas=False, all_segments=False)
    assert "orders-3 on broker 1 (leader): not open yet, the broker is recovering: 1 of 4" in capsys.readouterr().out
