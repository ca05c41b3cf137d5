"""What time does to transactions and to transactional ids, and how others see them."""

from __future__ import annotations

import pytest
from tests.unit.coordinators.test_transaction_ending import opened
from tests.unit.coordinators.test_transactions import CONCURRENT, FENCED, at_epoch
from tests.unit.coordinators.transaction_story import P0, P1, TIMEOUT_MS, Story

from strandline.coordinators.groups.consumer.regex_subscriptions import matcher
from strandline.coordinators.groups.events import TimerFired
from strandline.coordinators.transactions import timeouts
from strandline.coordinators.transactions.transaction import EPOCH_LAST
from strandline.errors import ErrorCode

EXPIRATION_MS = 3_600_000
CHECK_MS = 60_000


@pytest.fixture
def story() -> Story:
    return Story(id_expiration_ms=EXPIRATION_MS, id_expiration_check_interval_ms=CHECK_MS)


# ---- transactions


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced(version: int) -> None:
    story = Story(transaction_version=version)
    producer = opened(story)
    story.pass_ms(TIMEOUT_MS - 1)
    assert story.state() == "Ongoing"
    story.pass_ms(1)
    assert story.state() == "PrepareAbort"
    (markers,) = story.markers
    assert (markers.producer_epoch, markers.transaction_version) == (1, 2 if version == 2 else 0)
    assert story.add(producer) is FENCED
    story.write_markers()
    assert story.add(producer) is FENCED
    assert story.init(producer=producer) == (FENCED if version == 1 else (101, 1))
    assert story.told == [f"transaction of x aborted: it was open for longer than its timeout of {TIMEOUT_MS} ms"]


def test_a_client_of_version_2_may_abort_what_was_aborted_and_go_on(story: Story) -> None:
    producer = opened(story)
    story.pass_ms(TIMEOUT_MS)
    assert story.end(producer, commit=False) is CONCURRENT
    story.write_markers()
    assert story.end(producer, commit=True) is ErrorCode.INVALID_TXN_STATE
    assert story.end(producer, commit=False) == (101, 1)
    assert story.add((101, 1)) is ErrorCode.NONE


def test_the_timeout_restarts_with_each_transaction(story: Story) -> None:
    producer = opened(story)
    story.pass_ms(TIMEOUT_MS - 1)
    story.end(producer)
    story.write_markers()
    story.add((101, 1))
    story.pass_ms(TIMEOUT_MS - 1)
    assert story.state() == "Ongoing"
    story.pass_ms(1)
    assert story.state() == "PrepareAbort"


@pytest.mark.parametrize(("before_ms", "set_ms", "remaining_ms"), [(20_000, 0, 40_000), (20_000, -7_200_000, 60_000)])
def test_the_next_coordinator_gives_what_is_left_but_never_more_than_the_timeout(
    story: Story, before_ms: int, set_ms: int, remaining_ms: int
) -> None:
    opened(story)
    story.pass_ms(before_ms)
    story.now_ms += set_ms
    story.restart()
    story.pass_ms(remaining_ms - 1)
    assert story.state() == "Ongoing"
    story.pass_ms(1)
    assert story.state() == "PrepareAbort"


def test_a_timeout_that_passed_without_a_coordinator_is_noticed_at_once(story: Story) -> None:
    opened(story)
    story.now_ms += 2 * TIMEOUT_MS
    story.restart()
    story.pass_ms(0)
    assert story.state() == "PrepareAbort"


def test_a_timeout_in_the_last_epoch_gets_a_new_producer_id(story: Story) -> None:
    exhausted = at_epoch(story, EPOCH_LAST - 1)
    story.add(exhausted, P0)
    story.pass_ms(TIMEOUT_MS)
    story.write_markers()
    assert story.transaction().identity_after == (102, 0)
    assert story.end(exhausted, commit=False) == (102, 0)


