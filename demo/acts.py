"""The story, act by act. Every number that is printed was read back from the log, not assumed."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Protocol

from demo.ledger import Ledger
from demo.orders import OrderEvent, order_feed
from demo.pipeline import GROUP, PAYMENTS, payments_of, run_pipeline, start_spark
from demo.shop import (
    GroupReader,
    OrderWriter,
    Seen,
    SteadyStream,
    create_topic,
    end_offsets,
    group_positions,
    read_committed_values,
    read_whole_topic,
    replay_since,
)
from demo.stage import Stage

MORNING_EVENTS = 6_000
AFTERNOON_EVENTS = 4_000
AFTERNOON_RATE = 800.0
KILL_AFTER_ACKNOWLEDGED = 1_500
WAREHOUSE_READS = 2_000
REPLAY_MINUTES = 20
ACKNOWLEDGED_WAIT_S_MAX = 30.0


class Node(Protocol):
    """What the story needs of `strandline.embedded`."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def pid(self) -> int: ...

    def kill(self) -> None: ...

    def start(self) -> None: ...


@dataclass
class Story:
    node: Node
    stage: Stage
    seed: int
    ledger: Ledger = field(default_factory=Ledger)
    events: list[OrderEvent] = field(default_factory=list)

    def play(self, *, spark: bool = True) -> bool:
        """The whole story; True when the log kept every promise."""
        begin = time.monotonic()
        morning, afternoon = self._feed()
        self.stream(morning)
        billing, warehouse, warehouse_saw = self.two_readers()
        kept = [self.replay()]
        kept.append(self.kill_in_the_middle(afternoon))
        kept.append(self.compare())
        kept.append(self.resume(billing, warehouse, warehouse_saw))
        if spark:
            kept.append(self.pipeline())
        self.stage.close(seconds=time.monotonic() - begin, clean=all(kept))
        return all(kept)

    def _feed(self) -> tuple[list[OrderEvent], list[OrderEvent]]:
        """Some hours of orders that end now, and what follows them, which happens now."""
        feed = order_feed(random.Random(self.seed), begin_ms=0, orders_per_minute=14)
        morning, afternoon = list(islice(feed, MORNING_EVENTS)), list(islice(feed, AFTERNOON_EVENTS))
        now_ms = int(time.time() * 1000)
        shift_ms = now_ms - morning[-1].timestamp_ms
        return (
            [replace(event, timestamp_ms=event.timestamp_ms + shift_ms) for event in morning],
            [replace(event, timestamp_ms=now_ms) for event in afternoon],
        )

    def stream(self, events: list[OrderEvent]) -> None:
        self.stage.act("A shop writes its orders")
        create_topic(self.node.bootstrap)
        writer = OrderWriter(self.node.bootstrap, self.ledger)
        begin = time.monotonic()
        writer.write(events)
        writer.finish()
        seconds = time.monotonic() - begin
        self.events += events
        self.stage.table(
            ["time", "order", "state", "total", "customer", "source"],
            [[_clock(e.timestamp_ms), e.order, e.state, f"{e.total:7.2f}", e.customer, e.source] for e in events[-6:]],
        )
        self.stage.say(
            f"{len(self.ledger.acknowledged):,} such events were written by a stock Kafka client and acknowledged in "
            f"{seconds:.1f} s: key = order, headers = type and source, acks = all."
        )
        states = Counter(event.state for event in events)
        self.stage.say("Among them " + ", ".join(f"{count:,} {state}" for state, count in states.most_common()) + ".")
        ends = end_offsets(self.node.bootstrap)
        orders = self._orders_by_partition()
        self.stage.table(
            ["partition", "orders", "first offset", "next offset"],
            [[partition, len(orders[partition]), 0, end] for partition, end in ends.items()],
        )
        self.stage.say("One order's events share a key, so they share a partition and keep their order.")
        self.stage.shown("A stock Kafka client wrote to it unchanged: keys, headers, timestamps, three partitions.")

    def two_readers(self) -> tuple[GroupReader, GroupReader, list[Seen]]:
        self.stage.act("Two readers, each at its own position")
        billing = GroupReader(self.node.bootstrap, "billing")
        warehouse = GroupReader(self.node.bootstrap, "warehouse")
        billing_saw = billing.read()
        warehouse_saw = warehouse.read(WAREHOUSE_READS)
        self._show_positions([billing, warehouse])
        self.stage.say(
            f"Billing read all {len(billing_saw):,}. The warehouse went home after {len(warehouse_saw):,}: the log "
            "keeps the rest for it, and neither the writer nor billing noticed."
        )
        self.stage.shown("Two consumer groups read the same records, each at its own pace and position.")
        return billing, warehouse, warehouse_saw

    def replay(self) -> bool:
        self.stage.act(f"Replay: what happened in the last {REPLAY_MINUTES} minutes?")
        since_ms = self.events[-1].timestamp_ms - REPLAY_MINUTES * 60_000
        starts, seen = replay_since(self.node.bootstrap, since_ms)
        expected = Counter(event.value for event in self.events if event.timestamp_ms >= since_ms)
        found = Counter(record.value for record in seen if record.timestamp_ms >= since_ms)
        places = ", ".join(f"partition {partition} at offset {offset:,}" for partition, offset in starts.items())
        self.stage.say(f"{_clock(since_ms)} lies here: {places}.")
        self.stage.say(f"From there on: {found.total():,} events; the shop's own books say {expected.total():,}.")
        holds = found == expected
        lesson = "A reader went back to a point in time and saw the same records again, and nothing else."
        self.stage.shown(lesson, holds=holds)
        return holds

    def kill_in_the_middle(self, events: list[OrderEvent]) -> bool:
        self.stage.act("kill -9, in the middle of the stream")
        before = len(self.ledger.acknowledged)
        stream = SteadyStream(OrderWriter(self.node.bootstrap, self.ledger), events, rate=AFTERNOON_RATE)
        stream.start()
        _wait_until(lambda: len(self.ledger.acknowledged) >= before + KILL_AFTER_ACKNOWLEDGED, stream)
        pid, at = self.node.pid, len(self.ledger.acknowledged)
        self.node.kill()
        self.stage.say(
            f"The shop writes {AFTERNOON_RATE:.0f} events a second. Process {pid} was killed after {at:,} "
            "acknowledgements."
        )
        begin = time.monotonic()
        self.node.start()
        self.stage.say(
            f"Started again on the same directory: ready after {time.monotonic() - begin:.2f} s, the log checked. "
            "The producer was told nothing; it retries."
        )
        stream.join()
        self.events += events
        written = len(self.ledger.acknowledged) - before
        self.stage.say(f"{written:,} of {len(events):,} events of this stream were acknowledged in the end.")
        return written == len(events) and stream.unanswered == 0

    def compare(self) -> bool:
        self.stage.act("Was anything lost?")
        whole = read_whole_topic(self.node.bootstrap)
        result = self.ledger.compare([(record.partition, record.offset, record.value) for record in whole])
        self.stage.table(
            ["acknowledged", "read back", "lost", "changed", "doubled", "failed"],
            [[result.acknowledged, result.read, result.lost, result.changed, result.doubled, result.failed]],
        )
        in_order = self._orders_kept(whole)
        self.stage.say(
            "Each acknowledged (partition, offset, value) was compared with what is in the log now. "
            + ("Every order's events stand in the order they were written." if in_order else "ORDERS ARE OUT OF ORDER.")
        )
        holds = result.is_clean and in_order
        if not holds:
            self.stage.say(f"{result}; first failures: {self.ledger.failures[:3]}")
        self.stage.shown(
            f"After a kill -9 under load, all {result.acknowledged:,} acknowledged records were there, once, in order, "
            "at the offsets that were promised.",
            holds=holds,
        )
        return holds

    def resume(self, billing: GroupReader, warehouse: GroupReader, warehouse_saw: list[Seen]) -> bool:
        self.stage.act("The warehouse comes back")
        warehouse.close()
        successor = GroupReader(self.node.bootstrap, "warehouse")
        billing_saw, more = billing.read(), successor.read()
        self._show_positions([billing, successor])
        places = [(record.partition, record.offset) for record in warehouse_saw + more]
        resumed = len(set(places)) == len(places) == len(self.events) and len(billing_saw) == AFTERNOON_EVENTS
        self.stage.say(
            f"A new member of the group read the {len(more):,} that were left: {len(places):,} in all, none twice, "
            f"none missing. Billing, which was open all the time, read the {len(billing_saw):,} new ones."
            if resumed
            else f"The warehouse saw {len(set(places)):,} of {len(self.events):,}, billing {len(billing_saw):,} more."
        )
        lesson = "Committed positions survived the crash: each group went on exactly where it had stopped."
        self.stage.shown(lesson, holds=resumed)
        billing.close()
        successor.close()
        return resumed

    def pipeline(self) -> bool:
        self.stage.act("Spark: paid orders into a topic of their own, exactly once")
        begin = time.monotonic()
        create_topic(self.node.bootstrap, PAYMENTS)
        self.stage.say(
            "Spark starts: a Java process, Python workers, our source and sink in them. This takes a moment."
        )
        spark = start_spark()
        self.stage.say(
            f"Spark {spark.version} came up in {time.monotonic() - begin:.0f} s; nothing was installed by hand."
        )
        with tempfile.TemporaryDirectory(prefix="strandline-demo-spark-") as home:
            begin = time.monotonic()
            batches = run_pipeline(spark, self.node.bootstrap, Path(home))
            self.stage.say(
                f"It read {len(self.events):,} events in {batches} batches and wrote those that say paid, in "
                f"{time.monotonic() - begin:.0f} s. In the middle of the first batch one of its processes was killed."
            )
            again = run_pipeline(spark, self.node.bootstrap, Path(home))
        spark.stop()
        expected = payments_of(event.value for event in self.events if event.state == "paid")
        found = payments_of(read_committed_values(self.node.bootstrap, PAYMENTS))
        self.stage.table(
            ["paid orders", "in the topic", "lost", "doubled"],
            [[expected.total(), found.total(), (expected - found).total(), (found - expected).total()]],
        )
        positions, ends = group_positions(self.node.bootstrap, GROUP), end_offsets(self.node.bootstrap)
        self.stage.say(
            f"The same query was then run again: {again} batches. Its position is that of the group {GROUP}: "
            f"{sum(ends.values()) - sum(positions.values()):,} still to read."
        )
        holds = found == expected and positions == ends and not again
        self.stage.shown(
            f"A Spark pipeline from topic to topic lost a process in mid-batch, and each of {expected.total():,} "
            "payments is there once.",
            holds=holds,
        )
        return holds

    def _show_positions(self, readers: list[GroupReader]) -> None:
        ends = end_offsets(self.node.bootstrap)
        rows: list[list[object]] = []
        for reader in readers:
            positions = reader.positions()
            lag = sum(ends[partition] - position for partition, position in positions.items())
            rows.append([reader.group, *positions.values(), lag])
        self.stage.table(["group", *(f"partition {partition}" for partition in ends), "still to read"], rows)

    def _orders_by_partition(self) -> dict[int, set[bytes]]:
        homes: dict[int, set[bytes]] = {}
        keys = {event.value: event.key for event in self.events}
        for (partition, _), value in self.ledger.acknowledged.items():
            homes.setdefault(partition, set()).add(keys[value])
        return homes

    def _orders_kept(self, whole: list[Seen]) -> bool:
        written: dict[bytes, list[bytes]] = {}
        for event in self.events:
            written.setdefault(event.key, []).append(event.value)
        read: dict[bytes, list[bytes]] = {}
        for record in whole:
            read.setdefault(record.key, []).append(record.value)
        return written == read


def _wait_until(reached: Callable[[], bool], stream: threading.Thread) -> None:
    deadline = time.monotonic() + ACKNOWLEDGED_WAIT_S_MAX
    while not reached() and stream.is_alive():
        if time.monotonic() > deadline:
            raise TimeoutError("the stream is not acknowledged")
        time.sleep(0.005)


def _clock(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000).strftime("%H:%M:%S")
