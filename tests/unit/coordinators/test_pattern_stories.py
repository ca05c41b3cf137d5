"""Members that subscribe by pattern, while topics come and go and coordinators change."""

from __future__ import annotations

from tests.unit.coordinators.consumer_story import ConsumerStory

from strandline.codec.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse


def held(story: ConsumerStory, answer: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]]:
    assert answer.assignment is not None, "nothing new"
    names = {facts.id: facts.name for facts in story.topics.facts.values()}
    return {names[each.topic_id]: each.partitions for each in answer.assignment.topic_partitions}


def heartbeat(story: ConsumerStory, member_id: str, **owns: list[int]) -> ConsumerGroupHeartbeatResponse:
    return story.say(member_id, story.group.members[member_id].member_epoch, owns=owns)


def test_topics_created_without_a_coordinator_are_found_whatever_changes_first() -> None:
    story = ConsumerStory(topics={"t1": 1})
    assert held(story, story.join("a", pattern="t.*")) == {"t1": [0]}
    story.topics.make("t2", 1)
    story.restart()
    # There is no event for t2: it existed before the coordinator did.
    story.topics.make("t3", 1)
    story.topics_changed("t3")
    assert held(story, heartbeat(story, "a", t1=[0])) == {"t1": [0], "t2": [0], "t3": [0]}


def test_a_topic_that_is_gone_matches_no_more() -> None:
    story = ConsumerStory(topics={"t1": 1, "t2": 1})
    assert held(story, story.join("a", pattern="t.*")) == {"t1": [0], "t2": [0]}
    del story.topics.facts["t2"]
    story.topics_changed("t2")
    assert held(story, heartbeat(story, "a", t1=[0])) == {"t1": [0]}
    assert story.group.regexes["t.*"].topics == ("t1",)


def test_a_pattern_that_comes_back_sees_what_happened_meanwhile() -> None:
    story = ConsumerStory(topics={"t1": 1, "other": 1})
    story.join("stays", names=["other"])
    story.join("a", pattern="t.*")
    story.leave("a")
    assert "t.*" not in story.group.regexes
    story.topics.make("t2", 1)
    story.topics_changed("t2")
    assert held(story, story.join("a", pattern="t.*")) == {"t1": [0], "t2": [0]}


def test_members_share_a_pattern_and_its_record_lasts_as_long_as_one_of_them() -> None:
    story = ConsumerStory(topics={"t1": 2})
    story.join("a", pattern="t.*")
    story.join("b", pattern="t.*")
    story.leave("a")
    assert list(story.group.regexes) == ["t.*"]
    story.leave("b")
    story.restart()
    assert story.group.regexes == {}
