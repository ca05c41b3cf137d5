"""MariadbCdcSource in a real worker on a real broker: a worker that is stopped and a server that is killed."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Consumer
from tests.cdc.mariadb_server import MariadbServer, needs_mariadb
from tests.connect.running import RunningWorker

import strandline

pytestmark = pytest.mark.slow

_MODULE = "strandline.cdc.mariadb.source"
_CLASS = f"{_MODULE}:MariadbCdcSource"
_QUICK = {"group.initial.rebalance.delay.ms": "0"}


def _read(consumer: Consumer, ids: list[int], count: int) -> None:
    """Add ids of inserted rows until there are so many, and a while nothing more."""
    deadline = time.monotonic() + 60
    while len(ids) < count and time.monotonic() < deadline:
        _take(consumer, ids, 0.1)
    _take(consumer, ids, 0.5)


def _take(consumer: Consumer, ids: list[int], wait_s: float) -> None:
    found = [each for each in consumer.consume(2000, wait_s) if each.error() is None]
    ids += [json.loads(each.value() or b"")["after"]["id"] for each in found]


def test_each_row_is_in_the_log_once_while_worker_and_server_stop() -> None:
    needs_mariadb()
    server = MariadbServer(sync_binlog="1").start()
    try:
        database = server.fresh_database()
        database.run("create table t (id int primary key)", "insert into t select seq from seq_1_to_100")
        config = {**database.properties, "connector.class": _CLASS, "max.batch.size": "100"}
        with strandline.embedded(properties=_QUICK) as log:
            consumer = Consumer(
                {
                    "bootstrap.servers": log.bootstrap,
                    "group.id": "reader",
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_committed",
                    "topic.metadata.refresh.interval.ms": "200",
                }
            )
            consumer.subscribe([f"^shop.{database.name}.t"])
            ids: list[int] = []
            with RunningWorker(log.bootstrap, plugin_modules=_MODULE) as worker:
                worker.lead().create("shop", _CLASS, config)
                _read(consumer, ids, 100)
                database.run("insert into t select seq from seq_101_to_1500")
                _read(consumer, ids, 1500)
            database.run("insert into t select seq from seq_1501_to_1600")
            with RunningWorker(log.bootstrap, 1, plugin_modules=_MODULE) as worker:
                _read(consumer, ids, 1600)
                server.kill()
                server.start()
                database.run("insert into t select seq from seq_1601_to_1700")
                _read(consumer, ids, 1700)
                ((gtids,),) = database.rows("select @@gtid_binlog_pos")
                stored = worker.ask(worker.herder.offsets("shop"))[0][1]
                assert stored is not None
                assert stored["gtids"] == gtids
            consumer.close()
        assert ids == list(range(1, 1701))
    finally:
        server.remove()
