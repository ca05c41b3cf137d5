"""What a seed means: the shape of the cluster, its settings, its workload, its faults. Printed with every failure."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass, field
from typing import Any

from tests.simulator.clients.group import CLASSIC, CONSUMER, GroupOptions
from tests.simulator.clients.member import Manners
from tests.simulator.clients.processor import ProcessorManners
from tests.simulator.clients.processors import ProcessorOptions
from tests.simulator.clients.share_group import ShareOptions
from tests.simulator.clients.sinks import SinkOptions
from tests.simulator.clients.transactional import NEW, OLD
from tests.simulator.object_users import with_objects
from tests.simulator.share_users import with_shares
from tests.simulator.tier_users import with_tiers
from tests.simulator.users import UserOptions, with_users
from tests.simulator.world.nemesis import NemesisOptions

from strandline.config.settings import LONG_MAX
from strandline.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class TopicOptions:
    name: str
    partitions: int
    replicas: int
    configs: dict[str, str]
    acks: int = -1
    idempotent: bool = True
    allowed: frozenset[str] = frozenset()
    """Anomalies that this topic's settings permit."""
    may_lose: bool = False
    forgets: bool = False
    """Whether records are deleted at its start, by time and size."""

    @property
    def delays(self) -> bool:
        """Whether share groups get its records when they are due."""
        return self.configs.get("strandline.delay.enable") == "true"


ACKNOWLEDGED_BY_ONE = frozenset({"unseen", "lost-write"})
"""What acks=1 permits: the leader may die before anybody else has the record."""
UNCLEAN = frozenset(
    {
        *ACKNOWLEDGED_BY_ONE,
        *("vanished", "inconsistent-offsets", "duplicate", "poll-skip", "nonmonotonic-poll", "int-poll-skip"),
        *("nonmonotonic-send", "nonmonotonic-watermark", "G1a"),
    }
)
"""What `unclean.leader.election.enable` permits: nearly everything, but no record that was never sent."""


@dataclass(frozen=True, slots=True)
class TransactorOptions:
    """Clients that only write transactions."""

    count: int
    churn_s: float
    manners: ProcessorManners


@dataclass(frozen=True, slots=True)
class TableOptions:
    """A compacted topic, with whom it is written by."""

    topic: TopicOptions
    keys: int
    """So many in each partition."""
    writers: int
    readers: int
    transactors: TransactorOptions | None


@dataclass(frozen=True, slots=True)
class SimOptions:
    seed: int
    safety_s: float
    nodes: int
    controllers: int
    settings: dict[str, str]
    topics: tuple[TopicOptions, ...]
    nemesis: NemesisOptions
    records_per_batch: int
    produce_pause_s: float
    delivery_timeout_s: float
    commit_pause_s: float = 0.0
    """Between two commits of a group; 0 for no group."""
    groups: tuple[GroupOptions, ...] = ()
    processors: tuple[ProcessorOptions, ...] = ()
    transactors: TransactorOptions | None = None
    sinks: SinkOptions | None = None
    outputs: tuple[TopicOptions, ...] = ()
    """What processors, transactors and sinks write to; processors read `orders`."""
    table: TableOptions | None = None
    shares: tuple[ShareOptions, ...] = ()
    """Share groups over the topic of tasks."""
    has_tiers: bool = False
    """Whether some topics keep older segments in the object store of the world."""
    administer_every_s: float = 0.0
    """Between two changes that an administrator asks for; 0 for none."""
    users: UserOptions = field(default_factory=UserOptions)
    fragment_share: float = 0.0
    spike_share: float = 0.0
    window_bytes: int = 256 * 1024
    cold_share: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """In words, one per line."""
        told = {name: getattr(self, name) for name in self.__slots__ if name not in ("topics", "outputs")}
        lines = [f"{name} = {value!r}" for name, value in told.items()]
        return lines + [f"topic {topic!r}" for topic in (*self.topics, *self.outputs)]


