"""What happens to the records of a share group, written once for all clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.clients.client import WAIT_S_MAX, ClientFailed
from tests.clients.shares.member import IMPLICIT, POLLS_MAX, ShareMember, deliveries, values
from tests.clients.shares.variants import ShareClient

SHARE_PROPERTIES = {
    "group.share.heartbeat.interval.ms": "100",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "4",
}
"""Settings of a broker on which stories are short: an assignment comes with a heartbeat."""
LOCK_MS = 2_000
LONG_LOCK_MS = 30_000
RENEWED_LOCK_MS = 5_000
DELIVERY_LIMIT = 5


class ShareStage:
    """A topic with one partition, a share group that begins at its start, and members of one client."""

    def __init__(self, client: ShareClient, bootstrap: str, name: str, logs: Path, replication: int = 1) -> None:
        self.topic = name
        self.place = f"{name}-0"
        self._client = client
        self._bootstrap = bootstrap
        self._logs = logs
        self._members: list[ShareMember] = []
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._admin.create_topics([NewTopic(name, 1, replication)])[name].result(WAIT_S_MAX)
        self.set_group({"share.auto.offset.reset": "earliest"})

    def set_group(self, settings: Mapping[str, str], group: str = "workers") -> None:
        alter(self._admin, ResourceType.GROUP, self._group(group), settings)

    def member(self, group: str = "workers", client: ShareClient | None = None, **settings: str) -> ShareMember:
        """Start a member, of the stage's client unless another one is named."""
        logs = self._logs / f"member-{len(self._members)}"
        logs.mkdir()
        program = (client or self._client).start(self._bootstrap, logs)
        given = {name.replace("_", "."): value for name, value in settings.items()}
        try:
            self._members.append(ShareMember(program, self._group(group), self.topic, given))
        except BaseException:
            program.close()
            raise
        return self._members[-1]

    def write(self, *texts: str) -> None:
        """Write the records as one batch."""
        # It waits for the flush, so that a busy machine does not make two batches of it.
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 5_000, "log_level": 0})
        self._produce(producer, texts)

    def transact(self, *texts: str, commits: bool) -> None:
        producer = self.begin(*texts)
        if commits:
            producer.commit_transaction(WAIT_S_MAX)
        else:
            producer.abort_transaction(WAIT_S_MAX)

    def begin(self, *texts: str) -> Producer:
        """Write the records in a transaction that stays open."""
        settings = {"bootstrap.servers": self._bootstrap, "transactional.id": self.topic, "log_level": 0}
        producer = Producer(settings | {"linger.ms": 5_000})
        producer.init_transactions(WAIT_S_MAX)
        producer.begin_transaction()
        self._produce(producer, texts)
        return producer

    def close(self) -> None:
        for member in self._members:
            member.program.resume()
            member.program.close()

    def _produce(self, producer: Producer, texts: tuple[str, ...]) -> None:
        for text in texts:
            producer.produce(self.topic, text.encode(), partition=0)
        assert producer.flush(WAIT_S_MAX) == 0

    def _group(self, name: str) -> str:
        return f"{name}-{self.topic}"


def alter(admin: AdminClient, kind: ResourceType, name: str, settings: Mapping[str, str]) -> None:
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WAIT_S_MAX)


def one_by_one(stage: ShareStage) -> None:
    """Each record is delivered once, and acknowledged by itself."""
    stage.write(*(f"job-{number}" for number in range(5)))
    ann = stage.member()
    assert deliveries(ann.poll_some()) == [(f"job-{number}", 1) for number in range(5)]
    # Not in order: a share group has no position that the records before must reach first.
    for at in (3, 0, 4, 2, 1):
        ann.acknowledge("-" * at + "a-")
        assert ann.commit() == {stage.place: None}
    assert ann.is_idle()
    ann.close()
    assert stage.member().is_idle()


