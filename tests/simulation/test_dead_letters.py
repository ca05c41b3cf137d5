"""Dead letters of share groups: each rejected or exhausted record has one copy, whenever a broker is killed."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.hostile.batches import produce
from tests.simulation.dead_letter_stage import (
    BROKER_RESOURCE,
    COPIED,
    DEAD,
    ENABLED,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    KillAt,
    alter,
    begin_state,
    counts,
    dead_letter_stage,
    headers,
    letters,
    offsets,
    worker,
)
from tests.simulation.share_stage import GROUP, Worker, write
from tests.simulation.stage import Play
from tests.simulator.world.cluster import SimNode

from strandline.codec.columns import Record, encode_batch
from strandline.codec.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.codec.messages.delete_records_response import DeleteRecordsResponse
from strandline.codec.messages.produce_response import ProduceResponse
from strandline.coordinators.shares.delivery.acknowledgements import ACCEPT, REJECT, RELEASE
from strandline.errors import ErrorCode

LOCK_S = 30.0
POINTS = [
    f"{when} {what}"
    for what in ("Archiving", "InitProducerId", "ListSinks", "AddPartitionsToTxn", "Produce", "CommitBatch", "Archived")
    for when in ("before", "sent", "after")
]


def write_records(play: Play, *records: Record) -> None:
    now_ms = play.leader("tasks").runtime.now_ms()  # type: ignore[union-attr]
    batch = encode_batch([each._replace(timestamp_ms=now_ms) for each in records])
    answer = play.ask(play.leader("tasks"), produce("tasks", batch), 12, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0


def start_offset(play: Play) -> int:
    node = play.leader("tasks").node
    assert node is not None
    found: list[int] = []
    node.persister.summary(
        GROUP, play.topic_id("tasks"), 0, -1, lambda code, summary: found.append(-1 if code else summary.start_offset)
    )
    play.until(lambda: found, "the share coordinator answers")
    return found[0]


def test_a_rejected_record_is_copied_with_what_is_known_of_it() -> None:
    with dead_letter_stage(1) as play:
        write_records(play, Record(value=b"good"), Record(key=b"k", value=b"bad", headers=(("tenant", b"acme"),)))
        ann = worker(play)
        assert ann.poll(max_wait_ms=10_000) == [(0, 1, 1)]
        play.rest(2.0)
        assert ann.acknowledge((0, 0, [ACCEPT]), (1, 1, [REJECT])) is ErrorCode.NONE
        play.until(lambda: letters(play), "the dead letter is written")
        (letter,) = letters(play)
        assert (letter.key, letter.value) == (b"k", b"bad")
        found = headers(letter)
        acquired, ended = int(found.pop("strandline.dlq.acquired")), int(found.pop("strandline.dlq.ended"))
        assert 1_900 <= ended - acquired <= 3_000
        assert int(found.pop("strandline.dlq.timestamp")) <= acquired
        assert found == {
            "__dlq.errors.topic": "tasks",
            "__dlq.errors.partition": "0",
            "__dlq.errors.offset": "1",
            "__dlq.errors.group": GROUP,
            "__dlq.errors.delivery.count": "1",
            "__dlq.errors.message": "Offset rejected by client.",
            "strandline.dlq.member": "ann",
            "strandline.dlq.header.tenant": "acme",
        }
        play.until(lambda: start_offset(play) == 2, "the share partition goes on")
        assert counts(play).written == 1


def test_a_record_that_is_released_too_often_is_copied_without_content_if_the_group_wants_so() -> None:
    with dead_letter_stage(2, group={**COPIED, "errors.deadletterqueue.copy.record.enable": "false"}) as play:
        write_records(play, Record(key=b"k", value=b"poison", headers=(("a", b"b"),)))
        ann = worker(play)
        for count in range(1, 6):
            assert ann.poll(max_wait_ms=10_000) == [(0, 0, count)]
            assert ann.acknowledge((0, 0, [RELEASE])) is ErrorCode.NONE
        play.until(lambda: letters(play), "the dead letter is written")
        (letter,) = letters(play)
        assert letter.key is None
        assert letter.value is None
        assert headers(letter)["__dlq.errors.message"] == "Offset delivery count exceeded the threshold."
        assert headers(letter)["__dlq.errors.delivery.count"] == "5"
        assert headers(letter)["strandline.dlq.copy"] == "off"
        assert "strandline.dlq.header.a" not in headers(letter)


def test_a_record_whose_lock_times_out_too_often_is_copied() -> None:
    with dead_letter_stage(3) as play:
        write(play, 1)
        assert alter(play, GROUP_RESOURCE, GROUP, {"share.delivery.count.limit": "2"}) == 0
        ann = worker(play)
        for count in (1, 2):
            assert ann.poll(max_wait_ms=10_000) == [(0, 0, count)]
            play.rest(LOCK_S + 1)
        play.until(lambda: offsets(play) == [0], "the dead letter is written")
        play.until(lambda: start_offset(play) == 1, "the share partition goes on")


def test_a_record_that_is_gone_is_named_without_its_content() -> None:
    with dead_letter_stage(4) as play:
        write(play, 1, 1)
        ann = worker(play)
        assert ann.poll(max_wait_ms=10_000) == [(0, 1, 1)]
        topics = [DeleteRecordsTopic(name="tasks", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=5_000)
        play.loop.after_event = None  # The invariants know nothing of this request.
        pending = ann.begin_acknowledge((0, 1, [REJECT]))
        play.ask(play.leader("tasks"), request, 2, DeleteRecordsResponse)
        play.until(lambda: pending, "the rejection is stored")
        play.until(lambda: len(letters(play)) == 2, "both dead letters are written")
        values = {headers(each)["__dlq.errors.offset"]: each.value for each in letters(play)}
        assert values["1"] == b"task"
        assert values["0"] in (b"task", None)


def test_many_records_are_copied_in_the_order_of_the_log() -> None:
    with dead_letter_stage(5) as play:
        write(play, *([100] * 12))
        ann = worker(play)
        for _ in range(12):
            for first, last, _ in ann.poll(max_wait_ms=10_000):
                assert ann.acknowledge((first, last, [REJECT])) is ErrorCode.NONE
        play.until(lambda: len(offsets(play)) == 1200, "all dead letters are written", 60.0)
        assert offsets(play) == list(range(1200))
        assert counts(play).transactions < 100


def test_records_larger_than_the_topic_takes_are_named_without_their_content() -> None:
    with dead_letter_stage(6, topic={**ENABLED, "max.message.bytes": "2000"}) as play:
        write_records(play, *(Record(value=bytes(size)) for size in (900, 900, 5_000, 900)))
        ann = worker(play)
        assert ann.poll(max_wait_ms=10_000) == [(0, 3, 1)]
        assert ann.acknowledge((0, 3, [REJECT])) is ErrorCode.NONE
        play.until(lambda: len(letters(play)) == 4, "all dead letters are written", 60.0)
        sizes = {int(headers(each)["__dlq.errors.offset"]): each.value for each in letters(play)}
        assert {offset: None if value is None else len(value) for offset, value in sizes.items()} == {
            0: 900,
            1: 900,
            2: None,
            3: 900,
        }
        bare = next(each for each in letters(play) if headers(each)["__dlq.errors.offset"] == "2")
        assert headers(bare)["strandline.dlq.copy"] == "too large"


# A topic that cannot be written to


def reject_one(play: Play, member_id: str = "ann") -> Worker:
    """Reject the first record, with a member that stays."""
    ann = worker(play, member_id)
    assert ann.poll(max_wait_ms=10_000, max_records=1, share_acquire_mode=1) == [(0, 0, 1)]
    assert ann.acknowledge((0, 0, [REJECT])) is ErrorCode.NONE
    return ann


def test_a_missing_topic_is_waited_for_and_the_share_partition_goes_on() -> None:
    with dead_letter_stage(7, topic=None) as play:
        write(play, 1, 1, 1)
        reject_one(play)
        play.until(lambda: counts(play).failures >= 3, "it is tried again")
        ann = worker(play, "bob")
        assert ann.poll(max_wait_ms=10_000) == [(1, 2, 1)]
        assert ann.acknowledge((1, 2, [ACCEPT])) is ErrorCode.NONE
        assert start_offset(play) == 0
        create = {"errors.deadletterqueue.auto.create.topics.enable": "true"}
        assert alter(play, BROKER_RESOURCE, "", create) == 0
        play.until(lambda: DEAD in play.run.invariants.image.topics, "a broker creates the topic", 60.0)
        play.until(lambda: offsets(play) == [0], "the dead letter is written", 60.0)
        play.until(lambda: start_offset(play) == 3, "nothing holds the start offset any more")


def test_a_topic_whose_owner_does_not_allow_it_gets_nothing_until_it_is_allowed() -> None:
    with dead_letter_stage(8, topic={}) as play:
        write(play, 1)
        reject_one(play)
        play.until(lambda: counts(play).failures >= 3, "it is tried again")
        assert not letters(play)
        assert alter(play, TOPIC_RESOURCE, DEAD, ENABLED) == 0
        play.until(lambda: offsets(play) == [0], "the dead letter is written", 60.0)


def test_a_topic_that_takes_no_records_for_now_is_tried_again() -> None:
    with dead_letter_stage(16, topic={**ENABLED, "max.message.bytes": "100"}) as play:
        write(play, 1)
        reject_one(play)
        play.until(lambda: counts(play).failures >= 3, "it is tried again")
        assert not letters(play)
        assert alter(play, TOPIC_RESOURCE, DEAD, {"max.message.bytes": "10000"}) == 0
        play.until(lambda: offsets(play) == [0], "the dead letter is written", 60.0)


def test_the_source_itself_gets_no_dead_letters() -> None:
    with dead_letter_stage(9, group={**COPIED, "errors.deadletterqueue.topic.name": "tasks"}) as play:
        assert alter(play, TOPIC_RESOURCE, "tasks", ENABLED) == 0
        assert alter(play, BROKER_RESOURCE, "", {"errors.deadletterqueue.topic.name.prefix": ""}) == 0
        write(play, 1)
        reject_one(play)
        play.until(lambda: counts(play).failures >= 3, "it is tried again")
        assert not letters(play, "tasks")
        assert alter(play, GROUP_RESOURCE, GROUP, {"errors.deadletterqueue.topic.name": DEAD}) == 0
        play.until(lambda: offsets(play) == [0], "the dead letter is written", 60.0)


def test_names_that_no_dead_letter_topic_may_have_are_refused() -> None:
    with dead_letter_stage(10) as play:
        for name in ("__consumer_offsets", "a b", "..", "x" * 250):
            code = alter(play, GROUP_RESOURCE, GROUP, {"errors.deadletterqueue.topic.name": name})
            assert code == ErrorCode.INVALID_CONFIG
        assert alter(play, GROUP_RESOURCE, GROUP, {"errors.deadletterqueue.topic.name": "orders"}) == 0
        write(play, 1)
        reject_one(play)
        play.until(lambda: counts(play).failures >= 3, "a name without the prefix is not written to")


def test_dead_letters_are_given_up_only_when_nothing_else_can_be_delivered() -> None:
    with dead_letter_stage(11, topic=None) as play:
        assert alter(play, GROUP_RESOURCE, GROUP, {"share.partition.max.record.locks": "100"}) == 0
        write(play, *([50] * 4))
        ann = worker(play)
        rejected = 0
        for _ in range(60):
            for first, last, _ in ann.poll(max_wait_ms=1_000):
                assert ann.acknowledge((first, last, [REJECT])) is ErrorCode.NONE
                rejected += last - first + 1
            if rejected == 200:
                break
        assert rejected == 200, "the share partition goes on"
        assert counts(play).given_up >= 50


def test_a_group_without_the_setting_has_no_dead_letters() -> None:
    with dead_letter_stage(12, group={"share.delivery.count.limit": "2"}) as play:
        write(play, 1)
        reject_one(play)
        play.until(lambda: start_offset(play) == 1, "the record is archived")
        assert not letters(play)


def test_what_waits_ends_when_the_setting_is_taken_back() -> None:
    with dead_letter_stage(13, topic=None) as play:
        write(play, 1)
        reject_one(play)
        play.until(lambda: counts(play).failures >= 2, "it is tried again")
        assert alter(play, GROUP_RESOURCE, GROUP, {"errors.deadletterqueue.topic.name": ""}) == 0
        play.until(lambda: start_offset(play) == 1, "the record is archived", 60.0)
        assert counts(play).given_up == 1


def test_offsets_that_are_delivered_again_have_another_copy() -> None:
    """AlterShareGroupOffsets begins another state: its dead letters are not those of the state before."""
    with dead_letter_stage(14) as play:
        write(play, 1)
        ann = reject_one(play)
        play.until(lambda: offsets(play) == [0], "the dead letter is written")
        play.until(lambda: start_offset(play) == 1, "the share partition goes on")
        ann.vanish()
        node = play.leader("tasks").node
        assert node is not None
        play.until(lambda: not list(node.share_delivery.loaded()), "the share partition is let go", 60.0)
        begin_state(play, state_epoch=2)
        killing = KillAt(play, "before InitProducerId")
        bob = worker(play, "bob")
        assert bob.poll(max_wait_ms=10_000) == [(0, 0, 1)]
        bob.begin_acknowledge((0, 0, [REJECT]))
        play.until(lambda: killing.is_done, "the leader dies with what is to be copied")
        play.rest(1.0)
        killing.node.start()
        play.wait_rejoined()
        worker(play, "cleo").poll(max_wait_ms=10_000)
        play.until(lambda: offsets(play) == [0, 0], "the second one is written, too", 60.0)


# Kills


class Rejections:
    """Records that are rejected while leaders are killed: which of them must have a copy."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.written = 0
        self.rejected: set[int] = set()
        """Rejected for sure."""
        self.members = 0

    def reject(self, size: int, times: int = 1) -> None:
        """Write some records, and reject what comes, several times if the broker lives. Answers may be missing."""
        write(self.play, *[size] * times)
        self.written += size * times
        for _ in range(times):
            self.members += 1
            leader = self.play.leader("tasks")
            if leader.is_up:
                self.reject_some(Worker(self.play, leader, f"member-{self.members}"), size)

    def reject_some(self, ann: Worker, count: int) -> None:
        for first, last, _ in self.acquired(ann, 20_000, max_records=count, share_acquire_mode=1):
            pending = ann.begin_acknowledge((first, last, [REJECT]))
            self.play.until(lambda answers=pending: answers, "an answer, or that there is none", 90.0)
            if pending[0] is not None and not pending[0].error_code:
                partition = pending[0].responses[0].partitions[0]
                if not partition.error_code:
                    self.rejected.update(range(first, last + 1))

    def acquired(self, ann: Worker, wait_ms: int, **fields: int) -> list[tuple[int, int, int]]:
        """Return what a member gets; nothing if the broker dies, or the share coordinator does not answer."""
        answers = ann.begin_fetch(max_wait_ms=wait_ms, **fields)
        self.play.until(lambda: answers, "an answer, or that there is none", 90.0)
        return [
            (got.first_offset, got.last_offset, got.delivery_count)
            for topic in (() if answers[0] is None else answers[0].responses)
            for each in topic.partitions
            for got in each.acquired_records
        ]

    def finish(self) -> None:
        """Reject what is left, wait for the copies, and see that each record has one."""
        for _ in range(100):
            self.members += 1
            ann = worker(self.play, f"member-{self.members}")
            got = self.acquired(ann, 3_000)
            for first, last, _ in got:
                assert not self.rejected & set(range(first, last + 1)), "a rejected record came again"
                if ann.acknowledge((first, last, [REJECT])) is ErrorCode.NONE:
                    self.rejected.update(range(first, last + 1))
            if not got and len(set(offsets(self.play))) == self.written:
                break
        self.play.rest(20.0)
        assert Counter(offsets(self.play)) == Counter(range(self.written)), "not one copy of each"