FAULTS = {
    "kill": 10,
    "stop": 5,
    "power cut": 6,
    "power cut of all": 2,
    "kill all": 1,
    "pause": 8,
    "isolate": 8,
    "one way": 6,
    "bridge": 5,
    "cut off clients": 3,
    "slow link": 4,
    "resets": 6,
    "slow disk": 4,
    "stalled disk": 4,
    "full disk": 2,
    "failing sync": 2,
    "failing write": 2,
    "clock jump": 4,
}


PROTOCOLS = [(CLASSIC,), (CONSUMER,), (CLASSIC, CONSUMER)]
GROUP_SETTINGS = {
    # Kafka's own bounds are for people; what happens in a run of a minute needs sessions of seconds.
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
}


TRANSACTION_SETTINGS = {"transaction.state.log.num.partitions": "2"}


CLEANING_SETTINGS = {
    # What takes hours and days elsewhere is to happen many times within a minute.
    "log.cleaner.backoff.ms": ["300", "1000", "3000"],
    "log.retention.check.interval.ms": ["500", "2000"],
    "log.roll.ms": ["2000", "2000", "5000"],
    "log.cleaner.min.cleanable.ratio": ["0.0", "0.2", "0.5"],
}


def options_of(
    seed: int,
    *,
    safety_s: float | None = None,
    nodes: int | None = None,
    transactional: bool = True,
    cleaning: bool = True,
    users: bool = True,
    shares: bool = True,
    tiers: bool = True,
    objects: bool = True,
) -> SimOptions:
    """Return what a seed means; without transactions, cleaning and so on, as before there were any."""
    options = _options_of(seed, safety_s=safety_s, nodes=nodes)
    if transactional:
        options = _with_sinks(_with_processors(options))
    if transactional and cleaning:
        options = _with_cleaning(options)
        if users:
            options = with_users(options)
            if shares:
                options = with_shares(options)
                if tiers:
                    options = with_tiers(options)
                    return with_objects(options) if objects else options
    return options


def _options_of(seed: int, *, safety_s: float | None, nodes: int | None) -> SimOptions:
    rng = random.Random(f"options {seed}")
    count = nodes or rng.choice([3, 3, 3, 3, 4, 5])
    # A single copy that is not flushed is lost with the power, as documented.
    flush_mode = rng.choice(["auto", "auto", "ack", "async"] if count > 1 else ["auto", "ack"])
    # Each run leaves some kinds of faults out and stresses others: what hides behind one is seen in another run.
    weights = {kind: weight * rng.choice([0, 1, 1, 3]) for kind, weight in FAULTS.items()}
    weights["kill"] = max(1, weights["kill"])
    settings = {
        "broker.session.timeout.ms": rng.choice(["3000", "6000", "9000"]),
        "broker.heartbeat.interval.ms": rng.choice(["500", "1000", "2000"]),
        "replica.lag.time.max.ms": rng.choice(["1500", "5000", "10000"]),
        "controller.quorum.election.timeout.ms": rng.choice(["500", "1000"]),
        "controller.quorum.fetch.timeout.ms": rng.choice(["1000", "2000"]),
        "metadata.log.max.record.bytes.between.snapshots": rng.choice(["5000", "50000", "20971520"]),
        "leader.imbalance.check.interval.seconds": rng.choice(["10", "30", "300"]),
        "offsets.topic.num.partitions": "2",
        "flush.mode": flush_mode,
        "log.roll.ms": rng.choice(["3000", "20000", "604800000"]),
        "log.index.interval.bytes": rng.choice(["200", "4096"]),
    }
    return SimOptions(
        seed=seed,
        safety_s=safety_s or rng.choice([60.0, 120.0, 300.0]),
        nodes=count,
        controllers=min(count, rng.choice([3, 3, 3, count])) if count != 4 else 3,
        settings={**settings, **GROUP_SETTINGS},
        topics=_topics(rng, min(3, count), flush_mode),
        nemesis=NemesisOptions(
            pause_s=rng.choice([2.0, 4.0, 8.0]), weights=weights, power_cuts_all=flush_mode == "ack"
        ),
        records_per_batch=rng.choice([3, 10, 25]),
        produce_pause_s=rng.choice([0.3, 1.0]),
        delivery_timeout_s=rng.choice([15.0, 60.0]),
        commit_pause_s=rng.choice([0.5, 2.0]),
        groups=_groups(seed),
        administer_every_s=rng.choice([0.0, 3.0, 10.0]) if count > 1 else 0.0,
        fragment_share=rng.choice([0.0, 0.0, 0.2]),
        spike_share=rng.choice([0.0, 0.001, 0.01]),
        window_bytes=rng.choice([256 * 1024, 256 * 1024, 2048]),
        cold_share=rng.choice([0.0, 0.0, 0.05]),
    )