def release(stage: ShareStage) -> None:
    """A record that was released comes again, alone, with a higher delivery count."""
    stage.write("one", "two", "three")
    ann = stage.member()
    assert deliveries(ann.poll_some()) == [("one", 1), ("two", 1), ("three", 1)]
    ann.settle("ala")
    assert deliveries(ann.poll_some()) == [("two", 2)]
    ann.settle("l")
    assert deliveries(ann.poll_some()) == [("two", 3)]
    ann.settle("a")
    assert ann.is_idle()


def reject(stage: ShareStage) -> None:
    """A record that was rejected is not delivered again, neither to this member nor to another one."""
    stage.write("one", "poison", "three")
    ann = stage.member()
    assert values(ann.poll_some()) == ["one", "poison", "three"]
    ann.settle("aja")
    assert ann.is_idle()
    ann.close()
    assert stage.member().is_idle()


def delivery_limit(stage: ShareStage) -> None:
    """A record that is always released is given up after the last delivery, and holds up no other."""
    stage.write("one", "poison", "three")
    ann = stage.member()
    assert values(ann.poll_some()) == ["one", "poison", "three"]
    ann.settle("ala")
    for count in range(2, DELIVERY_LIMIT + 1):
        assert deliveries(ann.poll_some()) == [("poison", count)]
        ann.settle("l")
    assert ann.is_idle()
    stage.write("four")
    assert deliveries(ann.poll_some()) == [("four", 1)]
    ann.settle("a")


def killed(stage: ShareStage) -> None:
    """What a member held that was killed with SIGKILL goes to another one."""
    stage.write("one", "two")
    ann = stage.member()
    assert deliveries(ann.poll_some()) == [("one", 1), ("two", 1)]
    ann.program.kill()
    bob = stage.member()
    assert deliveries(bob.poll_some()) == [("one", 2), ("two", 2)]
    bob.settle("a")
    assert bob.is_idle()


def lock(stage: ShareStage) -> None:
    """What a member holds that hangs goes to another one when the lock is over; its late acknowledgement is refused."""
    stage.set_group({"share.record.lock.duration.ms": f"{LOCK_MS}"})
    stage.write("one")
    ann = stage.member()
    assert deliveries(ann.poll_some()) == [("one", 1)]
    ann.program.pause()
    # The lock of the next holder is long enough for a busy machine.
    stage.set_group({"share.record.lock.duration.ms": f"{LONG_LOCK_MS}"})
    bob = stage.member()
    assert deliveries(bob.poll_some()) == [("one", 2)]
    ann.program.resume()
    ann.acknowledge("a")
    # Before bob accepts it: what is wrong with records that are done is not said, on Kafka neither.
    (error,) = ann.commit().values()
    assert error is not None
    assert "INVALID_RECORD_STATE" in error.upper() or "InvalidRecordState" in error, error
    bob.settle("l")
    assert deliveries(bob.poll_some()) == [("one", 3)]
    bob.settle("a")
    assert ann.is_idle()
    assert bob.is_idle()


def renew(stage: ShareStage) -> None:
    """A member that renews its locks keeps its records for longer than a lock lasts."""
    stage.set_group({"share.record.lock.duration.ms": f"{RENEWED_LOCK_MS}"})
    stage.write("one", "two")
    ann = stage.member()
    assert deliveries(ann.poll_some()) == [("one", 1), ("two", 1)]
    enough = time.monotonic() + 1.5 * RENEWED_LOCK_MS / 1_000
    while time.monotonic() < enough:
        ann.settle("n")
        time.sleep(RENEWED_LOCK_MS / 10_000)
    # The last one is long enough for the start of another member on a busy machine.
    stage.set_group({"share.record.lock.duration.ms": f"{LONG_LOCK_MS}"})
    ann.settle("n")
    bob = stage.member()
    assert bob.is_idle()
    ann.settle("a")
    assert bob.is_idle()


