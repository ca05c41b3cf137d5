"""How transactions end: once, as it was decided, for every partition; whatever comes late, twice or from the past."""

from __future__ import annotations

import pytest
from tests.unit.coordinators.test_transactions import CONCURRENT, FENCED, MAPPING, at_epoch
from tests.unit.coordinators.transaction_story import P0, P1, P2, Story

from strandline.coordinators.groups.events import AppendWhole
from strandline.coordinators.transactions.ending import decide
from strandline.coordinators.transactions.step_context import TransactionStepContext
from strandline.coordinators.transactions.transaction import EPOCH_LAST
from strandline.coordinators.transactions.transaction_records import decode_transaction
from strandline.errors import ErrorCode

INVALID_STATE = ErrorCode.INVALID_TXN_STATE


@pytest.fixture
def story() -> Story:
    return Story()


def opened(story: Story, name: str = "x") -> tuple[int, int]:
    producer = story.owner(name)
    assert story.add(producer, P0, P1, name=name) is ErrorCode.NONE
    return producer


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(("version", "epoch_after"), [(0, 0), (2, 1)])
def test_a_decision_is_in_the_log_then_markers_then_it_is_complete(
    story: Story, commit: bool, version: int, epoch_after: int
) -> None:
    producer = opened(story)
    word = "Commit" if commit else "Abort"
    assert story.end(producer, commit=commit, version=version) == (101, epoch_after)
    assert story.state() == f"Prepare{word}"
    (markers,) = story.markers
    assert markers == ("x", 101, epoch_after, story.epoch, commit, (P0, P1), version, markers.decision)
    story.write_markers(count=1)
    assert story.state() == f"Prepare{word}"
    story.write_markers()
    assert story.state() == f"Complete{word}"
    assert not story.transaction().partitions


@pytest.mark.parametrize("version", [0, 2])
def test_the_next_coordinator_goes_on_with_what_was_decided(story: Story, version: int) -> None:
    producer = opened(story)
    story.end(producer, version=version)
    story.write_markers(count=1)
    old = story.markers[0]
    story.restart()
    (markers,) = story.markers
    assert (markers.is_commit, markers.partitions, markers.coordinator_epoch) == (True, (P0, P1), 2)
    assert (markers.producer_epoch, markers.transaction_version) == (old.producer_epoch, version)
    story.write_markers()
    assert story.state() == "CompleteCommit"
    story.restart()
    assert not story.markers


def test_late_news_of_the_last_markers_say_nothing_about_the_next(story: Story) -> None:
    producer = opened(story)
    story.end(producer, version=0)
    (late,) = story.markers
    story.write_markers()
    story.add(producer, P0, P1)
    story.end(producer, version=0)
    story.written(late, late.partitions)
    assert story.state() == "PrepareCommit"
    story.write_markers()
    assert story.state() == "CompleteCommit"
    story.written(late, late.partitions)


# ---- EndTxn, version 2


def test_a_late_end_never_ends_the_next_transaction(story: Story) -> None:
    first = opened(story)
    assert story.end(first) == (101, 1)
    story.write_markers()
    assert story.add((101, 1), P2) is ErrorCode.NONE
    for commit in (True, False):
        assert story.end(first, commit=commit) is FENCED
    assert story.state() == "Ongoing"
    assert story.end((101, 1), commit=False) == (101, 2)


def test_an_end_that_is_asked_for_twice_happens_once(story: Story) -> None:
    producer = opened(story)
    assert story.end(producer) == (101, 1)
    assert story.end(producer) is CONCURRENT
    story.restart()
    assert story.end(producer) is CONCURRENT
    story.write_markers()
    written = len(story.log)
    assert story.end(producer) == (101, 1)
    assert story.end(producer, commit=False) is INVALID_STATE
    story.restart()
    assert story.end(producer) == (101, 1)
    assert len(story.log) == written


def test_the_epoch_before_an_end_that_raised_none_is_of_another_producer(story: Story) -> None:
    """The previous owner must not take the commit of its successor for its own."""
    former = story.owner()
    producer = opened(story)
    assert producer == (101, 1)
    assert story.end(producer, version=0) == (101, 1)
    story.write_markers()
    for commit in (True, False):
        assert story.end(former, commit=commit) is FENCED
    story.restart()
    assert story.end(former) is FENCED
    assert story.end(producer, version=0) == (101, 1)


def test_who_goes_on_before_the_markers_are_written_is_not_fenced(story: Story) -> None:
    producer = opened(story)
    story.end(producer)
    assert story.end((101, 1), commit=False) is CONCURRENT
    story.write_markers()
    assert story.end((101, 1), commit=False) == (101, 2)


@pytest.mark.parametrize("ended", [None, True, False])
def test_an_abort_without_a_transaction_raises_the_epoch_and_a_commit_is_refused(
    story: Story, ended: bool | None
) -> None:
    """Kafka's table for a client of version 2."""
    producer = story.owner()
    if ended is not None:
        story.add(producer)
        story.end(producer, commit=ended)
        story.write_markers()
    producer = story.transaction().identity_after
    assert story.end(producer, commit=True) is INVALID_STATE
    before = (producer[0], producer[1] - 1)
    if ended is None:
        assert story.end(before, commit=True) is FENCED
        assert story.end(before, commit=False) is FENCED
    else:
        assert story.end(before, commit=ended) == producer
        assert story.end(before, commit=not ended) is INVALID_STATE
    assert story.end(producer, commit=False) == (producer[0], producer[1] + 1)
    assert story.state() == "CompleteAbort"
    assert not story.markers


