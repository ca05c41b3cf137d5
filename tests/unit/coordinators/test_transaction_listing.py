"""What others are told of a transaction while its markers are written."""

from __future__ import annotations

from tests.unit.coordinators.transaction_story import P0, P1, P2, Story


def partitions(story: Story) -> list[tuple[str, int]]:
    return [(topic.topic, index) for topic in story.describe().topics for index in topic.partitions]


def test_a_partition_that_has_its_marker_is_not_named_any_more() -> None:
    story = Story()
    producer = story.owner()
    story.add(producer, P0, P1, P2)
    story.end(producer)
    assert partitions(story) == [P0, P1, P2]
    story.write_markers(2)
    assert story.describe().transaction_state == "PrepareCommit"
    assert partitions(story) == [P2]
    # A coordinator that takes over does not know which have theirs, and writes all of them again.
    story.restart()
    assert partitions(story) == [P0, P1, P2]
    story.write_markers()
    assert story.describe().transaction_state == "CompleteCommit"
    assert partitions(story) == []
