"""CommitBatch on a shard: one record decides, and everything else follows from it, for the next coordinator, too."""

from __future__ import annotations

import pytest
from tests.unit.coordinators.transaction_story import P0, P1, P2, TIMEOUT_MS, Story

from strandline.codec.messages.commit_batch_request import SinkTransaction
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.partitioning import KAFKAS_HASH, partition_of_key, partition_of_transactional_id
from strandline.coordinators.transactions import batches
from strandline.coordinators.transactions.sink_records import decision_record, decode_decision, is_of_sink
from strandline.coordinators.transactions.sinks import BatchDecision, TaskTransaction
from strandline.coordinators.transactions.transaction import EPOCH_LAST
from strandline.coordinators.transactions.transaction_records import key_of
from strandline.errors import ErrorCode
from strandline.ids import TopicPartition, sink_key, sink_of

A, B, C = (f"{sink_key('s')}{name}" for name in "abc")
OTHER = f"{sink_key('other')}a"

Producers = dict[str, tuple[int, int]]


@pytest.fixture(params=[0, 1, 2], ids=lambda level: f"level {level}")
def story(request: pytest.FixtureRequest) -> Story:
    return Story(transaction_version=request.param)


def opened(story: Story, *names: str) -> Producers:
    """A transaction of each, open on two partitions."""
    found = {name: story.owner(name) for name in names}
    for name, producer in found.items():
        assert story.add(producer, P0, P1, name=name) is ErrorCode.NONE
    return found


def states(story: Story, *names: str) -> list[str]:
    return [story.state(name) for name in names]


# ---- what is decided


def test_the_listed_are_committed_and_the_others_of_the_sink_aborted(story: Story) -> None:
    producers = opened(story, A, B, C, OTHER, "x")
    answer = story.commit_batch(0, {name: producers[name] for name in (A, B)})
    assert (answer.error_code, answer.already_committed, answer.last_batch_id) == (ErrorCode.NONE, False, 0)
    assert {(each.transactional_id, each.is_commit) for each in story.markers} == {(A, True), (B, True), (C, False)}
    story.write_markers()
    assert states(story, A, B, C) == ["CompleteCommit", "CompleteCommit", "CompleteAbort"]
    assert states(story, OTHER, "x") == ["Ongoing", "Ongoing"]


def test_the_last_batch_is_committed_once(story: Story) -> None:
    producers = opened(story, A)
    assert not story.commit_batch(4, producers).already_committed
    again = story.commit_batch(4, producers)
    assert (again.error_code, again.already_committed, again.last_batch_id) == (ErrorCode.NONE, True, 4)
    story.write_markers()
    written_again = opened(story, B, C)
    assert story.commit_batch(4, {B: written_again[B]}).already_committed
    # What was listed is void; another driver may be at the next batch with the rest.
    story.write_markers()
    assert states(story, A, B, C) == ["CompleteCommit", "CompleteAbort", "Ongoing"]


@pytest.mark.parametrize("restarts", ["no", "yes", "of a compacted log"])
def test_a_late_copy_does_not_touch_the_next_batch(story: Story, restarts: str) -> None:
    """The producers raise no epoch: in the next batch they go on with the one that the copy names."""
    producers = opened(story, A, B)
    story.commit_batch(4, producers)
    story.write_markers()
    for name, producer in producers.items():
        assert story.end(producer, name=name, version=0) == producer
        assert story.add(producer, P0, name=name) is ErrorCode.NONE
    if restarts != "no":
        story.log = last_of_each(story.log) if restarts == "of a compacted log" else story.log
        story.restart()
    records = len(story.log)
    late = story.commit_batch(4, producers)
    assert (late.error_code, late.already_committed, late.last_batch_id) == (ErrorCode.NONE, True, 4)
    assert len(story.log) == records
    assert states(story, A, B) == ["Ongoing", "Ongoing"]
    assert story.commit_batch(5, producers).last_batch_id == 5
    assert {(each.transactional_id, each.is_commit) for each in story.markers} == {(A, True), (B, True)}


def test_a_batch_before_the_last_is_fenced(story: Story) -> None:
    producers = opened(story, A)
    story.commit_batch(4, {})
    story.write_markers()
    late = opened(story, B)
    records = len(story.log)
    answer = story.commit_batch(3, late)
    assert (answer.error_code, answer.last_batch_id) == (ErrorCode.PRODUCER_FENCED, 4)
    assert "batch 4" in answer.error_message
    assert len(story.log) == records
    assert states(story, A, B) == ["CompleteAbort", "Ongoing"]
    assert producers[A] != story.transaction(A)[1:3]


