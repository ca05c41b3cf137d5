"""Batches of a share partition, merged, against a model that has one entry for each offset."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strandline.coordinators.shares.share_state import StateBatch
from strandline.coordinators.shares.state_batches import StateBatches

OFFSETS = 30

Model = dict[int, tuple[int, int]]
"""Delivery count and state of each offset."""


@st.composite
def state_batches(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, OFFSETS))
    last = draw(st.integers(first, min(first + 8, OFFSETS)))
    return StateBatch(first, last, draw(st.sampled_from((0, 2, 3, 4))), draw(st.integers(1, 3)))


def merge_into(model: Model, batch: StateBatch) -> None:
    for offset in range(batch.first_offset, batch.last_offset + 1):
        model[offset] = max(model.get(offset, (-1, -1)), (batch.delivery_count, batch.state))


def as_batches(model: Model) -> list[StateBatch]:
    """Return the fewest batches that say the same."""
    found: list[StateBatch] = []
    for offset, (count, state) in sorted(model.items()):
        if found and found[-1].last_offset == offset - 1 and found[-1][2:] == (state, count):
            found[-1] = found[-1]._replace(last_offset=offset)
        else:
            found.append(StateBatch(offset, offset, state, count))
    return found


@given(st.lists(st.one_of(state_batches(), st.integers(0, OFFSETS + 2)), max_size=25))
def test_merges_and_cuts_are_those_of_single_offsets(changes: list[StateBatch | int]) -> None:
    batches, model = StateBatches(), Model()
    for change in changes:
        if isinstance(change, int):
            batches.cut(change)
            model = {offset: entry for offset, entry in model.items() if offset >= change}
        else:
            batches.merge([change])
            merge_into(model, change)
        assert list(batches) == as_batches(model)


@given(st.lists(state_batches(), max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_merges_does_not_matter(batches: list[StateBatch], random: object) -> None:
    shuffled = [*batches, *batches]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert list(StateBatches(batches)) == list(StateBatches(shuffled))


def test_a_long_batch_around_a_short_one_is_parted() -> None:
    batches = StateBatches([StateBatch(0, 9, 0, 1)])
    batches.merge([StateBatch(4, 5, 2, 1)])
    assert list(batches) == [StateBatch(0, 3, 0, 1), StateBatch(4, 5, 2, 1), StateBatch(6, 9, 0, 1)]
    batches.merge([StateBatch(0, 3, 2, 1), StateBatch(6, 9, 2, 1)])
    assert list(batches) == [StateBatch(0, 9, 2, 1)]


def test_a_lower_delivery_count_changes_nothing() -> None:
    batches = StateBatches([StateBatch(3, 3, 0, 3)])
    batches.merge([StateBatch(3, 3, 4, 2)])
    assert list(batches) == [StateBatch(3, 3, 0, 3)]