def close(stage: ShareStage) -> None:
    """A member that closes sends its acknowledgements, and the rest goes to others at once."""
    stage.write("one", "two", "three")
    ann = stage.member()
    assert values(ann.poll_some()) == ["one", "two", "three"]
    ann.acknowledge("a-")
    ann.close()
    bob = stage.member()
    assert deliveries(bob.poll_some()) == [("two", 2), ("three", 2)]
    bob.settle("a")
    assert bob.is_idle()


def one_partition(stage: ShareStage) -> None:
    """Two members share one partition: both get records, and each record goes to one of them."""
    share_out(stage, [stage.member(max_poll_records="5") for _ in range(2)])


def share_out(stage: ShareStage, members: list[ShareMember]) -> None:
    """Write until every member got records; each record must be delivered once, to one of them."""
    done: list[list[str]] = [[] for _ in members]
    written = 0
    for _ in range(POLLS_MAX):
        if written < 100 or not all(done):
            # Batches of five, because a fetch takes whole batches.
            for _ in range(4):
                stage.write(*(f"job-{written + number}" for number in range(5)))
                written += 5
        for member, own in zip(members, done, strict=True):
            found = member.poll()
            own += values(found)
            assert {count for _, count in deliveries(found)} <= {1}
            member.settle("a")
        if all(done) and sum(map(len, done)) >= written:
            break
    assert all(done)
    assert sorted(value for own in done for value in own) == sorted(f"job-{number}" for number in range(written))


def churn(stage: ShareStage) -> None:
    """Members are killed in the middle of their work: no record is lost, and none that is done comes again."""
    for first in range(0, 60, 5):
        stage.write(*(f"{number}" for number in range(first, first + 5)))
    members = [stage.member(max_poll_records="5") for _ in range(2)]
    done: set[int] = set()
    kills, polls = 0, 0
    for turn in range(POLLS_MAX):
        found = members[turn % 2].poll()
        numbers = [int(value) for value in values(found)]
        assert not done & set(numbers)
        assert all(count <= DELIVERY_LIMIT for _, count in deliveries(found))
        polls += bool(found)
        # With one release each, three kills leave every record a delivery.
        if found and polls % 3 == 0 and kills < 3:
            members[turn % 2].program.kill()
            members[turn % 2] = stage.member(max_poll_records="5")
            kills += 1
            continue
        types = [
            "j" if each % 10 == 3 else "l" if each % 4 == 1 and count == 1 else "a"
            for each, (_, count) in zip(numbers, deliveries(found), strict=True)
        ]
        if types:
            members[turn % 2].settle("".join(types))
        done |= {each for each, letter in zip(numbers, types, strict=True) if letter != "l"}
        if len(done) == 60:
            break
    assert done == set(range(60))
    assert kills > 0
    assert all(member.is_idle() for member in members)


def two_groups(stage: ShareStage) -> None:
    """Two groups on one topic each get every record, whatever the other one does with it."""
    stage.set_group({"share.auto.offset.reset": "earliest"}, "auditors")
    stage.write("one", "two")
    ann, zoe = stage.member(), stage.member("auditors")
    assert deliveries(ann.poll_some()) == [("one", 1), ("two", 1)]
    ann.settle("j")
    assert deliveries(zoe.poll_some()) == [("one", 1), ("two", 1)]
    zoe.settle("l")
    assert deliveries(zoe.poll_some()) == [("one", 2), ("two", 2)]
    zoe.settle("a")
    assert ann.is_idle()


def implicit(stage: ShareStage) -> None:
    """Without explicit acknowledgement, the next poll accepts the records of the one before."""
    stage.write("one", "two")
    ann = stage.member(**IMPLICIT)
    assert values(ann.poll_some()) == ["one", "two"]
    assert ann.is_idle()
    assert set(ann.commit().values()) <= {None}
    ann.close()
    assert stage.member().is_idle()


def explicit(stage: ShareStage) -> None:
    """With explicit acknowledgement, a poll is refused until every record is acknowledged."""
    stage.write("one", "two")
    ann = stage.member()
    assert values(ann.poll_some()) == ["one", "two"]
    ann.acknowledge("a-")
    try:
        found: list[dict[str, Any]] | None = ann.poll()
    except ClientFailed:
        found = None
    assert found is None, "the poll was not refused"
    ann.settle("-a")
    assert ann.is_idle()