def test_an_empty_batch_moves_the_sink(story: Story) -> None:
    opened(story, A)
    assert story.commit_batch(0, {}).last_batch_id == 0
    story.write_markers()
    assert story.state(A) == "CompleteAbort"
    story.restart()
    assert story.commit_batch(0, {}).already_committed
    assert story.commit_batch(1, {}).last_batch_id == 1


def test_a_batch_may_be_left_out(story: Story) -> None:
    assert story.commit_batch(3, {}).error_code == ErrorCode.NONE
    assert story.commit_batch(9, {}).last_batch_id == 9


# ---- what is refused


def test_nothing_changes_if_one_of_the_listed_is_not_open_so(story: Story) -> None:
    producers = opened(story, A, B, C)
    producer_id, epoch = producers[B]
    empty = story.owner(f"{sink_key('s')}empty")
    refused: list[Producers] = [
        producers | {B: (producer_id, epoch - 1)},
        producers | {B: (producer_id, epoch + 1)},
        producers | {B: (producer_id + 77, epoch)},
        producers | {f"{sink_key('s')}empty": empty},
        producers | {f"{sink_key('s')}unknown": (1, 0)},
    ]
    records = len(story.log)
    for members in refused:
        answer = story.commit_batch(0, members)
        assert (answer.error_code, answer.last_batch_id) == (ErrorCode.INVALID_TXN_STATE, -1)
        assert answer.error_message
    assert len(story.log) == records
    assert states(story, A, B, C) == ["Ongoing"] * 3
    assert story.commit_batch(0, producers).error_code == ErrorCode.NONE


def test_a_transaction_that_timed_out_is_not_committed_any_more(story: Story) -> None:
    producers = opened(story, A, B)
    story.pass_ms(TIMEOUT_MS)
    story.write_markers()
    assert states(story, A, B) == ["CompleteAbort", "CompleteAbort"]
    assert story.commit_batch(0, producers).error_code == ErrorCode.INVALID_TXN_STATE


def test_what_no_state_makes_right(story: Story) -> None:
    producers = opened(story, A, OTHER, "x")
    records = len(story.log)
    twice = [SinkTransaction(A, *producers[A])] * 2
    for answer in (
        story.commit_batch(0, twice),
        story.commit_batch(0, {OTHER: producers[OTHER]}),
        story.commit_batch(0, {"x": producers["x"]}),
        story.commit_batch(-1, {}),
        story.commit_batch(0, {}, sink=""),
        story.commit_batch(0, {}, sink="a#b"),
        story.commit_batch(0, {}, sink="s" * (batches.SINK_ID_CHARACTERS_MAX + 1)),
    ):
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert answer.error_message
    assert len(story.log) == records


def test_a_thousand_tasks_on_five_hundred_partitions_fit() -> None:
    """The decision names producers, not partitions."""
    decision = BatchDecision("0123456789abcdef" * 2, 10**12, 10**13, members(1_000))
    record = decision_record(decision)
    assert record.size_bytes < 60_000
    assert decode_decision(record.key, record.value) == (decision.sink_id, decision)


def test_what_does_not_fit_is_refused_before_anything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(record_bytes_max=200)
    producers = opened(story, A, B, C)
    records = len(story.log)
    long = {name: producers[name] for name in (A, B, C)}
    for number in range(8):
        name = f"{sink_key('s')}{number}{'n' * 20}"
        long |= opened(story, name)
        records = len(story.log)
    assert story.commit_batch(0, long).error_code == ErrorCode.MESSAGE_TOO_LARGE
    monkeypatch.setattr(batches, "TRANSACTIONS_MAX", 2)
    assert story.commit_batch(0, producers).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert len(story.log) == records
    assert states(story, A, B, C) == ["Ongoing"] * 3


def members(count: int) -> tuple[TaskTransaction, ...]:
    sink = sink_key("0123456789abcdef" * 2)
    return tuple(TaskTransaction(f"{sink}{number:032x}", 10**6 + number, 3) for number in range(count))


# ---- the producers


@pytest.mark.parametrize("version", [0, 2])
def test_a_producer_of_a_sink_cannot_commit_by_itself(story: Story, version: int) -> None:
    producers = opened(story, A)
    assert story.end(producers[A], name=A, version=version) is ErrorCode.INVALID_TXN_STATE
    assert story.state(A) == "Ongoing"
    assert isinstance(story.end(producers[A], commit=False, name=A, version=version), tuple)
    story.write_markers()
    assert story.state(A) == "CompleteAbort"