def _groups(seed: int) -> tuple[GroupOptions, ...]:
    """Drawn apart, so that the rest of what a seed means is the same with groups and without."""
    rng = random.Random(f"groups {seed}")
    return tuple(
        GroupOptions(
            f"{'-and-'.join(protocols)}-{number}",
            topics=rng.choice([("orders",), ("orders", "plain")]),
            protocols=protocols,
            members=rng.choice([1, 2, 3]),
            statics=rng.choice([0, 0, 2]),
            churn_s=rng.choice([3.0, 8.0, 20.0]),
            manners=Manners(commit_pause_s=rng.choice([0.5, 2.0])),
        )
        for number, protocols in enumerate(rng.sample(PROTOCOLS, rng.choice([1, 2])))
    )


def _with_processors(options: SimOptions) -> SimOptions:
    """Drawn apart, so that the rest of what a seed means is the same with transactions and without."""
    rng = random.Random(f"processors {options.seed}")
    orders = options.topics[0]
    outputs = tuple(
        dataclasses.replace(orders, name=name, partitions=rng.choice([1, 2]))
        for name in rng.choice([("ledger",), ("ledger", "mirror")])
    )
    timeout_s = rng.choice([4.0, 10.0, 20.0])
    processors = tuple(
        ProcessorOptions(
            GroupOptions(
                f"processors-{number}",
                topics=("orders",),
                protocols=rng.choice(PROTOCOLS),
                members=rng.choice([1, 2, 3]),
                statics=rng.choice([0, 0, 2]),
                churn_s=rng.choice([3.0, 8.0, 20.0]),
                manners=Manners(),
            ),
            outputs=tuple(TopicPartition(each.name, index) for each in outputs for index in range(each.partitions)),
            transactional_ids=rng.choice([2, 3]),
            manners=ProcessorManners(
                speaks=rng.choice([(NEW,), (NEW,), (OLD,), (OLD, NEW)]),
                timeout_s=timeout_s,
                pause_s=rng.choice([0.2, 0.5, 1.0]),
                abort_share=rng.choice([0.05, 0.2]),
                hang_share=rng.choice([0.0, 0.02, 0.1]),
            ),
        )
        for number in range(rng.choice([0, 1, 1, 2]))
    )
    if not processors:
        return options
    transactors = TransactorOptions(
        count=rng.choice([1, 2, 3]), churn_s=rng.choice([4.0, 10.0]), manners=rng.choice(processors).manners
    )
    return dataclasses.replace(
        options,
        processors=processors,
        transactors=transactors,
        outputs=outputs,
        settings={**options.settings, **TRANSACTION_SETTINGS},
    )


def _with_sinks(options: SimOptions) -> SimOptions:
    """Drawn apart, as processors are."""
    rng = random.Random(f"sinks {options.seed}")
    if not options.outputs or rng.random() < 0.3:
        return options
    manners = ProcessorManners(
        speaks=rng.choice([(NEW,), (OLD,), (OLD,), (OLD, NEW)]),
        timeout_s=rng.choice([4.0, 10.0, 20.0]),
        pause_s=rng.choice([0.2, 0.5, 1.0]),
        abort_share=rng.choice([0.1, 0.5]),
        hang_share=rng.choice([0.0, 0.02, 0.1]),
    )
    sinks = SinkOptions(
        count=rng.choice([1, 1, 2]), tasks_max=rng.choice([1, 3, 6]), churn_s=rng.choice([3.0, 10.0]), manners=manners
    )
    return dataclasses.replace(options, sinks=sinks)


