"""What a leader answers before it knows what its predecessors copied: that its clients should come again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.broker.tiering.partition_tier import PartitionTier
from strandline.errors import NotLeader
from strandline.log.leader_epochs import LeaderEpochs
from strandline.tiers.records import RemoteSegment, SegmentAdded, SegmentChanged
from strandline.tiers.remote_segments import RemoteSegments
from strandline.tiers.segment_states import SegmentState

TOPIC_ID = UUID(int=7)


def a_tier(runtime: ManualRuntime, *, is_opening: bool = False) -> PartitionTier:
    """Return the tier of a leader in epoch 3, whose node has read that 0 to 9 are in the store."""
    epochs = LeaderEpochs()
    epochs.note(0, 0)
    log = SimpleNamespace(leader_epochs=epochs, log_end_offset=100, log_start_offset=50)
    partition = SimpleNamespace(topic_id=TOPIC_ID, index=0, topic="t", log=log, leader_epoch=3, is_leader=True)
    config = SimpleNamespace(remote_list_offsets_request_timeout_ms=1000)
    storage = SimpleNamespace(
        environment=SimpleNamespace(config=lambda: config),
        runtime=runtime,
        cluster_id="cluster",
        metadata=SimpleNamespace(states={(TOPIC_ID, 0): RemoteSegments()}),
        cache=None,
        pending=0,
        is_opening=is_opening,
        may_read=lambda: True,
    )
    tier = PartitionTier(cast(Any, storage), cast(Any, partition))
    segment = RemoteSegment(UUID(int=1), 0, 9, ((0, 0),), 5, 100, 1, 5, SegmentState.COPY_STARTED)
    tier.segments.apply(SegmentAdded(tier.place, segment))
    tier.segments.apply(SegmentChanged(tier.place, segment.id, SegmentState.COPY_FINISHED, 1, 6))
    return tier


@pytest.mark.parametrize(("caught_up_epoch", "is_opening"), [(-1, False), (2, False), (3, True)])
def test_metadata_that_is_not_read_to_its_end_answers_nothing(caught_up_epoch: int, is_opening: bool) -> None:
    runtime = ManualRuntime()
    tier = a_tier(runtime, is_opening=is_opening)
    tier.caught_up_epoch = caught_up_epoch
    answers: list[BaseException | None] = []
    tier.read(20, size_bytes_max=1, committed_only=False, then=lambda _, error: answers.append(error))
    tier.find_time(5, lambda _, error: answers.append(error))
    runtime.settle()
    with pytest.raises(NotLeader):
        tier.highest()
    assert [type(answer) for answer in answers] == [NotLeader, NotLeader]


def test_a_leader_that_has_read_it_knows_the_highest_offset() -> None:
    tier = a_tier(ManualRuntime())
    tier.caught_up_epoch = 3
    assert tier.highest() == (9, 0)
    tier.partition.is_leader = False
    with pytest.raises(NotLeader):
        tier.highest()


def test_a_segment_below_the_log_start_is_not_missed_in_the_store() -> None:
    """Retention moved the log start while it was the last one, so it stays on the disk, and is never copied."""
    tier = a_tier(ManualRuntime())
    bases = (0, 10, 30, 60, 90)
    cast(Any, tier.partition.log).segments = [SimpleNamespace(base_offset=each) for each in bases]
    cast(Any, tier.partition).log_start_offset = 30
    assert [each.base_offset for each in tier.lacking()] == [30, 60]
    cast(Any, tier.partition).log_start_offset = 29
    assert [each.base_offset for each in tier.lacking()] == [10, 30, 60]
