"""Who has a transactional id, and which partitions its transaction holds."""

from __future__ import annotations

import pytest
from tests.unit.coordinators.transaction_story import P0, P1, P2, TIMEOUT_MS, Story, only

from strandline.coordinators.transactions import adding
from strandline.coordinators.transactions.transaction import EPOCH_LAST
from strandline.errors import ErrorCode
from strandline.ids import TopicPartition

FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.fixture
def story() -> Story:
    return Story()


def at_epoch(story: Story, epoch: int) -> tuple[int, int]:
    """The owner of the id, after so many others that it has this epoch."""
    producer = story.owner()
    transaction = story.transaction().with_epoch(epoch, last_epoch=-1, timeout_ms=TIMEOUT_MS, now_ms=story.now_ms)
    story.shard.transactions["x"] = transaction
    return producer[0], epoch


# ---- InitProducerId


def test_each_who_begins_has_the_next_epoch(story: Story) -> None:
    assert story.init() == (101, 0)
    assert story.init() == (101, 1)
    assert story.init("y") == (102, 0)
    story.restart()
    assert story.init() == (101, 2)
    assert story.shard.client_of("x") == ("client", "host")


@pytest.mark.parametrize(
    ("name", "timeout_ms", "producer", "code"),
    [
        ("", 1_000, (-1, -1), ErrorCode.INVALID_REQUEST),
        ("x", 0, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("x", -1, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("x", 900_001, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("x", 1_000, (7, -1), ErrorCode.INVALID_REQUEST),
        ("x", 1_000, (-1, 7), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_makes_no_sense_changes_nothing(
    story: Story, name: str, timeout_ms: int, producer: tuple[int, int], code: ErrorCode
) -> None:
    assert story.init(name, timeout_ms=timeout_ms, producer=producer) is code
    assert not story.log
    assert not story.shard.transactions


def test_a_producer_goes_on_after_an_error_and_may_ask_twice(story: Story) -> None:
    first = story.owner()
    assert story.init(producer=first) == (101, 1)
    assert story.init(producer=first) == (101, 1), "the answer was lost"
    story.restart()
    assert story.init(producer=first) == (101, 1), "and the coordinator, too"
    assert story.init(producer=(101, 1)) == (101, 2)
    assert story.init(producer=first) is FENCED


def test_who_was_replaced_cannot_go_on(story: Story) -> None:
    first = story.owner()
    story.owner()
    assert story.init(producer=first) is FENCED
    assert story.init(producer=(999, 0)) is FENCED
    assert story.transaction().producer_epoch == 1


def test_a_producer_that_the_coordinator_has_forgotten_begins_with_a_new_id(story: Story) -> None:
    assert story.init(producer=(7, 3)) == (101, 0)


def test_epochs_that_are_used_up_give_way_to_a_new_producer_id(story: Story) -> None:
    exhausted = at_epoch(story, EPOCH_LAST - 1)
    assert story.init() == (102, 0)
    assert story.init(producer=exhausted) is FENCED, "another producer has started"


def test_the_owner_of_used_up_epochs_may_ask_twice(story: Story) -> None:
    exhausted = at_epoch(story, EPOCH_LAST - 1)
    assert story.init(producer=exhausted) == (102, 0)
    for _ in range(2):
        story.restart()
        assert story.init(producer=exhausted) == (102, 0)
    assert story.init(producer=(102, 0)) == (102, 1)
    assert story.init(producer=exhausted) is FENCED
    assert story.init(producer=(exhausted[0], 0)) is FENCED, "not even with an epoch that the new id had, too"
    assert story.init(producer=(102, 0)) == (102, 1)


def test_who_begins_aborts_what_is_open_and_comes_again(story: Story) -> None:
    zombie = story.owner()
    story.add(zombie, P0, P1)
    assert story.init() is CONCURRENT
    assert story.state() == "PrepareAbort"
    assert story.init() is CONCURRENT
    (markers,) = story.markers
    assert (markers.producer_epoch, markers.is_commit, markers.partitions) == (1, False, (P0, P1))
    story.write_markers()
    assert story.init() == (101, 2)
    assert story.add(zombie) is FENCED
    assert story.end(zombie) is FENCED
    assert story.told == ["transaction of x aborted: a producer restarted with its transactional id"]


def test_a_late_copy_of_an_init_does_not_abort_what_was_begun_since(story: Story) -> None:
    first = story.owner()
    second = story.init(producer=first)
    assert second == (101, 1)
    story.add((101, 1))
    assert story.init(producer=first) is FENCED
    assert story.state() == "Ongoing"
    assert story.end((101, 1)) == (101, 2)


def test_not_even_one_with_the_producer_id_before(story: Story) -> None:
    exhausted = at_epoch(story, EPOCH_LAST - 1)
    story.add(exhausted)
    assert story.end(exhausted) == (102, 0)
    story.write_markers()
    assert story.init(producer=exhausted) == (102, 0), "the answer to the end was lost"
    story.add((102, 0))
    assert story.init(producer=exhausted) is FENCED
    assert story.end((102, 0)) == (102, 1)


def test_two_who_begin_at_once_get_an_epoch_each_and_the_spare_id_is_used_later(story: Story) -> None:
    story.gives_ids = False
    one, other = story.init_token(), story.init_token()
    story.give_id()
    story.give_id()
    assert [(token.response.producer_id, token.response.producer_epoch) for token in (one, other)] == [
        (101, 0),
        (101, 1),
    ]
    assert story.init("y") == (102, 0)
    assert not story.allocations


def test_without_a_producer_id_to_be_had_the_client_comes_again(story: Story) -> None:
    story.gives_ids = False
    token = story.init_token()
    story.give_id(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert token.response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not story.shard.transactions


# ---- AddPartitionsToTxn


def test_a_transaction_begins_with_its_first_partition_and_takes_more(story: Story) -> None:
    producer = story.owner()
    assert story.add(producer, P0) is ErrorCode.NONE
    began_ms = story.now_ms
    story.now_ms += 10
    assert story.add(producer, P1, P2) is ErrorCode.NONE
    appended = len(story.log)
    assert story.add(producer, P0, P2) is ErrorCode.NONE
    assert len(story.log) == appended, "nothing new, nothing written"
    transaction = story.transaction()
    assert (list(transaction.partitions), transaction.start_ms) == ([P0, P1, P2], began_ms)


@pytest.mark.parametrize("verify_only", [False, True])
def test_only_the_owner_adds(story: Story, verify_only: bool) -> None:
    producer_id, epoch = story.owner()
    before = story.transaction()
    assert story.add((producer_id, epoch + 1), verify_only=verify_only) is FENCED
    assert story.add((producer_id, epoch - 1), verify_only=verify_only) is FENCED
    assert story.add((producer_id + 1, epoch), verify_only=verify_only) is MAPPING
    assert story.add((producer_id, epoch), name="unknown", verify_only=verify_only) is MAPPING
    assert story.add((producer_id, epoch), name="", verify_only=verify_only) is ErrorCode.INVALID_REQUEST
    assert story.transaction() == before


def test_a_leader_asks_whether_its_partition_belongs_to_it(story: Story) -> None:
    producer = story.owner()
    assert story.add(producer, P0, verify_only=True) is ErrorCode.TRANSACTION_ABORTABLE
    story.add(producer, P0)
    assert story.add_token(producer, P0, P1, verify_only=True).response == {
        P0: ErrorCode.NONE,
        P1: ErrorCode.TRANSACTION_ABORTABLE,
    }
    assert story.state() == "Ongoing"
    ended = story.end(producer)
    assert isinstance(ended, tuple)
    assert story.add(producer, P0, verify_only=True) is FENCED
    assert story.add(ended, P0, verify_only=True) is CONCURRENT
    story.write_markers()
    assert story.add(ended, P0, verify_only=True) is ErrorCode.TRANSACTION_ABORTABLE


def test_the_next_transaction_waits_for_the_markers_of_the_last(story: Story) -> None:
    producer = story.owner()
    story.add(producer, P0, P1)
    assert story.end(producer) == (101, 1)
    waiting = [story.add_token((101, 1), P1), story.add_token((101, 1), P2)]
    assert story.add(producer, P1) is FENCED, "one of the last transaction does not wait"
    story.write_markers(count=1)
    assert [token.response for token in waiting] == [None, None]
    story.write_markers()
    assert [only(token.response) for token in waiting] == [ErrorCode.NONE, ErrorCode.NONE]
    assert story.state() == "Ongoing"
    assert list(story.transaction().partitions) == [P1, P2]


def test_a_request_waits_for_markers_a_second_at_most(story: Story) -> None:
    producer = story.owner()
    story.add(producer, P0)
    story.end(producer)
    token = story.add_token((101, 1), P1)
    story.pass_ms(adding.PARKED_MS_MAX - 1)
    assert token.response is None
    story.pass_ms(1)
    assert only(token.response) is CONCURRENT
    story.write_markers()
    assert story.state() == "CompleteCommit"


def test_a_request_does_not_wait_for_markers_that_are_late(story: Story) -> None:
    """Brokers ask about many transactions in one request: each that is stuck holds up the answers to all others."""
    producer = story.owner()
    story.add(producer, P0)
    story.end(producer)
    story.pass_ms(adding.PARKED_MS_MAX // 2)
    token = story.add_token((101, 1), P1)
    story.pass_ms(adding.PARKED_MS_MAX)
    assert only(token.response) is CONCURRENT
    assert story.add((101, 1), P1) is CONCURRENT
    story.restart()
    assert story.add((101, 1), P1) is CONCURRENT
    story.write_markers()
    assert story.add((101, 1), P1) is ErrorCode.NONE


def test_only_so_many_wait(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding, "PARKED_REQUESTS_MAX", 1)
    producer = story.owner()
    story.add(producer, P0)
    story.end(producer)
    assert story.add((101, 1), P1) is None
    assert story.add((101, 1), P2) is CONCURRENT
    story.write_markers()
    assert list(story.transaction().partitions) == [P1]
    story.end((101, 1))
    assert story.add((101, 2), P1) is None


def test_ten_thousand_partitions_fit_and_what_is_too_large_changes_nothing(story: Story) -> None:
    producer = story.owner()
    many = tuple(TopicPartition(f"topic-{number % 100}", number // 100) for number in range(10_000))
    assert story.add(producer, *many) is ErrorCode.NONE
    before = story.transaction()
    long = tuple(TopicPartition(f"{number}".ljust(249, "x"), 0) for number in range(4_000))
    assert story.add(producer, *long) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert story.transaction() == before
    story.restart()
    assert story.transaction() == before
    assert story.end(producer) == (101, 1)
    assert set(story.markers[0].partitions) == set(many)