def test_a_producer_of_version_1_goes_on_in_its_epoch(story: Story) -> None:
    producers = opened(story, A)
    for batch_id in range(3):
        story.commit_batch(batch_id, producers)
        assert story.end(producers[A], name=A, version=0) is ErrorCode.CONCURRENT_TRANSACTIONS
        story.write_markers()
        assert story.end(producers[A], name=A, version=0) == producers[A]
        assert story.end(producers[A], name=A, version=0) == producers[A]
        assert story.add(producers[A], P2, name=A) is ErrorCode.NONE


def test_a_producer_of_version_2_hears_of_an_epoch_of_its_own(story: Story) -> None:
    producers = opened(story, A)
    story.commit_batch(0, producers)
    assert story.end(producers[A], name=A) is ErrorCode.CONCURRENT_TRANSACTIONS
    story.write_markers()
    producer_id, epoch = producers[A]
    assert story.end(producers[A], commit=False, name=A) is ErrorCode.INVALID_TXN_STATE
    assert story.end(producers[A], name=A) == (producer_id, epoch + 1)
    # Again, since the answer was lost; at level 0 the log does not keep what that takes.
    assert story.end(producers[A], name=A) == (producer_id, epoch + 1)
    assert story.add((producer_id, epoch), P0, name=A) is ErrorCode.PRODUCER_FENCED
    assert story.add((producer_id, epoch + 1), P0, name=A) is ErrorCode.NONE
    assert story.commit_batch(1, {A: (producer_id, epoch)}).error_code == ErrorCode.INVALID_TXN_STATE
    assert story.commit_batch(1, {A: (producer_id, epoch + 1)}).error_code == ErrorCode.NONE


def test_the_last_epoch_of_a_producer_id() -> None:
    """Committed as any other; the producer of version 2 goes on with another id, and an abort needs none."""
    story = Story(transaction_version=2)
    producers = opened(story, A, B)
    for name, producer in producers.items():
        last = story.transaction(name)._replace(producer_epoch=EPOCH_LAST - 1)
        story.step_record(last)
        producers[name] = producer[0], EPOCH_LAST - 1
    story.restart()
    story.gives_ids = False
    assert story.commit_batch(0, {A: producers[A]}).error_code == ErrorCode.NONE
    assert not story.allocations
    story.write_markers()
    assert states(story, A, B) == ["CompleteCommit", "CompleteAbort"]
    story.gives_ids = True
    heir = story.end(producers[A], name=A)
    assert isinstance(heir, tuple)
    assert heir[0] != producers[A][0]
    assert heir[1] == 0
    assert story.end(producers[A], name=A) == heir
    assert story.init(B) != producers[B]


def test_an_aborted_producer_is_fenced(story: Story) -> None:
    producers = opened(story, A)
    story.commit_batch(0, {})
    story.write_markers()
    assert story.end(producers[A], name=A, version=0) is ErrorCode.PRODUCER_FENCED
    assert story.end(producers[A], name=A, version=2) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
    assert story.add(producers[A], name=A) is ErrorCode.PRODUCER_FENCED


def test_while_a_decision_is_carried_out_all_wait(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "ROLLED_PER_STEP_MAX", 1)
    producers = opened(story, A, B, C)
    story.commit_batch(0, producers)
    assert [each.transactional_id for each in story.markers] == [A]
    # Decided, and neither in the log by itself nor spread.
    assert story.state(C) == "PrepareCommit"
    assert story.end(producers[C], name=C, version=0) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert story.init(C) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert story.add(producers[C], name=C) is None
    assert story.commit_batch(1, {}).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert story.delete_sink().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert story.commit_batch(0, {}).already_committed
    story.pass_ms(1)
    assert {each.transactional_id for each in story.markers} == {A, B, C}
    story.write_markers()
    assert states(story, A, B) == ["CompleteCommit"] * 2
    assert story.commit_batch(1, {}).error_code == ErrorCode.NONE