def record_limit(stage: ShareStage) -> None:
    """A member that asks for a strict limit never gets more records than that, though batches are larger."""
    stage.write(*(f"job-{number}" for number in range(7)))
    ann = stage.member(max_poll_records="3", share_acquire_mode="record_limit")
    done: list[str] = []
    while len(done) < 7:
        found = ann.poll_some()
        assert len(found) <= 3
        done += values(found)
        ann.settle("a")
    assert done == [f"job-{number}" for number in range(7)]


def read_uncommitted(stage: ShareStage) -> None:
    """A group sees the records of open and aborted transactions unless it is set otherwise, and no markers."""
    stage.transact("aborted", commits=False)
    stage.transact("committed", commits=True)
    producer = stage.begin("open")
    ann = stage.member()
    seen: list[str] = []
    while len(seen) < 3:
        seen += values(ann.poll_some())
        ann.settle("a")
    assert seen == ["aborted", "committed", "open"]
    producer.abort_transaction(WAIT_S_MAX)
    assert ann.is_idle()


def read_committed(stage: ShareStage) -> None:
    """A group with read_committed sees no aborted record, and waits for the end of an open transaction."""
    stage.set_group({"share.isolation.level": "read_committed"})
    stage.transact("aborted", commits=False)
    stage.transact("first", commits=True)
    producer = stage.begin("second")
    stage.write("behind it")
    ann = stage.member()
    assert values(ann.poll_some()) == ["first"]
    ann.settle("a")
    assert ann.is_idle()
    producer.commit_transaction(WAIT_S_MAX)
    seen: list[str] = []
    while len(seen) < 2:
        seen += values(ann.poll_some())
        ann.settle("a")
    assert seen == ["second", "behind it"]
    assert ann.is_idle()


def latest(stage: ShareStage) -> None:
    """A group without settings begins at the end: what was written before is not delivered."""
    stage.write("too early")
    ann = stage.member("newcomers")
    # It is assigned its partition at some time after this, so some of these may be too early as well.
    seen: list[str] = []
    for at in range(POLLS_MAX):
        stage.write(f"job-{at}")
        if found := values(ann.poll()):
            ann.settle("a")
            seen += found
        if f"job-{at}" in seen:
            break
    first = int(seen[0].removeprefix("job-"))
    assert seen == [f"job-{number}" for number in range(first, first + len(seen))]


@dataclass(frozen=True)
class ShareRow:
    """A story, why some clients cannot tell it, and whether `make test` has the time for it."""

    story: Callable[[ShareStage], None]
    cannot: Mapping[str, str] = field(default_factory=dict)
    is_brief: bool = False


_VERSION_1 = "librdkafka 2.16 sends version 1 of the requests, which has no such field"

ROWS: dict[str, ShareRow] = {
    "one-by-one": ShareRow(one_by_one),
    "release": ShareRow(release, is_brief=True),
    "reject": ShareRow(reject),
    "delivery-limit": ShareRow(delivery_limit, is_brief=True),
    "killed": ShareRow(killed, is_brief=True),
    "lock": ShareRow(lock, is_brief=True),
    "renew": ShareRow(renew, {"confluent-kafka": _VERSION_1}),
    "close": ShareRow(close),
    "one-partition": ShareRow(one_partition),
    "churn": ShareRow(churn),
    "two-groups": ShareRow(two_groups),
    "implicit": ShareRow(implicit),
    "explicit": ShareRow(
        explicit,
        {"franz-go": "it has one mode: the next poll accepts what was not acknowledged before"},
        is_brief=True,
    ),
    "record-limit": ShareRow(record_limit, {"confluent-kafka": _VERSION_1}),
    "read-uncommitted": ShareRow(read_uncommitted),
    "read-committed": ShareRow(read_committed, is_brief=True),
    "latest": ShareRow(latest),
}