@pytest.mark.parametrize("nth", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_every_dead_letter_has_one_copy_though_the_leader_is_killed_at_every_point(nth: int) -> None:
    with dead_letter_stage(20 + nth) as play:
        story = Rejections(play)
        story.reject(1)
        for point in POINTS:
            killing = KillAt(play, point, nth=nth)
            story.reject(2, times=1 + 2 * nth)
            play.rest(8.0)
            assert killing.is_done or nth, f"{point} was not reached"
            killing.is_done = True
            killing.node.kill()
            play.rest(1.0)
            killing.node.start()
            play.wait_rejoined()
        story.finish()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
def test_every_dead_letter_has_one_copy_while_leaders_and_coordinators_die(seed: int) -> None:
    rng = random.Random(seed)
    with dead_letter_stage(40 + seed, nodes=3) as play:
        story = Rejections(play)
        story.reject(2)
        play.until(lambda: len(offsets(play)) == 2, "both have a copy", 60.0)
        down: SimNode | None = None
        for _ in range(6):
            if down is not None:
                if not down.is_up:
                    down.start()
                play.wait_rejoined()
            point = rng.choice((*POINTS, "coordinator", "topic", "state"))
            if point in POINTS:
                killing = KillAt(play, point)
                down = killing.node
                story.reject(rng.randint(1, 4))
                play.rest(rng.uniform(0.0, 5.0))
                down.kill()
            else:
                names = {"coordinator": "__transaction_state", "topic": DEAD, "state": "__share_group_state"}
                story.reject(rng.randint(1, 4))
                play.rest(rng.choice((0.0, 0.005, 0.02, 0.05)))
                down = play.leader(names[point])
                down.kill()
            play.rest(10.0)
        if down is not None and not down.is_up:
            down.start()
        play.wait_rejoined()
        story.finish()


def test_a_leader_that_was_stopped_past_an_election_copies_nothing_again() -> None:
    with dead_letter_stage(60, nodes=3) as play:
        story = Rejections(play)
        story.reject(2)
        play.until(lambda: len(offsets(play)) == 2, "both have a copy", 60.0)
        stopped = play.leader("tasks")
        assert stopped.runtime is not None
        write(play, 3)
        story.written += 3
        ann = worker(play, "late")
        assert ann.poll(max_wait_ms=10_000) == [(2, 4, 1)]
        assert ann.acknowledge((2, 4, [REJECT])) is ErrorCode.NONE
        stopped.runtime.actor.pause()
        play.until(lambda: play.image_of("tasks").leader not in (-1, stopped.node_id), "another leads", 60.0)
        worker(play, "bob").poll(max_wait_ms=10_000)
        play.until(lambda: len(offsets(play)) == 5, "the other leader has copied them", 60.0)
        stopped.runtime.actor.resume()
        play.wait_rejoined()
        story.finish()
