"""What a log does for a shop, without Spark: readers at their own positions, a replay, and nothing lost."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from demo.feed import Day
from demo.ledger import Ledger
from demo.shop import TOPICS, GroupReader, Seen, ShopWriter, create_topics, end_offsets, read_whole, replay_since
from demo.stage import Stage

WAREHOUSE_READS = 500
REPLAY_MINUTES = 20


class Node(Protocol):
    """What the story needs of `strandline.embedded`."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def pid(self) -> int: ...

    def kill(self) -> None: ...

    def start(self) -> None: ...


@dataclass
class ShopActs:
    node: Node
    stage: Stage
    day: Day
    ledger: Ledger

    def morning(self) -> None:
        self.stage.act("A shop writes what its visitors click and order")
        create_topics(self.node.bootstrap)
        writer = ShopWriter(self.node.bootstrap, self.ledger)
        now_ms, begin = int(time.time() * 1000), time.monotonic()
        for record in self.day.morning:
            writer.write(record, now_ms - round((self.day.noon - record.written).total_seconds() * 1000))
        writer.finish()
        seconds = time.monotonic() - begin
        fields = [record.fields for record in self.day.morning if record.topic == "orders"][-4:]
        self.stage.table(
            ["time", "order", "customer", "country", "article", "euros"],
            [
                [_clock(each), each["order_id"], each["customer"], each["country"], each["article"], _euros(each)]
                for each in fields
            ],
        )
        counts = Counter(record.topic for record in self.day.morning)
        self.stage.say(
            f"{counts['orders']:,} such orders and {counts['clicks']:,} clicks of the morning were written by a stock "
            f"Kafka client and acknowledged in {seconds:.1f} s, acks = all."
        )
        self.stage.shown("A stock Kafka client wrote to it unchanged: keys, timestamps, several topics and partitions.")

    def two_readers(self) -> tuple[GroupReader, GroupReader, list[Seen]]:
        self.stage.act("Two readers, each at its own position")
        billing = GroupReader(self.node.bootstrap, "billing")
        warehouse = GroupReader(self.node.bootstrap, "warehouse")
        billing_saw = billing.read()
        warehouse_saw = warehouse.read(WAREHOUSE_READS)
        self._show_positions([billing, warehouse])
        self.stage.say(
            f"Billing read all {len(billing_saw):,} orders. The warehouse went home after {len(warehouse_saw):,}: the "
            "log keeps the rest for it."
        )
        self.stage.shown("Two consumer groups read the same records, each at its own pace and position.")
        return billing, warehouse, warehouse_saw

    def replay(self) -> bool:
        self.stage.act(f"Replay: what was ordered in the last {REPLAY_MINUTES} minutes?")
        orders = [record for record in self.day.morning if record.topic == "orders"]
        since_ms = int(time.time() * 1000) - REPLAY_MINUTES * 60_000
        starts, seen = replay_since(self.node.bootstrap, "orders", since_ms)
        found = Counter(record.value for record in seen if record.timestamp_ms >= since_ms)
        expected = Counter(record.value for record in orders[-found.total() :])
        places = ", ".join(f"partition {partition} at offset {offset:,}" for partition, offset in starts.items())
        self.stage.say(f"That moment lies here: {places}.")
        self.stage.say(f"From there on: {found.total():,} orders, the last ones of the shop's own books.")
        holds = found == expected and found.total() > 0
        lesson = "A reader went back to a point in time and saw the same records again, and nothing else."
        self.stage.shown(lesson, holds=holds)
        return holds

    def compare(self) -> bool:
        self.stage.act("Was anything lost?")
        whole = read_whole(self.node.bootstrap, TOPICS)
        result = self.ledger.compare([(each.topic, each.partition, each.offset, each.value or b"") for each in whole])
        self.stage.table(
            ["acknowledged", "read back", "lost", "changed", "doubled", "failed"],
            [[result.acknowledged, result.read, result.lost, result.changed, result.doubled, result.failed]],
        )
        in_order = self._orders_kept(whole)
        self.stage.say(
            "Each acknowledged (partition, offset, value) was compared with what is in the log now. "
            + ("Every customer's clicks stand in the order they were written." if in_order else "OUT OF ORDER.")
        )
        holds = result.is_clean and in_order and result.acknowledged == len(self.day.records)
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
        orders = sum(record.topic == "orders" for record in self.day.records)
        morning = sum(record.topic == "orders" for record in self.day.morning)
        places = [(record.partition, record.offset) for record in warehouse_saw + more]
        resumed = len(set(places)) == len(places) == orders and len(billing_saw) == orders - morning
        self.stage.say(
            f"A new member of the group read the {len(more):,} that were left: {len(places):,} in all, none twice, "
            f"none missing. Billing, which was open all the time, read the {len(billing_saw):,} new ones."
            if resumed
            else f"The warehouse saw {len(set(places)):,} of {orders:,}, billing {len(billing_saw):,} more."
        )
        lesson = "Committed positions survived the crash: each group went on exactly where it had stopped."
        self.stage.shown(lesson, holds=resumed)
        billing.close()
        successor.close()
        return resumed

    def _show_positions(self, readers: list[GroupReader]) -> None:
        ends = end_offsets(self.node.bootstrap)
        rows: list[list[object]] = []
        for reader in readers:
            positions = reader.positions()
            lag = sum(ends[partition] - position for partition, position in positions.items())
            rows.append([reader.group, *positions.values(), lag])
        self.stage.table(["group", *(f"partition {partition}" for partition in ends), "still to read"], rows)

    def _orders_kept(self, whole: list[Seen]) -> bool:
        written: dict[tuple[str, str], list[bytes]] = {}
        for record in self.day.records:
            written.setdefault((record.topic, record.key or ""), []).append(record.value or b"")
        read: dict[tuple[str, str], list[bytes]] = {}
        for seen in whole:
            read.setdefault((seen.topic, (seen.key or b"").decode()), []).append(seen.value or b"")
        return written == read


def _clock(fields: dict[str, object]) -> str:
    return f"{datetime.fromisoformat(str(fields['at'])):%H:%M:%S}"


def _euros(fields: dict[str, object]) -> str:
    return f"{int(str(fields['cents'])) / 100:7.2f}"
