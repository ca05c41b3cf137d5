"""The story, act by act. Every number that is printed was read back from the log, not assumed."""

from __future__ import annotations

import re
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.shop import ARTICLES

from demo import plot
from demo.dashboard import OUTPUTS, Dashboard, Outage
from demo.driver import FILE, Driver, cli
from demo.feed import invent
from demo.ledger import Ledger
from demo.proof import Expected, expected_of, found_in
from demo.shop import ShopWriter, SteadyStream, read_whole
from demo.shop_acts import Node, ShopActs
from demo.stage import Stage

AFTERNOON_S = 50.0
AFTERNOON_S_WITHOUT_SPARK = 6.0
KILL_DRIVER_AT = 0.15
WAITS_AT = 0.65
KILL_NODE_AT = 0.7
"""Parts of the afternoon. It waits at one of them if the driver has not come back by then."""
WAIT_S_MAX = 600.0
STARTING = re.compile(r"  (node|Java|Spark|planning|first batch) ")
ASKED = "SELECT article, sold, cents // 100 AS euros FROM article_sales ORDER BY sold DESC, article LIMIT 4"


@dataclass
class Story:
    node: Node
    stage: Stage
    seed: int
    home: Path
    picture: Path
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        self.day = invent(self.seed)
        self.driver = Driver(self.node.bootstrap, self.home)
        self.dashboard = Dashboard(self.node.bootstrap, self.ledger)
        self.shop = ShopActs(self.node, self.stage, self.day, self.ledger)
        self.with_spark = True

    def play(self, *, spark: bool = True) -> bool:
        """The whole story; True when the log and the pipeline kept every promise."""
        begin = time.monotonic()
        self.with_spark = spark
        try:
            kept = self._play()
        except TimeoutError as late:
            self.stage.say(f"{late}\n{self.driver.last_words()}")
            self.stage.shown("The story came to its end.", holds=False)
            kept = False
        finally:
            self.driver.kill()
        self.stage.close(seconds=time.monotonic() - begin, clean=kept)
        return kept

    def _play(self) -> bool:
        self.shop.morning()
        if self.with_spark:
            self.dashboard.start()
            self.start_pipeline()
        billing, warehouse, warehouse_saw = self.shop.two_readers()
        kept = [self.shop.replay()]
        if self.with_spark:
            self.catch_up()
        stream = self.afternoon()
        if self.with_spark:
            kept.append(self.kill_driver(stream))
        stream.let_go()
        kept.append(self.kill_node(stream))
        if self.with_spark:
            kept.append(self.finish_pipeline())
            self.dashboard.stop()
        kept.append(self.shop.compare())
        kept.append(self.shop.resume(billing, warehouse, warehouse_saw))
        if self.with_spark:
            kept.append(self.prove())
        return all(kept)

    # The shop

    def afternoon(self) -> SteadyStream:
        rate = len(self.day.afternoon) / (AFTERNOON_S if self.with_spark else AFTERNOON_S_WITHOUT_SPARK)
        writer = ShopWriter(self.node.bootstrap, self.ledger)
        stream = SteadyStream(writer, self.day.afternoon, rate=rate, waits_at=WAITS_AT)
        self.stage.act(f"The afternoon, as it happens: {rate:.0f} records a second")
        stream.start()
        return stream

    # The pipeline

    def start_pipeline(self) -> None:
        self.stage.act("A pipeline in one file: a window, a join and a table")
        for word, of in (
            ("sales", "orders by country and quarter of an hour (a window, with a watermark)"),
            ("attributed", "each order with the clicks before it (two streams, joined within half an hour)"),
            ("article_sales", "what is sold of each article (a table that can be queried: a view)"),
        ):
            self.stage.say(f"{word:<14} {of}")
        self.stage.command(f"strandline pipeline run {FILE}")
        self.driver.start()
        self.stage.say("Spark starts. That takes a moment, so in the meantime:")

    def catch_up(self) -> None:
        self.stage.act("The pipeline has the morning")
        orders = sum(record.topic == "orders" for record in self.day.morning)
        self._wait(lambda: self.dashboard.orders_counted >= orders, self._how_it_goes)
        self.stage.say(
            f"{orders:,} orders are counted in the view, {self.dashboard.counts['attributed']:,} times an order has "
            "found a click."
        )

    def kill_driver(self, stream: SteadyStream) -> bool:
        self._wait(lambda: stream.share >= KILL_DRIVER_AT, lambda: self._live(stream))
        counted = self.dashboard.orders_counted
        begin, pid = self.dashboard.second, self.driver.pid
        self.driver.kill()
        self.stage.say(
            f"kill -9 of the Spark driver, process {pid} and its Java, while orders come in. The shop has "
            f"{self.ledger.orders:,} orders now; the view has {counted:,} and can still be asked:"
        )
        answered = self._ask()
        self.stage.say("The pipeline is started again, by the same command.")
        self.driver.start(again=True)
        before = self.dashboard.orders_counted
        self._wait(lambda: self.dashboard.orders_counted > before, lambda: self._live(stream))
        self.dashboard.outages.append(Outage("Spark driver", begin, self.dashboard.second))
        self.stage.say(
            f"After {self.dashboard.second - begin:.0f} s it goes on where it was: {self.dashboard.orders_counted:,} "
            "orders counted."
        )
        self.stage.shown("A view answered in SQL while no Spark was alive.", holds=answered)
        return answered

    def kill_node(self, stream: SteadyStream) -> bool:
        self._wait(lambda: stream.share >= KILL_NODE_AT, lambda: self._live(stream))
        pid, at, begin = self.node.pid, len(self.ledger.acknowledged), self.dashboard.second
        self.node.kill()
        self.stage.say(f"kill -9 of the log itself, process {pid}, after {at:,} acknowledgements.")
        started = time.monotonic()
        self.node.start()
        self.dashboard.outages.append(Outage("log", begin, self.dashboard.second))
        self.stage.say(
            f"Started again on the same directory: ready after {time.monotonic() - started:.2f} s, the log checked. "
            f"Nobody else was told: {'shop and pipeline try' if self.with_spark else 'the shop tries'} again."
        )
        self._wait(lambda: not stream.is_alive(), lambda: self._live(stream))
        last = ShopWriter(self.node.bootstrap, self.ledger)
        last.write(self.day.tomorrow)
        unanswered = stream.unanswered + last.finish()
        self.stage.say(f"The shop closes. {len(self.ledger.acknowledged):,} records were acknowledged since morning.")
        return unanswered == 0

    def finish_pipeline(self) -> bool:
        expected = self._expected()
        orders = sum(sold for _, sold, _ in expected.article_sales)

        def is_done() -> bool:
            counts = self.dashboard.counts
            streams_are = all(counts[topic] >= getattr(expected, topic).total() for topic in ("sales", "attributed"))
            return streams_are and self.dashboard.orders_counted >= orders

        self._wait(is_done, self._how_it_goes)
        self.stage.say(f"The pipeline has read everything: {self._how_it_goes()}. It is asked to stop.")
        asked = time.monotonic()
        ended = self.driver.stop()
        if ended:
            self.stage.say(f"It has, {time.monotonic() - asked:.0f} s later.")
        else:
            self.stage.verbatim(self.driver.last_words())
            self.stage.shown("The pipeline ended well when it was asked to.", holds=False)
        return ended

    # The proof

    def prove(self) -> bool:
        self.stage.act("So many in, so many out")
        expected = self._expected()
        rows: list[list[object]] = []
        clean = True
        for topic in OUTPUTS:
            wanted: Counter[tuple[Any, ...]] = getattr(expected, topic)
            found = found_in(topic, [(each.key, each.value) for each in read_whole(self.node.bootstrap, [topic])])
            lost, twice = (wanted - found).total(), (found - wanted).total()
            rows.append([topic, wanted.total(), found.total(), lost, twice])
            clean = clean and not lost and not twice
        self.stage.table(["written by the pipeline", "plain Python says", "a stock client read", "lost", "twice"], rows)
        into, out = len(self.day.records), sum(int(str(row[2])) for row in rows)
        verdict = f"{into:,} in, {out:,} out, " + ("none lost, none twice" if clean else "AND THEY DIFFER")
        self.stage.say(f"{verdict}: every window, every pair and every total is what the shop's own books say.")
        orders = sum(record.topic == "orders" for record in self.day.records)
        plot.draw(
            self.picture,
            self.dashboard.samples,
            self.dashboard.outages,
            title=verdict[0].upper() + verdict[1:],
            subtitle=f"{orders:,} orders and {into - orders:,} clicks through one log and one Spark pipeline",
        )
        self.stage.say(f"The picture: {self.picture}")
        self.stage.shown(
            f"A Spark pipeline with a window, a join and a table lost its driver and its log in mid-stream: {verdict}.",
            holds=clean,
        )
        return clean

    def _expected(self) -> Expected:
        return expected_of(self.day.records, self.day.tomorrow)

    # Words

    def _wait(self, reached: Any, words: Any) -> None:
        def checked() -> bool:
            self._tell_driver()
            if self.with_spark and self.driver.has_ended:
                raise TimeoutError("the pipeline ended by itself")
            return bool(reached())

        self.stage.wait(checked, words, timeout_s=WAIT_S_MAX)

    def _how_it_goes(self) -> str:
        counts = self.dashboard.counts
        return (
            f"{self.ledger.orders:,} orders in, {self.dashboard.orders_counted:,} counted in the view, "
            f"{counts['attributed']:,} pairs, {counts['sales']:,} windows"
        )

    def _live(self, stream: SteadyStream) -> str:
        now = f"in the shop it is {stream.now.written:%H:%M}: "
        return now + (self._how_it_goes() if self.with_spark else f"{self.ledger.orders:,} orders in")

    def _tell_driver(self) -> None:
        """How long each part of its start took."""
        self.stage.verbatim("\n".join(line for line in self.driver.new_lines() if STARTING.match(line)))

    def _ask(self) -> bool:
        self.stage.command(f'strandline view query "{ASKED}"')
        command = [*cli(), "view", "query", ASKED, "--bootstrap-server", self.node.bootstrap]
        command += ["--views", str(self.home / "views")]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
        self.stage.verbatim(asked.stdout + asked.stderr)
        return asked.returncode == 0 and sum(article in asked.stdout for article in ARTICLES) == 4