def _with_cleaning(options: SimOptions) -> SimOptions:
    """Drawn apart, as processors are: internal topics and a table are compacted, and one topic forgets."""
    rng = random.Random(f"cleaning {options.seed}")
    orders = options.topics[0]
    kept = {name: value for name, value in orders.configs.items() if name != "internal.segment.bytes"}
    # Where a clock jumps, what is to stay for some seconds may go at once.
    delete_retention_ms = rng.choice(["20000", "40000", "86400000"])
    lags = rng.choice([("0", "1000"), ("0", "5000"), ("3000", "5000"), ("0", str(LONG_MAX))])
    weights = dict(options.nemesis.weights)
    if delete_retention_ms != "86400000":
        weights["clock jump"] = 0
    compacted = {
        **kept,
        "cleanup.policy": "compact",
        "internal.segment.bytes": rng.choice(["1500", "5000", "20000"]),
        "min.cleanable.dirty.ratio": rng.choice(["0.0", "0.01", "0.3"]),
        "delete.retention.ms": delete_retention_ms,
        "min.compaction.lag.ms": lags[0],
        "max.compaction.lag.ms": lags[1],
        "segment.ms": rng.choice(["1000", "4000"]),
        "file.delete.delay.ms": rng.choice(["0", "1000", "60000"]),
        "compression.type": rng.choice(["producer", "lz4"]),
    }
    forgetful = {
        **kept,
        "internal.segment.bytes": rng.choice(["1500", "5000"]),
        "retention.ms": rng.choice(["3000", "15000", "-1"]),
        "retention.bytes": rng.choice(["3000", "10000"]),
        "file.delete.delay.ms": rng.choice(["0", "1000", "60000"]),
    }
    transactors = TransactorOptions(
        count=rng.choice([1, 2]),
        churn_s=rng.choice([4.0, 10.0]),
        manners=ProcessorManners(
            speaks=rng.choice([(NEW,), (OLD,), (OLD, NEW)]),
            timeout_s=rng.choice([4.0, 10.0]),
            pause_s=rng.choice([0.2, 0.5]),
            abort_share=rng.choice([0.1, 0.4]),
            hang_share=rng.choice([0.0, 0.05]),
        ),
    )
    return dataclasses.replace(
        options,
        topics=(
            *options.topics,
            dataclasses.replace(orders, name="brief", partitions=1, configs=forgetful, forgets=True),
        ),
        table=TableOptions(
            dataclasses.replace(orders, name="table", partitions=rng.choice([1, 2]), configs=compacted),
            keys=rng.choice([3, 20, 200]),
            writers=rng.choice([1, 2]),
            readers=2,
            transactors=transactors if rng.random() < 0.7 else None,
        ),
        nemesis=dataclasses.replace(options.nemesis, weights=weights),
        settings={
            **TRANSACTION_SETTINGS,
            **options.settings,
            **{name: rng.choice(values) for name, values in CLEANING_SETTINGS.items()},
        },
    )


def _topics(rng: random.Random, replicas: int, flush_mode: str) -> tuple[TopicOptions, ...]:
    flush = {"flush.mode": flush_mode, "internal.segment.bytes": rng.choice(["10000", "100000"])}
    minimum = {"min.insync.replicas": str(min(2, replicas))}
    return (
        TopicOptions("orders", rng.choice([1, 3, 6]), replicas, {**flush, **minimum}),
        TopicOptions("plain", 1, replicas, {**flush, **minimum}, idempotent=False),
        TopicOptions("solo", 1, 1, {"flush.mode": rng.choice(["auto", "ack"])}),
        TopicOptions(
            "quick",
            1,
            replicas,
            {**flush, "min.insync.replicas": "1"},
            acks=1,
            idempotent=False,
            allowed=ACKNOWLEDGED_BY_ONE,
        ),
        TopicOptions(
            "loose",
            1,
            replicas,
            {**flush, "min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
            allowed=UNCLEAN,
            may_lose=True,
        ),
    )