def test_a_timeout_without_a_producer_id_to_be_had_comes_again(story: Story) -> None:
    exhausted = at_epoch(story, EPOCH_LAST - 1)
    story.add(exhausted, P0)
    story.gives_ids = False
    story.pass_ms(TIMEOUT_MS)
    story.give_id(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert story.state() == "Ongoing"
    story.gives_ids = True
    story.pass_ms(timeouts.NO_ID_RETRY_MS)
    assert story.state() == "PrepareAbort"


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_timeout_that_waited_for_a_producer_id_leaves_the_next_transaction_alone(
    story: Story, error: ErrorCode
) -> None:
    exhausted = at_epoch(story, EPOCH_LAST - 1)
    story.add(exhausted, P0)
    story.gives_ids = False
    story.pass_ms(TIMEOUT_MS)
    token = story.end_token(exhausted)
    story.allocations.reverse()
    story.give_id()
    next_producer = token.response.producer_id, token.response.producer_epoch
    story.write_markers()
    story.add(next_producer, P1)
    story.give_id(error)
    story.pass_ms(TIMEOUT_MS - 1)
    assert story.state() == "Ongoing"


def test_a_new_coordinator_goes_on_with_many_over_several_steps(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "RESUMED_PER_STEP_MAX", 2)
    names = [f"id-{number}" for number in range(5)]
    for name in names:
        story.end(opened(story, name), name=name)
    opened(story)
    story.restart()
    assert len(story.markers) == 2
    story.write_markers()
    story.pass_ms(0)
    assert {story.state(name) for name in names[:2]} == {"CompleteCommit"}
    story.write_markers()
    assert {story.state(name) for name in names} == {"CompleteCommit"}
    story.pass_ms(TIMEOUT_MS)
    assert story.state() == "PrepareAbort"


# ---- transactional ids


def test_an_unused_id_expires(story: Story) -> None:
    for name, commit in (("a", True), ("b", False)):
        story.end(opened(story, name), name=name, commit=commit)
    story.owner("c")
    story.write_markers()
    story.pass_ms(EXPIRATION_MS - CHECK_MS)
    story.owner("c")
    story.pass_ms(2 * CHECK_MS)
    assert list(story.shard.transactions) == ["c"]
    assert story.shard.client_of("a") is None
    story.restart()
    assert list(story.shard.transactions) == ["c"]
    assert story.owner("a") == (104, 0), "an id that others may remember is not used again"


def test_an_id_with_a_transaction_is_not_forgotten() -> None:
    story = Story(id_expiration_ms=1_000, id_expiration_check_interval_ms=1_000)
    opened(story)
    story.end(opened(story, "decided"), name="decided")
    story.pass_ms(TIMEOUT_MS)
    assert (story.state(), story.state("decided")) == ("PrepareAbort", "PrepareCommit")
    story.write_markers()
    story.pass_ms(2_000)
    assert not story.shard.transactions


def test_ids_are_looked_at_over_several_steps(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "IDS_PER_STEP_MAX", 2)
    for number in range(5):
        story.owner(f"id-{number}")
    story.now_ms += EXPIRATION_MS
    left = []
    for _ in range(3):
        story.step(TimerFired(timeouts.EXPIRY_KEY))
        left.append(len(story.shard.transactions))
    assert left == [3, 1, 0]
    story.restart()
    assert not story.shard.transactions


# ---- seen by others


def test_a_transaction_is_described_as_it_is(story: Story) -> None:
    opened(story)
    described = story.describe()
    assert (described.error_code, described.transaction_state) == (0, "Ongoing")
    assert (described.producer_id, described.producer_epoch) == (101, 0)
    assert (described.transaction_timeout_ms, described.transaction_start_time_ms) == (TIMEOUT_MS, story.now_ms)
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [("t", [0, 1])]
    assert story.describe("unknown").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert story.describe("").error_code == ErrorCode.INVALID_REQUEST


def test_transactions_are_listed_by_what_they_are(story: Story) -> None:
    story.owner("empty")
    opened(story, "old")
    story.pass_ms(1_000)
    opened(story, "young")

    def names(**filters: object) -> list[str]:
        return [each.transactional_id for each in story.list(**filters).transaction_states]

    assert names() == ["empty", "old", "young"]
    assert names(states=("Ongoing",)) == ["old", "young"]
    assert names(states=("Empty", "Dead")) == ["empty"]
    assert names(producer_ids=frozenset({103})) == ["young"]
    assert names(states=("Ongoing",), duration_ms=999) == ["old"]
    assert names(pattern=matcher("o.*|y.*")) == ["old", "young"]
    response = story.list(states=("ongoing", "Ongoing"))
    assert response.unknown_state_filters == ["ongoing"]
    assert [each.transaction_state for each in response.transaction_states] == ["Ongoing", "Ongoing"]
