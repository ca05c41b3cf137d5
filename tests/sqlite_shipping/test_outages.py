"""A broker that is killed, and a topic that lost records."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.sqlite_shipping.driving import (
    Writer,
    file_of,
    make_database,
    new_topic,
    newest_transaction,
    records_of,
    restored,
    ship_once,
    shipping,
    topic_of,
    wait_until,
)
from tests.sqlite_shipping.test_kills import check_sequence

import strandline
from strandline.sqlite.failures import MomentGone, ShippingFailed
from strandline.sqlite.records import HEADER
from strandline.sqlite.topic import ShippedRecord


@pytest.mark.slow
def test_a_broker_that_is_killed_is_waited_for(tmp_path: Path) -> None:
    database, name = make_database(tmp_path / "a.db"), new_topic()
    with strandline.embedded() as log:
        topic = topic_of(log.bootstrap, name)
        with Writer(database) as writer, shipping(log.bootstrap, database, name) as shipper:
            writer.insert(5)
            wait_until(lambda: newest_transaction(topic) == 1, "the first transaction is shipped")
            log.kill()
            for _ in range(3):
                writer.insert(5)
            log.start()
            wait_until(lambda: newest_transaction(topic) == 4, "all transactions are shipped", 120)
            assert shipper.process.poll() is None
            expected = file_of(database, tmp_path)
        check_sequence(topic)
        assert restored(topic, tmp_path)[0] == expected
        assert len({each.header.state.generation for each in records_of(topic)}) == 1


def write(bootstrap: str, name: str, records: list[ShippedRecord]) -> None:
    """Write records as they are, one after the other; offsets in them stay right if none before is left out."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for each in records:
        producer.produce(name, each.value, partition=0, headers=[(HEADER, each.header.encode())])
    producer.flush(30)


def test_lost_and_changed_records_are_named(bootstrap: str, tmp_path: Path) -> None:
    database, name = make_database(tmp_path / "a.db"), new_topic()
    topic = topic_of(bootstrap, name)
    with Writer(database) as writer:
        ship_once(bootstrap, database, name)
        for _ in range(3):
            writer.insert(2)
        ship_once(bootstrap, database, name)
    whole = records_of(topic)
    assert len(whole) == 4
    short, changed = (topic_of(bootstrap, new_topic()) for _ in range(2))
    for each in (short, changed):
        each.check(create=True)
    write(bootstrap, short.name, [whole[0], whole[1], whole[3]])
    with pytest.raises(MomentGone, match=f"offset 2 of topic {short.name} does not follow the record before it"):
        restored(short, tmp_path)
    value = whole[2].value[:-1] + bytes([whole[2].value[-1] ^ 1])
    write(bootstrap, changed.name, [*whole[:2], ShippedRecord(2, whole[2].header, value), whole[3]])
    with pytest.raises(ShippingFailed, match=f"behind offset 2 of topic {changed.name} the pages differ"):
        restored(changed, tmp_path)
    assert restored(changed, tmp_path, to_offset=1)[1].state == whole[1].header.state
    assert not list(tmp_path.glob("*.restoring"))