def test_an_end_by_anybody_else_changes_nothing(story: Story) -> None:
    producer_id, epoch = opened(story)
    before = story.transaction()
    for version in (0, 2):
        assert story.end((producer_id, epoch + 1), version=version) is FENCED
        assert story.end((producer_id, epoch - 1), version=version) is FENCED
        assert story.end((producer_id + 1, epoch), version=version) is MAPPING
        assert story.end((-1, -1), version=version) is MAPPING
        assert story.end((producer_id, epoch), name="unknown", version=version) is MAPPING
        assert story.end((producer_id, epoch), name="", version=version) is ErrorCode.INVALID_REQUEST
    assert story.transaction() == before


def test_the_last_epoch_is_followed_by_a_new_producer_id(story: Story) -> None:
    exhausted = at_epoch(story, EPOCH_LAST - 1)
    story.add(exhausted, P0)
    assert story.end(exhausted) == (102, 0)
    assert (story.markers[0].producer_id, story.markers[0].producer_epoch) == (101, EPOCH_LAST)
    assert story.end(exhausted) is CONCURRENT
    assert story.end((102, 0), commit=False) is CONCURRENT
    story.restart()
    waiting = story.add((102, 0), P1)
    assert waiting is None
    story.write_markers()
    assert list(story.transaction().partitions) == [P1]
    assert story.end((102, 0)) == (102, 1)


def test_the_answer_with_the_new_producer_id_may_get_lost(story: Story) -> None:
    exhausted = at_epoch(story, EPOCH_LAST - 1)
    story.add(exhausted, P0)
    story.end(exhausted)
    story.write_markers()
    for _ in range(2):
        assert story.end(exhausted) == (102, 0)
        assert story.end(exhausted, commit=False) is INVALID_STATE
        story.restart()
    story.add((102, 0), P0)
    assert story.end(exhausted) is FENCED


def test_an_end_waits_for_its_producer_id_and_may_be_too_late_then(story: Story) -> None:
    exhausted = at_epoch(story, EPOCH_LAST - 1)
    story.add(exhausted, P0)
    story.gives_ids = False
    token, again = story.end_token(exhausted), story.end_token(exhausted, commit=False)
    assert story.state() == "Ongoing"
    story.give_id()
    assert (token.response.producer_id, token.response.producer_epoch) == (102, 0)
    assert again.response is None
    story.give_id()
    assert again.response.error_code == CONCURRENT
    assert story.state() == "PrepareCommit"


def test_without_a_producer_id_to_be_had_nothing_is_decided(story: Story) -> None:
    exhausted = at_epoch(story, EPOCH_LAST - 1)
    story.add(exhausted, P0)
    story.gives_ids = False
    token = story.end_token(exhausted)
    story.give_id(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert token.response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert story.state() == "Ongoing"


# ---- EndTxn, before version 2


def test_before_version_2_the_same_end_may_come_again_and_another_may_not(story: Story) -> None:
    producer = opened(story)
    assert story.end(producer, version=0) == producer
    for commit in (True, False):
        assert story.end(producer, commit=commit, version=0) is CONCURRENT
    story.write_markers()
    assert story.end(producer, version=0) == producer
    assert story.end(producer, commit=False, version=0) is INVALID_STATE
    assert story.init(producer=producer) == (101, 1)
    for commit in (True, False):
        assert story.end((101, 1), commit=commit, version=0) is INVALID_STATE


@pytest.mark.parametrize("level", [0, 1])
def test_a_client_of_version_2_gets_its_epochs_whatever_the_level_of_the_cluster_is(level: int) -> None:
    """A cluster may be set back under it. Since it begins with sequence 0 after each end, in an epoch that it had it
    would send what partitions take for repetitions."""
    story = Story(transaction_version=level)
    producer = opened(story)
    assert story.end(producer, version=2) == (101, 1)
    assert story.markers[0].producer_epoch == 1
    story.restart()
    story.write_markers()
    assert story.add((101, 1), P0) is ErrorCode.NONE
    assert story.end((101, 1), version=2) == (101, 2)
    story.write_markers()
    assert story.end((101, 1), version=2) == (101, 2)


def test_a_cluster_at_version_0_writes_records_that_every_kafka_reads() -> None:
    story = Story(transaction_version=0)
    producer = opened(story)
    story.end(producer, version=2)
    story.restart()
    assert {record.value[:2] for record in story.log if record.value} == {b"\0\0"}
    story.write_markers()
    assert story.state() == "CompleteCommit"


# ---- many at once


def test_many_transactions_are_decided_by_one_append(story: Story) -> None:
    names = ["a", "b", "c"]
    for name in names:
        opened(story, name)
    step = TransactionStepContext(story.now_ms, story.shard._known, story.config, coordinator_epoch=1)
    decide(step, [story.transaction(name) for name in names], is_commit=True, transaction_version=2)
    append, *markers = step.effects
    assert isinstance(append, AppendWhole)
    decided = [decode_transaction(*record)[1] for record in append.records]
    assert [(each.transactional_id, each.status.title) for each in decided if each] == [
        (name, "PrepareCommit") for name in names
    ]
    assert [each.transactional_id for each in markers] == names  # type: ignore[union-attr]
