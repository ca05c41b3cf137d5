"""The life of a pipeline: wherever it starts, whatever kills it and whatever is lost, its outputs are what plain Python
says, or a command refuses in a sentence.

Spark is `plain_spark`. The log, the registry, the source, the sink, recovery and rebuilds are as they are.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions
from hypothesis import HealthCheck, settings
from hypothesis import Phase as Stage
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from tests.pipelines.plain_spark import BATCH_POINTS, SINK_POINTS, Killed, PlainSpark, in_sparks_place
from tests.pipelines.rebuild_ground import table_of
from tests.scenarios.compaction_ground import compact_now
from tests.spark.sink_ground import consume

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.language.loading import load
from strandline.pipelines.rebuild.phases import Phase, RebuildRefused, Wish, phase_of
from strandline.pipelines.rebuild.rebuilding import Means, Rebuilding
from strandline.pipelines.run.checkpoint_files import HALF_MADE
from strandline.pipelines.run.running import Outcome, Runner, RunOptions
from strandline.pipelines.versions.state import PipelineState, checkpoint_of
from strandline.pipelines.versions.version_store import Registry
from strandline.runtime.fault_points import REBUILD_POINTS
from strandline.spark.display import Display

EXAMPLES: Final = int(os.environ.get("STRANDLINE_LIVES", "6"))
PARTITIONS: Final = 2
PARTITIONS_MAX: Final = 3
DATASETS: Final = ("totals", "large")
STARTS: Final = ("earliest", "latest", "offsets", "timestamp")
FIRST_MS: Final = 1_700_000_000_000
STEP_MS: Final = 1000
FILE: Final = """
from strandline import pipeline

pipeline.name("{name}")
pipeline.source("orders", topic="{name}-orders", options={options!r})

@pipeline.table(key="customer", topic="{name}-totals")
def totals(orders):
    return orders.at_least({least}).{function}()

@pipeline.stream(topic="{name}-large")
def large(orders):
    return orders.at_least({least})
