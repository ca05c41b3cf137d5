"""Retention, seen by a client: what goes, when, and never sooner; and what is left on disk.

Segments hold three records each. A look at all logs comes every 50 ms, unless a test is about the long interval.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.scenarios.retention_ground import (
    DAY_MS,
    HOUR_MS,
    PER_SEGMENT,
    QUICK,
    SEGMENT_BYTES,
    TOPIC,
    bases,
    configure,
    delete_below,
    leftovers,
    now_ms,
    read_offsets,
    span,
    until,
    write,
)

import strandline
from strandline.local.embedded_broker import EmbeddedBroker


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with strandline.embedded(data=tmp_path_factory.mktemp("retention") / "data", properties=QUICK) as started:
        yield started


@pytest.fixture
def broker(shared: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    """The broker that all tests share, without the topics of the tests before."""
    yield shared
    admin = AdminClient({"bootstrap.servers": shared.bootstrap})
    names = [name for name in admin.list_topics(timeout=60).topics if not name.startswith("__")]
    for future in admin.delete_topics(names).values():
        future.result(20)


def create(broker: EmbeddedBroker, *, topic: str = TOPIC, **configs: str | int) -> None:
    broker.create_topic(topic, 1, internal_segment_bytes=SEGMENT_BYTES, **configs)


def settled(broker: EmbeddedBroker, looks: int = 2) -> None:
    """Some looks have come to their end: another topic, written after everything else, was emptied by one of them."""
    for number in range(looks):
        topic = f"clock-{next(_NUMBERS)}-{number}"
        create(broker, topic=topic, retention_ms=HOUR_MS)
        write(broker.bootstrap, [now_ms() - DAY_MS], topic=topic)
        until(lambda topic=topic: span(broker.bootstrap, topic=topic) == (1, 1))  # type: ignore[misc]


_NUMBERS = itertools.count()


def test_whole_segments_go_by_their_newest_record_up_to_the_first_that_stays(broker: EmbeddedBroker) -> None:
    create(broker, retention_ms=-1)
    now, old = now_ms(), now_ms() - DAY_MS
    # Four segments: all too old; one young record in it; all too old, but behind one that stays; the active one.
    write(broker.bootstrap, [old, old, old, old, now, old, old, old, old, now])
    configure(broker.bootstrap, retention_ms=HOUR_MS)
    until(lambda: span(broker.bootstrap)[0] == PER_SEGMENT)
    settled(broker)
    assert span(broker.bootstrap) == (PER_SEGMENT, 10)
    assert read_offsets(broker.bootstrap) == list(range(PER_SEGMENT, 10))
    assert bases(broker.data) == [3, 6, 9]


def test_a_silent_topic_empties_in_the_end_and_goes_on_where_it_was(broker: EmbeddedBroker) -> None:
    create(broker, retention_ms=HOUR_MS)
    write(broker.bootstrap, [now_ms() - DAY_MS] * 8)
    until(lambda: span(broker.bootstrap) == (8, 8))
    assert read_offsets(broker.bootstrap) == []
    until(lambda: bases(broker.data) == [8])
    write(broker.bootstrap, [now_ms()])
    assert read_offsets(broker.bootstrap) == [8]
    broker.kill()
    broker.start()
    assert span(broker.bootstrap) == (8, 9)


def test_size_lets_the_oldest_go_while_the_rest_is_still_large_enough(broker: EmbeddedBroker) -> None:
    # Kafka deletes a segment if what is left has at least `retention.bytes`.
    create(broker, retention_bytes=2 * SEGMENT_BYTES)
    write(broker.bootstrap, [now_ms()] * 5 * PER_SEGMENT)
    until(lambda: span(broker.bootstrap)[0] > 0)
    settled(broker)
    start, end = span(broker.bootstrap)
    sizes = {int(path.stem): path.stat().st_size for path in (broker.data / f"{TOPIC}-0").glob("*.log")}
    assert end == 15
    assert start == min(sizes)
    assert sum(sizes.values()) >= 2 * SEGMENT_BYTES
    assert sum(sizes.values()) - sizes[start] < 2 * SEGMENT_BYTES


def test_no_bytes_and_no_time_empty_a_topic_at_once(broker: EmbeddedBroker) -> None:
    create(broker, topic="none-bytes", retention_bytes=0, retention_ms=-1)
    write(broker.bootstrap, [now_ms()] * 4, topic="none-bytes")
    until(lambda: span(broker.bootstrap, topic="none-bytes") == (4, 4))


@pytest.mark.parametrize(
    "configs",
    [
        {"retention_ms": -1},
        {"retention_ms": HOUR_MS, "cleanup_policy": "compact"},
        {"retention_ms": 2 * DAY_MS},
        {"retention_ms": HOUR_MS, "message_timestamp_type": "LogAppendTime"},
        {"retention_ms": -1, "retention_bytes": 1 << 20},
    ],
    ids=lambda configs: ",".join(configs),
)
def test_what_the_policy_does_not_name_stays(broker: EmbeddedBroker, configs: dict[str, str | int]) -> None:
    create(broker, **configs)
    write(broker.bootstrap, [now_ms() - DAY_MS] * 8)
    settled(broker)
    assert span(broker.bootstrap) == (0, 8)


def test_records_from_the_future_stay_until_their_time_has_passed(broker: EmbeddedBroker) -> None:
    create(broker, retention_ms=1)
    write(broker.bootstrap, [now_ms() + HOUR_MS // 2] * PER_SEGMENT + [now_ms() - DAY_MS] * 4)
    settled(broker)
    assert span(broker.bootstrap) == (0, 7)


def test_compacted_and_deleted_topics_are_deleted_from_too(broker: EmbeddedBroker) -> None:
    create(broker, retention_ms=-1, cleanup_policy="compact,delete")
    write(broker.bootstrap, [now_ms() - DAY_MS] * 6 + [now_ms()])
    configure(broker.bootstrap, retention_ms=HOUR_MS)
    until(lambda: span(broker.bootstrap) == (6, 7))


def test_a_changed_setting_counts_long_before_the_next_look(tmp_path: Path) -> None:
    with strandline.embedded(data=tmp_path / "data") as broker:
        create(broker)
        write(broker.bootstrap, [now_ms() - HOUR_MS] * 6 + [now_ms()])
        configure(broker.bootstrap, retention_ms=HOUR_MS // 2)
        until(lambda: span(broker.bootstrap) == (6, 7))
        write(broker.bootstrap, [now_ms()] * 8)
        configure(broker.bootstrap, retention_bytes=SEGMENT_BYTES)
        until(lambda: span(broker.bootstrap)[0] > 6)


def test_segments_of_an_earlier_process_are_judged_by_what_their_files_know(broker: EmbeddedBroker) -> None:
    create(broker, retention_ms=-1)
    old, now = now_ms() - DAY_MS, now_ms()
    write(broker.bootstrap, [old] * 3 + [old, now, old] + [old] * 3)
    for stop in (broker.stop, broker.kill):
        stop()
        broker.start()
    configure(broker.bootstrap, retention_ms=HOUR_MS)
    until(lambda: span(broker.bootstrap)[0] == PER_SEGMENT)
    settled(broker)
    assert span(broker.bootstrap) == (3, 9)


def test_a_segment_without_its_time_index_is_judged_by_its_records(broker: EmbeddedBroker) -> None:
    create(broker, retention_ms=-1)
    old = now_ms() - DAY_MS
    write(broker.bootstrap, [old] * 3 + [now_ms() + HOUR_MS // 2] * 3 + [old] * 3)
    broker.stop()
    for path in (broker.data / f"{TOPIC}-0").glob("*.timeindex"):
        path.unlink()
    broker.start()
    configure(broker.bootstrap, retention_ms=1)
    until(lambda: span(broker.bootstrap)[0] == 3)
    settled(broker)
    assert span(broker.bootstrap) == (3, 9)


def test_files_stay_renamed_for_the_delay_and_a_restart_removes_what_is_left(broker: EmbeddedBroker) -> None:
    create(broker, retention_ms=-1, file_delete_delay_ms=600_000)
    write(broker.bootstrap, [now_ms() - DAY_MS] * 6 + [now_ms()])
    configure(broker.bootstrap, retention_ms=HOUR_MS)
    until(lambda: bases(broker.data) == [6])
    assert [name for name in leftovers(broker.data) if ".log." in name] == [
        "00000000000000000000.log.deleted",
        "00000000000000000003.log.deleted",
    ]
    broker.kill()
    broker.start()
    assert span(broker.bootstrap) == (6, 7)
    assert not leftovers(broker.data)
    configure(broker.bootstrap, file_delete_delay_ms=0)
    write(broker.bootstrap, [now_ms() - DAY_MS] * 6)
    assert delete_below(broker.bootstrap, 9) == 9
    until(lambda: bases(broker.data)[0] >= 9 and not leftovers(broker.data))


def test_a_reader_in_the_middle_of_what_goes_is_sent_to_the_start(broker: EmbeddedBroker) -> None:
    create(broker, retention_ms=-1)
    write(broker.bootstrap, [now_ms() - DAY_MS] * 9 + [now_ms()])
    assert read_offsets(broker.bootstrap) == list(range(10))
    configure(broker.bootstrap, retention_ms=HOUR_MS)
    until(lambda: span(broker.bootstrap)[0] == 9)
    assert read_offsets(broker.bootstrap) == [9]


def test_the_files_of_a_deleted_topic_stay_for_the_delay_too(broker: EmbeddedBroker) -> None:
    for topic, delay_ms in (("slow", 600_000), ("quick", 0)):
        create(broker, topic=topic, file_delete_delay_ms=delay_ms)
        write(broker.bootstrap, [now_ms()], topic=topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_topics(["slow", "quick"]).values():
        future.result(20)
    until(lambda: not list(broker.data.glob("quick-0*")))
    (left,) = broker.data.glob("slow-0*")
    assert left.name.endswith("-delete")
    create(broker, topic="slow")
    write(broker.bootstrap, [now_ms()], topic="slow")
    assert read_offsets(broker.bootstrap, topic="slow") == [0]
    broker.stop()
    broker.start()
    until(lambda: not left.exists())
    assert read_offsets(broker.bootstrap, topic="slow") == [0]