def test_large_transactions_are_carried_out_in_shares() -> None:
    story = Story()
    many = tuple(TopicPartition("t", index) for index in range(batches.ROLLED_PARTITIONS_PER_STEP_MAX // 2))
    producers = {name: story.owner(name) for name in (A, B, C)}
    for name, producer in producers.items():
        assert story.add(producer, *many, name=name) is ErrorCode.NONE
    story.commit_batch(0, producers)
    assert [each.transactional_id for each in story.markers] == [A, B]
    story.pass_ms(1)
    assert [each.transactional_id for each in story.markers] == [A, B, C]


# ---- another coordinator takes over


@pytest.mark.parametrize("compacted", [False, True], ids=["", "compacted"])
def test_a_decision_is_carried_out_by_the_coordinator_that_finds_it(story: Story, compacted: bool) -> None:
    """With all, some or none of the records that follow from it."""
    producers = opened(story, A, B, C)
    before = len(story.log)
    story.commit_batch(0, {A: producers[A], B: producers[B]})
    whole = list(story.log)
    assert is_of_sink(whole[before].key)
    assert len(whole) == before + 4
    for length in range(before, len(whole) + 1):
        story.log = last_of_each(whole[:length]) if compacted else whole[:length]
        story.restart()
        if length == before:
            assert states(story, A, B, C) == ["Ongoing"] * 3
            continue
        assert states(story, A, B, C) == ["PrepareCommit", "PrepareCommit", "PrepareAbort"]
        # Each has its own record by now: the next decision may take the place of this one.
        assert {key_of(name) for name in (A, B, C)} <= {record.key for record in story.log[before:]} or compacted
        assert {(each.transactional_id, each.is_commit) for each in story.markers} == {
            (A, True),
            (B, True),
            (C, False),
        }
        story.write_markers()
        assert states(story, A, B, C) == ["CompleteCommit", "CompleteCommit", "CompleteAbort"]
        assert story.commit_batch(0, producers).already_committed
        assert story.end(producers[A], name=A, version=0) == producers[A]


def test_a_decision_says_nothing_of_transactions_that_came_later(story: Story) -> None:
    producers = opened(story, A, B)
    story.commit_batch(0, {A: producers[A]})
    story.write_markers()
    assert story.add(producers[A], P2, name=A) is ErrorCode.NONE
    heir = story.owner(B)
    assert story.add(heir, P2, name=B) is ErrorCode.NONE
    for log in (list(story.log), last_of_each(story.log)):
        story.log = log
        story.restart()
        assert states(story, A, B) == ["Ongoing", "Ongoing"]
        assert not story.markers


def test_what_follows_from_a_decision_is_asked_for_before_the_next_one(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction keeps the last decision of a sink: what the one before it said must stand by itself."""
    monkeypatch.setattr(batches, "ROLLED_PER_STEP_MAX", 1)
    producers = opened(story, A, B, C)
    story.commit_batch(0, producers)
    while story.commit_batch(1, {}).error_code:
        story.pass_ms(1)
    story.log = last_of_each(story.log)
    story.restart()
    story.pass_ms(10)
    assert states(story, A, B, C) == ["PrepareCommit"] * 3


def last_of_each(log: list[CoordinatorRecord]) -> list[CoordinatorRecord]:
    """What compaction leaves."""
    last = {record.key: index for index, record in enumerate(log)}
    return [record for index, record in enumerate(log) if last[record.key] == index]


# ---- the life of a sink


def test_a_sink_outlives_its_transactional_ids() -> None:
    story = Story(id_expiration_ms=1_000, id_expiration_check_interval_ms=100)
    story.commit_batch(7, opened(story, A))
    story.write_markers()
    opened(story, OTHER)
    story.pass_ms(TIMEOUT_MS)
    story.write_markers()
    story.pass_ms(10 * TIMEOUT_MS)
    assert not story.shard.transactions
    # One that never had a batch is nothing but its ids.
    assert list(story.shard.sinks) == ["s"]
    story.log = last_of_each(story.log)
    story.restart()
    assert story.commit_batch(7, {}).already_committed


def test_a_deleted_sink_is_forgotten_with_all_it_had(story: Story) -> None:
    producers = opened(story, A, B, C, OTHER)
    story.commit_batch(3, {A: producers[A], B: producers[B]})
    story.write_markers()
    assert story.add(producers[A], P0, name=A) is ErrorCode.NONE
    assert story.delete_sink().was_known
    assert {(each.transactional_id, each.is_commit) for each in story.markers} == {(A, False)}
    story.write_markers()
    assert list(story.shard.transactions) == [OTHER]
    assert list(story.shard.sinks) == ["other"]
    story.log = last_of_each(story.log)
    story.restart()
    assert list(story.shard.transactions) == [OTHER]
    assert not story.delete_sink().was_known
    assert story.commit_batch(0, {}).last_batch_id == 0


# ---- what the driver has kept with a batch


def test_a_note_is_kept_until_the_next_batch(story: Story) -> None:
    assert story.commit_batch(0, opened(story, A), note=b"zero").error_code == ErrorCode.NONE
    story.write_markers()
    # A batch that is there keeps the note that it has.
    assert story.commit_batch(0, {}, note=b"zero again").already_committed
    assert story.shard.sinks["s"].note == b"zero"
    story.log = last_of_each(story.log)
    story.restart()
    assert story.shard.sinks["s"].note == b"zero"
    story.commit_batch(1, {})
    assert story.shard.sinks["s"].note == b""
    story.restart()
    assert story.shard.sinks["s"].note == b""
    story.commit_batch(2, {}, note=b"two")
    assert story.delete_sink().was_known
    assert not story.shard.sinks


def test_a_record_from_before_there_were_notes_is_read() -> None:
    decision = BatchDecision("s", 7, 10**13, (TaskTransaction(A, 5, 0),))
    record = decision_record(decision)
    assert record.value is not None
    # The last byte says how many tagged fields follow: none.
    assert record.value[-1] == 0
    assert decode_decision(record.key, record.value) == ("s", decision)
    noted = decision_record(decision._replace(note=b"n" * 1000))
    assert decode_decision(noted.key, noted.value) == ("s", decision._replace(note=b"n" * 1000))


def test_a_note_that_is_too_large_is_refused_before_anything_is_written(story: Story) -> None:
    producers = opened(story, A)
    records = len(story.log)
    answer = story.commit_batch(0, producers, note=b"n" * (batches.NOTE_BYTES_MAX + 1))
    assert (answer.error_code, answer.last_batch_id) == (ErrorCode.MESSAGE_TOO_LARGE, -1)
    assert "note" in answer.error_message
    assert len(story.log) == records
    small = Story(record_bytes_max=200)
    assert small.commit_batch(0, {}, note=b"n" * 300).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert not small.log
    assert story.commit_batch(0, producers, note=b"n" * batches.NOTE_BYTES_MAX).error_code == ErrorCode.NONE


def test_the_largest_note_fits_beside_the_longest_list() -> None:
    record = decision_record(BatchDecision("0123456789abcdef" * 2, 0, 0, members(batches.TRANSACTIONS_MAX)))
    assert record.size_bytes + batches.NOTE_BYTES_MAX < Story().config.record_bytes_max


def test_a_batch_that_expects_another_one_before_it_is_refused(story: Story) -> None:
    producers = opened(story, A)
    assert story.commit_batch(3, {}, expected=2).error_code == ErrorCode.PRODUCER_FENCED
    assert story.state(A) == "Ongoing"
    assert story.commit_batch(3, producers, expected=-1).error_code == ErrorCode.NONE
    story.write_markers()
    records = len(story.log)
    for wrong in (-1, 2, 4, 5):
        answer = story.commit_batch(5, {}, expected=wrong)
        assert (answer.error_code, answer.last_batch_id) == (ErrorCode.PRODUCER_FENCED, 3)
        assert "batch 3" in answer.error_message
    assert len(story.log) == records
    assert story.commit_batch(5, {}, expected=3).last_batch_id == 5
    # The answer was lost.
    assert story.commit_batch(5, {}, expected=3).already_committed
    # And the driver of the batch between is late.
    assert story.commit_batch(4, {}).error_code == ErrorCode.PRODUCER_FENCED


# ---- where ids live


def test_ids_of_a_sink_live_together_and_all_others_where_kafka_has_them() -> None:
    def home(transactional_id: str) -> int:
        return partition_of_transactional_id(transactional_id, partition_count=50, hash_level=KAFKAS_HASH)

    assert {home(f"{sink_key('s')}{n}") for n in range(100)} == {home(sink_key("s"))}
    sinks = {home(sink_key(f"{n}")) for n in range(200)}
    assert len(sinks) > 30
    for name in ("a#b", "#", "x__strandline.sink.s#1", "__strandline.sinks#1", "orders"):
        assert home(name) == partition_of_key(name, partition_count=50, hash_level=KAFKAS_HASH)
        assert sink_of(name) is None
    assert sink_of(sink_key("s") + "1#2") == "s"
    assert sink_of("__strandline.sink.#1") is None