"""
GONE: Final = r"deleted and made again|was deleted since, so its state cannot be rebuilt|are lost \(|is lost \("
SWITCHING: Final = (Phase.SWITCHING, Phase.SWITCHING_BACK)

Order = dict[str, Any]
"""What is written; and once compaction has removed it, the `readers` that had read it: version and dataset."""
Starts = dict[int, int]
"""By partition, the first offset that is read."""
Topic = list[list[Order]]
"""By partition, all that was ever written."""

some_orders = st.lists(
    st.tuples(st.integers(0, PARTITIONS_MAX - 1), st.sampled_from("abc"), st.integers(1, 9)), min_size=1, max_size=5
)
killed_while_it_runs = st.none() | st.tuples(st.sampled_from((*BATCH_POINTS, *SINK_POINTS)), st.integers(0, 2))
killed_in_a_rebuild = killed_while_it_runs | st.tuples(st.sampled_from(REBUILD_POINTS), st.just(0))


class Life(RuleBasedStateMachine):
    broker: ClassVar[EmbeddedBroker]

    # What the world is

    @initialize(
        before=some_orders,
        start=st.sampled_from(STARTS),
        at=st.lists(st.integers(-2, 3), min_size=PARTITIONS, max_size=PARTITIONS),
        limit=st.sampled_from((None, 2, 3)),
        copies=st.sampled_from(("", "sooner", "later")),
    )
    def begin(
        self, before: list[tuple[int, str, int]], start: str, at: list[int], limit: int | None, copies: str
    ) -> None:
        self.name = f"life-{uuid.uuid4().hex[:8]}"
        self.topic = f"{self.name}-orders"
        self.home = Path(tempfile.mkdtemp(prefix="strandline-life-"))
        self.patch = pytest.MonkeyPatch()
        self.spark = PlainSpark(copies=copies)
        in_sparks_place(self.patch, self.spark)
        self.registry = Registry(self.broker.bootstrap)
        self.admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        self.make_topic()
        self.order(before)
        self.start = start
        self.at = [min(each, len(self.orders[partition])) for partition, each in enumerate(at)]
        self.options = {"earliest": {}, "latest": {"startingOffsets": "latest"}}.get(start, {})
        if start == "offsets":
            self.options = {"startingOffsets": self.named_offsets()}
        elif start == "timestamp":
            self.since_ms = FIRST_MS + at[0] * STEP_MS
            self.options = {
                "startingTimestamp": str(self.since_ms),
                "startingOffsetsByTimestampStrategy": "latest",
            }
        if limit is not None:
            self.options["maxOffsetsPerTrigger"] = str(limit)
        self.least = {1: 3}
        """By version, what its file says."""
        self.starts: dict[tuple[int, str], Starts] = {}
        """By version and dataset, once a run has noted it."""
        self.reads: dict[tuple[int, str], Topic] = {}
        """Likewise: the topic of the name `orders` that was there."""
        self.bereft: set[tuple[int, str]] = set()
        """Those that had not read all that was removed."""
        self.began: set[tuple[int, str]] = set()
        """Those whose query has had a checkpoint."""
        self.write_file(1)

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()
            self.registry.close()
            self.spark.pool.close()
            shutil.rmtree(self.home, ignore_errors=True)

    def write_file(self, version: int) -> Path:
        file = self.home / f"v{version}.py"
        file.write_text(self.text(version))
        return file

    def text(self, version: int, function: str = "summed") -> str:
        return FILE.format(name=self.name, options=self.options, least=self.least[version], function=function)

    def named_offsets(self) -> str:
        return json.dumps({self.topic: {str(partition): each for partition, each in enumerate(self.at)}})

    def name_partitions(self) -> None:
        """In the file: a query without a batch is refused, unless offsets name every partition that there is."""
        if self.start == "offsets":
            self.at = [*self.at, *[-2] * PARTITIONS_MAX][: len(self.orders)]
            self.options["startingOffsets"] = self.named_offsets()
            for version in self.least:
                self.write_file(version)

    def make_topic(self) -> None:
        self.broker.create_topic(self.topic, partitions=PARTITIONS)
        self.orders: Topic = [[] for _ in range(PARTITIONS)]
        self.log_starts = [0] * PARTITIONS

    @rule(orders=some_orders)
    def order(self, orders: list[tuple[int, str, int]]) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for wanted, customer, amount in orders:
            partition = wanted % len(self.orders)
            number = sum(len(each) for each in self.orders)
            made = {"id": number, "customer": customer, "amount": amount}
            self.orders[partition].append(made)
            at_ms = FIRST_MS + number * STEP_MS
            producer.produce(self.topic, json.dumps(made), customer, partition=partition, timestamp=at_ms)
        assert producer.flush(30) == 0

    # What the user does

    @rule(kill=killed_while_it_runs, recovers=st.booleans())
    def run(self, kill: tuple[str, int] | None, recovers: bool) -> None:
        version = self.active
        if self.phase in SWITCHING:
            with pytest.raises(PipelineRefused, match="is being switched from one version to another"):
                self._run(version, recovers=recovers)
            return
        if self.lost and not recovers:
            with pytest.raises(PipelineRefused, match=r"the checkpoint of .* is gone from .*, or say --recover"):
                self._run(version, recovers=False)
            return
        for dataset in DATASETS:
            if (version, dataset) not in self.starts:
                self.starts[version, dataset] = self.first_offsets()
                self.reads[version, dataset] = self.orders
        if self.is_bereft(version):
            with pytest.raises(PipelineRefused, match=GONE):
                self._run(version, recovers=recovers)
            return
        if self.killed(kill, lambda: self._run(version, recovers=recovers)):
            return
        assert not self.lost
        self.check(version, is_whole=True)

    @precondition(lambda self: self.phase not in SWITCHING and self.has_run and not self.lost)
    @rule()
    def run_another_aggregate(self) -> None:
        """It is refused before anything is read or written; a file with a remark more is the same one."""
        file = self.home / f"v{self.active}.py"
        file.write_text(self.text(self.active, "largest"))
        with pytest.raises(PipelineRefused, match=r"totals needs a rebuild: .*sum\(amount\) before, max\(amount\) now"):
            self._run(self.active, recovers=False)
        file.write_text(self.text(self.active) + "# the same as before")

    @precondition(lambda self: self.has_run)
    @rule()
    def run_twice_at_once(self) -> None:
        """The second run is told which process has the pipeline."""
        if self.phase in SWITCHING or self.lost:
            return
        with self.claimed(self.active), pytest.raises(PipelineRefused, match="runs already, as process"):
            self._run(self.active, recovers=True)

    @precondition(lambda self: self.has_run)
    @rule()
    def add_a_partition(self) -> None:
        """Its records are read from the first one on, wherever the others began."""
        count = len(self.orders) + 1
        if count > PARTITIONS_MAX:
            return
        self.admin.create_partitions([NewPartitions(self.topic, count)])[self.topic].result(30)
        self.orders.append([])
        self.log_starts.append(0)
        self.name_partitions()
        for each, starts in self.starts.items():
            if self.reads[each] is self.orders:
                starts[count - 1] = 0

    @precondition(lambda self: self.phase is None and self.has_run and not self.lost)
    @rule(before=st.lists(st.integers(0, 4), min_size=PARTITIONS_MAX, max_size=PARTITIONS_MAX))
    def remove_records(self, before: list[int]) -> None:
        """As retention does. What a query has read is its own; what it has not read is missed, not passed over.

        One that begins with the first record has missed nothing before its first batch.
        """
        plans = {each: self.planned(self.active, each) for each in DATASETS}
        if any(planned and not committed for committed, planned in plans.values()):
            return  # Whether its first batch is in the output only the next run will tell.
        wanted = [
            max(start, min(each, len(orders)))
            for start, each, orders in zip(self.log_starts, before, self.orders, strict=False)
        ]
        offsets = [TopicPartition(self.topic, partition, offset) for partition, offset in enumerate(wanted)]
        for future in self.admin.delete_records(offsets).values():
            future.result(30)
        self.log_starts = wanted
        for each, (committed, _) in plans.items():
            starts = self.starts[self.active, each]
            for partition, first in enumerate(wanted):
                if not committed and self.begins_with_the_first(partition):
                    starts[partition] = max(starts[partition], first)
                elif (committed or starts).get(partition, 0) < first and self.is_current(self.active, each):
                    self.bereft.add((self.active, each))

    @precondition(lambda self: self.phase is None and self.has_run and not self.lost)
    @rule()
    def compact_the_input(self) -> None:
        """A query keeps what it has read. Of the rest it reads the newest order of each customer."""
        plans = {each: self.planned(self.active, each) for each in DATASETS}
        if any(committed != planned for committed, planned in plans.values()):
            return  # Whether the last batch is in the output only the next run will tell.
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic)
        for name, value in (("cleanup.policy", "compact,delete"), ("retention.ms", "-1")):
            resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
        self.admin.incremental_alter_configs([resource])[resource].result(30)
        for partition, orders in enumerate(self.orders):
            compact_now(self.broker.port, topic=self.topic, partition=partition)
            newest = {order["customer"]: order["id"] for order in orders}
            for offset, order in enumerate(orders):
                if order["id"] != newest[order["customer"]]:
                    readers = [each for each, (committed, _) in plans.items() if committed.get(partition, 0) > offset]
                    order.setdefault("readers", {(self.active, each) for each in readers})

    @precondition(lambda self: self.phase is None and self.has_run and not self.lost)
    @rule(orders=some_orders)
    def make_the_input_anew(self, orders: list[tuple[int, str, int]]) -> None:
        """Only a query that has neither read of the old topic nor begun at its end may read the new one."""
        self.admin.delete_topics([self.topic])[self.topic].result(30)
        self.make_topic()
        self.name_partitions()
        # Enough for offsets that the file names to be there.
        self.order([(partition, "e", 5) for partition in range(PARTITIONS)] * 3 + orders)
        for each in DATASETS:
            if any(self.planned(self.active, each)) or self.is_moving:
                self.bereft.add((self.active, each))
            else:
                self.reads[self.active, each] = self.orders
                self.bereft.discard((self.active, each))
                starts = self.starts[self.active, each]
                self.starts[self.active, each] = {
                    partition: 0 if self.begins_with_the_first(partition) else starts[partition]
                    for partition in range(PARTITIONS)
                }

    @precondition(lambda self: self.phase is None and self.has_run)
    @rule(datasets=st.sets(st.sampled_from(DATASETS), min_size=1))
    def lose_checkpoints(self, datasets: set[str]) -> None:
        if any(self.log_starts) or any("readers" in order for orders in self.orders for order in orders):
            datasets = datasets - {"totals"}  # Known: state that came from removed records is not made again.
        for each in datasets:
            shutil.rmtree(self.checkpoint(self.active, each), ignore_errors=True)

    @precondition(lambda self: self.phase is None and self.has_run and not self.lost)
    @rule(least=st.integers(1, 9), kill=killed_in_a_rebuild, from_beginning=st.booleans())
    def rebuild(self, least: int, kill: tuple[str, int] | None, from_beginning: bool) -> None:
        number = max(self.least) + 1
        self.least[number] = least
        self.write_file(number)
        if not from_beginning and not self.can_begin_where_it_began:
            with pytest.raises(PipelineRefused, match=GONE):
                self._rebuild(Wish.REBUILD, number)
            if self.phase is not None:
                self._rebuild(Wish.ROLL_BACK, None)
            from_beginning = True
        for each in DATASETS:
            # A rebuild begins where the file says, or where the version before it began, as far as that is there.
            starts = self.starts[self.active, each] if self.is_moving else self.first_offsets()
            self.starts[number, each] = {
                partition: first if from_beginning else max(starts.get(partition, 0), first)
                for partition, first in enumerate(self.log_starts)
            }
            self.reads[number, each] = self.orders
        self.carry_out(Wish.REBUILD, kill, number, from_beginning=from_beginning)

    @precondition(lambda self: self.phase is not None)
    @rule(kill=killed_in_a_rebuild)
    def rebuild_again(self, kill: tuple[str, int] | None) -> None:
        self.carry_out(Wish.REBUILD, kill, max(self.least))

    @precondition(lambda self: self.has_run)
    @rule(kill=killed_in_a_rebuild)
    def roll_back(self, kill: tuple[str, int] | None) -> None:
        self.end_a_rebuild(Wish.ROLL_BACK, kill)

    @precondition(lambda self: self.has_run)
    @rule(kill=killed_in_a_rebuild)
    def finish(self, kill: tuple[str, int] | None) -> None:
        self.end_a_rebuild(Wish.FINISH, kill)

    # How it is done

    def end_a_rebuild(self, wish: Wish, kill: tuple[str, int] | None) -> None:
        if self.phase is None:
            with pytest.raises(RebuildRefused, match="has no rebuild to"):
                self._rebuild(wish, None)
            return
        before = self.phase
        try:
            self.carry_out(wish, kill, None)
        except RebuildRefused:
            # It can always be undone. To finish what is not public yet is refused.
            if wish is not Wish.FINISH or before not in (Phase.BUILDING, *SWITCHING):
                raise

    def carry_out(
        self, wish: Wish, kill: tuple[str, int] | None, file: int | None, *, from_beginning: bool = False
    ) -> None:
        try:
            if self.killed(kill, lambda: self._rebuild(wish, file, from_beginning=from_beginning)):
                return
        except PipelineRefused as error:
            # A version that missed records cannot catch up to come back.
            rebuild = None if self.state is None else self.state.rebuild
            if rebuild is None or phase_of(rebuild) is not Phase.RETURNING or not self.is_bereft(rebuild.old_version):
                raise
            if re.search(GONE, str(error)) is None:
                raise
            return
        assert self.phase in (None, Phase.SWITCHED)
        if wish is not Wish.REBUILD:
            assert self.phase is None
        self.check(self.active, is_whole=False)

    def killed(self, kill: tuple[str, int] | None, act: Callable[[], None]) -> bool:
        """Whether the point was reached."""
        self.spark.killed_at, self.spark.passed = kill or (None, 0)
        try:
            act()
            return False
        except Killed:
            return True
        finally:
            self.spark.killed_at = None
            places = [(version, each) for version in self.least for each in DATASETS]
            self.began |= {each for each in places if (self.checkpoint(*each) / "metadata").exists()}

    def _run(self, version: int, *, recovers: bool) -> None:
        runner = self.runner(version, recovers=recovers)
        try:
            runner.claim()
            runner.plan(self.spark)  # type: ignore[arg-type]
        except BaseException as error:
            runner.give_up(str(error))
            raise
        assert runner.run(threading.Event()) is Outcome.DONE

    def runner(self, version: int, *, recovers: bool) -> Runner:
        options = RunOptions(str(self.home / "checkpoints"), once=True, recovers=recovers)
        return Runner(load(self.home / f"v{version}.py"), self.registry, options)

    @contextlib.contextmanager
    def claimed(self, version: int) -> Iterator[None]:
        """While another process has the pipeline and does nothing with it."""
        runner = self.runner(version, recovers=True)
        runner.claim()
        try:
            yield
        finally:
            runner.give_up("it has ended")

    def _rebuild(self, wish: Wish, version: int | None, *, from_beginning: bool = False) -> None:
        means = Means(
            load=load,
            spark=lambda: self.spark,  # type: ignore[arg-type, return-value]
            checkpoints=lambda: str(self.home / "checkpoints"),
            display=lambda _: Display(),
            tell=lambda _: None,
            stop=threading.Event(),
            may_switch=lambda _: True,
            may_remove=lambda _: True,
            home=self.home,
            from_beginning=from_beginning,
        )
        file = None if version is None else str(self.home / f"v{version}.py")
        Rebuilding(self.registry, self.name, means).carry_out(wish, file=file)

    # What is known

    @property
    def state(self) -> PipelineState | None:
        return self.registry.refresh().pipeline(self.name)

    @property
    def has_run(self) -> bool:
        return all((self.active, each) in self.starts for each in DATASETS) and self.state is not None

    @property
    def active(self) -> int:
        state = self.state
        return 1 if state is None else state.active

    @property
    def phase(self) -> Phase | None:
        state = self.state
        return None if state is None or state.rebuild is None else phase_of(state.rebuild)

    def checkpoint(self, version: int, dataset: str) -> Path:
        return Path(checkpoint_of(str(self.home / "checkpoints"), self.name, version, dataset))

    @property
    def lost(self) -> set[str]:
        """Datasets of the active version whose checkpoint is gone, or is half made."""
        here = {each: self.checkpoint(self.active, each) for each in DATASETS if (self.active, each) in self.began}
        return {
            each
            for each, directory in here.items()
            if not (directory / "metadata").exists() or directory.with_name(directory.name + HALF_MADE).exists()
        }

    @property
    def is_moving(self) -> bool:
        """Whether where the source begins depends on when it is asked."""
        return self.start in ("latest", "timestamp") or (self.start == "offsets" and -1 in self.at)

    def begins_with_the_first(self, partition: int) -> bool:
        if self.start == "offsets":
            return partition >= len(self.at) or self.at[partition] == -2
        return self.start == "earliest" or partition >= PARTITIONS

    def is_current(self, version: int, dataset: str) -> bool:
        """Whether it reads the topic that has the name now."""
        return self.reads[version, dataset] is self.orders

    def is_bereft(self, version: int) -> bool:
        return any((version, each) in self.bereft for each in DATASETS)

    @property
    def can_begin_where_it_began(self) -> bool:
        if self.is_moving:
            return all(self.is_current(self.active, each) for each in DATASETS)
        named = self.at if self.start == "offsets" else []
        return not any(0 <= at < first for at, first in zip(named, self.log_starts, strict=False))

    def first_offsets(self) -> Starts:
        ends = self.ends(self.orders)
        if self.start == "earliest":
            return dict(enumerate(self.log_starts))
        if self.start == "latest":
            return ends
        if self.start == "offsets":
            return {each: {-2: self.log_starts[each], -1: ends[each]}.get(at, at) for each, at in enumerate(self.at)}
        return {
            partition: next(
                (offset for offset, made in enumerate(orders) if FIRST_MS + made["id"] * STEP_MS >= self.since_ms),
                ends[partition],
            )
            for partition, orders in enumerate(self.orders)
        }

    # What must hold

    def check(self, version: int, *, is_whole: bool) -> None:
        """The outputs of the version that the name means; `is_whole` if it has just read everything.

        Otherwise it has read what its checkpoint says. A batch that was cut off may be decided or not.
        """
        if self.phase in SWITCHING:
            return
        state = self.state
        assert state is not None
        topics = {name: each.topic for name, each in state.versions[version].datasets.items()}
        assert topics["totals"] == f"{self.name}-totals", "the name means the public table"
        for dataset, seen in (("totals", self.table(topics["totals"])), ("large", self.ids(topics["large"]))):
            ends = [self.ends(self.reads[version, dataset])] if is_whole else self.planned(version, dataset)
            expected = [self.expected(version, dataset, each) for each in ends]
            assert seen in expected, f"{dataset} of version {version} at {ends}, from {self.starts[version, dataset]}"

    def table(self, topic: str) -> dict[str, int]:
        return {key: json.loads(value)["total"] for key, value in table_of(self.broker.bootstrap, topic).items()}

    def ids(self, topic: str) -> dict[int, int]:
        return dict(Counter(json.loads(message.value())["id"] for message in consume(self.broker.bootstrap, topic)))

    def expected(self, version: int, dataset: str, ends: Starts) -> dict[Any, int]:
        found: Counter[Any] = Counter()
        for partition, first in self.starts[version, dataset].items():
            for each in self.reads[version, dataset][partition][first : ends.get(partition, 0)]:
                is_read = (version, dataset) in each.get("readers", [(version, dataset)])
                if is_read and each["amount"] >= self.least[version]:
                    found[each["customer" if dataset == "totals" else "id"]] += (
                        each["amount"] if dataset == "totals" else 1
                    )
        return dict(found)

    def ends(self, topic: Topic) -> Starts:
        return {partition: len(orders) for partition, orders in enumerate(topic)}

    def planned(self, version: int, dataset: str) -> list[Starts]:
        """Where the last batch that is known to be written ended, and the last one that was planned; {}: none was."""
        directory = self.checkpoint(version, dataset)
        found = []
        for kind in ("commits", "offsets"):
            last = max((int(each.name) for each in directory.glob(f"{kind}/[0-9]*")), default=-1)
            text = (directory / "offsets" / str(last)).read_text().split("\n")[2] if last >= 0 else "{}"
            found.append({int(each): at for each, at in json.loads(text).get(self.topic, {}).items()})
        return found


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("start", STARTS)
def test_a_life_with_everything(broker: EmbeddedBroker, start: str) -> None:
    """What a walk by chance may not come to: each command, once whole and once killed."""
    Life.broker = broker
    life = Life()
    life.begin(before=[(0, "a", 5), (1, "b", 7), (0, "c", 1)], start=start, at=[1, -1], limit=2, copies="sooner")
    try:
        life.run(kill=None, recovers=False)
        life.run_another_aggregate()
        life.add_a_partition()
        life.run_twice_at_once()
        life.order(orders=[(0, "a", 4), (1, "c", 9), (2, "d", 6)])
        life.run(kill=("before-commit", 0), recovers=False)
        life.run(kill=None, recovers=False)
        life.lose_checkpoints(datasets=set(DATASETS))
        life.run(kill=None, recovers=False)
        life.run(kill=("batch-read", 0), recovers=True)
        life.run(kill=None, recovers=True)
        life.rebuild(least=2, kill=("switch-copied", 0), from_beginning=False)
        life.rebuild_again(kill=None)
        life.order(orders=[(1, "a", 4)])
        life.roll_back(kill=("switch-committed", 0))
        life.roll_back(kill=None)
        life.run(kill=None, recovers=False)
        life.rebuild(least=1, kill=None, from_beginning=False)
        life.finish(kill=("remove-half", 0))
        life.finish(kill=None)
        life.run(kill=None, recovers=False)
        assert (life.active, life.phase) == (3, None)
    finally:
        life.teardown()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("start", STARTS)
def test_a_life_with_inputs_that_go(broker: EmbeddedBroker, start: str) -> None:
    """Records that retention takes, read and unread, and a topic that is made anew, also before anything was read."""
    Life.broker = broker
    life = Life()
    life.begin(before=[(0, "a", 5), (1, "b", 7), (0, "c", 1)], start=start, at=[1, -1], limit=2, copies="later")
    try:
        life.run(kill=None, recovers=False)
        life.remove_records(before=[1, 1, 0])
        life.order(orders=[(0, "a", 4), (1, "c", 9)])
        life.run(kill=None, recovers=False)
        life.remove_records(before=[2, 1, 0])
        life.lose_checkpoints(datasets=set(DATASETS))
        life.run(kill=None, recovers=True)
        life.order(orders=[(0, "a", 4), (0, "b", 4), (1, "c", 9)])
        life.remove_records(before=[4, 2, 0])
        assert life.is_bereft(1)
        life.run(kill=None, recovers=True)
        life.rebuild(least=2, kill=("switch-copied", 0), from_beginning=False)
        life.roll_back(kill=None)
        life.rebuild(least=2, kill=None, from_beginning=False)
        life.roll_back(kill=None)
        life.finish(kill=None)
        life.run(kill=None, recovers=False)
        life.make_the_input_anew(orders=[(0, "d", 8)])
        assert life.is_bereft(life.active)
        life.run(kill=None, recovers=False)
        life.rebuild(least=2, kill=("switch-committed", 0), from_beginning=False)
        life.rebuild_again(kill=None)
        life.finish(kill=None)
        life.order(orders=[(0, "a", 4)])
        life.run(kill=None, recovers=False)
        assert life.phase is None
    finally:
        life.teardown()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("start", STARTS)
def test_a_life_with_a_compacted_input(broker: EmbeddedBroker, start: str) -> None:
    """Compaction removes orders that were read, orders that were not, and those that a rebuild would read again."""
    Life.broker = broker
    life = Life()
    life.begin(before=[(0, "a", 5), (0, "a", 7), (1, "b", 4)], start=start, at=[1, -1], limit=2, copies="")
    try:
        life.run(kill=None, recovers=False)
        life.order(orders=[(0, "a", 4), (0, "c", 3), (0, "c", 9), (1, "b", 6), (1, "b", 8)])
        life.compact_the_input()
        assert [order["id"] for order in life.orders[0] if "readers" not in order] == [3, 5]
        life.run(kill=("batch-decided", 0), recovers=False)
        life.run(kill=None, recovers=False)
        life.lose_checkpoints(datasets=set(DATASETS))
        life.run(kill=None, recovers=True)
        life.rebuild(least=2, kill=("switch-copied", 0), from_beginning=True)
        life.rebuild_again(kill=None)
        life.finish(kill=None)
        life.order(orders=[(0, "c", 5), (1, "b", 7)])
        life.compact_the_input()
        life.run(kill=None, recovers=False)
        assert (life.active, life.phase) == (2, None)
    finally:
        life.teardown()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("start", STARTS)
def test_a_life_whose_input_goes_before_it_is_read(broker: EmbeddedBroker, start: str) -> None:
    """A source that starts with the next record has begun once that is noted, though no batch was planned."""
    Life.broker = broker
    for go in (Life.remove_records, Life.make_the_input_anew):
        life = Life()
        life.begin(before=[(0, "a", 5), (1, "b", 7)], start=start, at=[1, -1], limit=None, copies="")
        try:
            life.run(kill=("batch-planned", 0) if start == "earliest" else None, recovers=False)
            life.order(orders=[(0, "a", 4), (1, "c", 9), (1, "b", 2)])
            go(life, [2, 2, 0] if go is Life.remove_records else [(0, "d", 8)])
            life.run(kill=None, recovers=False)
            life.rebuild(least=1, kill=None, from_beginning=False)
            life.finish(kill=None)
            life.run(kill=None, recovers=False)
        finally:
            life.teardown()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_life_of_a_pipeline(broker: EmbeddedBroker) -> None:
    Life.broker = broker
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Life,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
            # A step takes a second, so the first sequence that fails is shown, not the shortest.
            phases=(Stage.explicit, Stage.reuse, Stage.generate),
        ),
    )
