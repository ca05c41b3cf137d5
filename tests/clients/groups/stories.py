"""What happens to groups, told once for all clients. Every story ends with the judgement of what all members said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.clients.groups.stage import MemberProcess, Stage

PARTITIONS = 6


def join(stage: Stage, incremental: bool) -> None:
    """The first member of a group gets everything, from the beginning."""
    stage.topic(PARTITIONS)
    stage.write()
    first = stage.join("first")
    stage.until_shared((first, 6))
    stage.judge()
    first.leave()


def scale_out(stage: Stage, incremental: bool) -> None:
    """Members that come take their share; one that keeps a partition reads on in it, if the protocol is incremental."""
    stage.topic(PARTITIONS)
    stage.write()
    first = stage.join("first")
    stage.until_shared((first, 6))
    stage.until_read()
    second = stage.join("second")
    stage.write()
    stage.until_shared((first, 3), (second, 3))
    third = stage.join("third")
    stage.write()
    stage.until_shared((first, 2), (second, 2), (third, 2))
    stage.write()
    stage.judge()
    if incremental:
        assert not first.owned & first.taken_away(), "a partition that it keeps was taken away for a while"
        assert not stage.repeated(first.owned), "a partition that stayed where it was was read twice"


def scale_in(stage: Stage, incremental: bool) -> None:
    """What a member had that leaves goes to the others, who do not lose what they have."""
    stage.topic(PARTITIONS)
    first, second, third = (stage.join(name) for name in ("first", "second", "third"))
    stage.until_shared((first, 2), (second, 2), (third, 2))
    stage.write()
    stage.until_read()
    marks = _marks(first, second)
    third.leave()
    stage.write()
    stage.until_shared((first, 3), (second, 3))
    if incremental:
        for member, mark in marks:
            assert not member.taken_away(mark), "a member was disturbed by another that left"
    marks = _marks(first)
    second.leave()
    stage.until_shared((first, 6))
    stage.write()
    stage.judge()
    if incremental:
        assert not first.taken_away(marks[0][1])


def static_restart(stage: Stage, incremental: bool) -> None:
    """A static member that comes back has what it had, and the other members do not notice."""
    stage.topic(PARTITIONS)
    first, second = (stage.join(name, instance=name) for name in ("first", "second"))
    stage.until_shared((first, 3), (second, 3))
    stage.write()
    stage.until_read()
    had, marks = second.owned, _marks(first)
    second.leave()
    stage.write()
    again = stage.join("second again", instance="second")
    stage.until_shared((first, 3), (again, 3))
    stage.judge()
    assert again.owned == had
    assert not first.taken_away(marks[0][1]), "a member was disturbed by the restart of another"


def static_successor(stage: Stage, incremental: bool) -> None:
    """Who takes the place of a static member that was killed has what that had, before its session is over."""
    stage.topic(PARTITIONS)
    first, second = (stage.join(name, instance=name) for name in ("first", "second"))
    stage.until_shared((first, 3), (second, 3))
    stage.write()
    stage.until_read()
    had, marks = second.owned, _marks(first)
    second.kill()
    again = stage.join("second again", instance="second")
    stage.write()
    stage.until_shared((first, 3), (again, 3))
    stage.judge()
    assert again.owned == had
    assert not first.taken_away(marks[0][1]), "a member was disturbed by the successor of another"


def kill(stage: Stage, incremental: bool) -> None:
    """What a member had that was killed goes to the others when its session is over."""
    stage.topic(PARTITIONS)
    stage.notice_deaths_soon()
    first, second = stage.join("first"), stage.join("second")
    stage.until_shared((first, 3), (second, 3))
    stage.write()
    stage.until_read()
    second.kill()
    stage.write()
    stage.until_shared((first, 6))
    stage.judge()


def pause(stage: Stage, incremental: bool) -> None:
    """Who was silent past its session has lost its place, moves no position any more, and comes back as a new one."""
    stage.topic(PARTITIONS)
    stage.notice_deaths_soon()
    first, second = stage.join("first"), stage.join("second")
    stage.until_shared((first, 3), (second, 3))
    stage.write()
    stage.until_read()
    second.pause()
    stage.write()
    stage.until("the other one has all", lambda: len(first.owned) == PARTITIONS)
    stage.until_read()
    stage.write()
    stage.until_read()
    before = stage.positions()
    mark = len(second.life.lines)
    second.resume()
    stage.until("it has noticed and is back", lambda: bool(second.taken_away(mark)))
    stage.until_shared((first, 3), (second, 3))
    after = stage.positions()
    assert all(after[place] >= position for place, position in before.items()), "a position was moved back"
    stage.write()
    stage.judge()


def two_topics(stage: Stage, incremental: bool) -> None:
    """A group over two topics shares the partitions of both."""
    names = [stage.topic(2, suffix) for suffix in ("-a", "-b")]
    first, second = stage.join("first", *names), stage.join("second", *names)
    stage.write()
    stage.until_shared((first, 2), (second, 2))
    stage.write()
    stage.judge()


def pattern(stage: Stage, incremental: bool) -> None:
    """A pattern takes the topics that it matches, all of them and no other."""
    names = [stage.topic(2, suffix) for suffix in ("-match-a", "-match-b")]
    _, other = _unmatched(stage)
    member = stage.join("first", pattern=_pattern(stage))
    stage.write()
    stage.until_shared((member, 4))
    stage.judge()
    assert {topic for topic, _ in member.owned} == set(names)
    assert other not in {topic for topic, _ in member.owned}


def later_topic(stage: Stage, incremental: bool) -> None:
    """A topic that is made later and that the pattern matches is read, too, from its beginning."""
    stage.topic(2, "-match-a")
    _unmatched(stage)
    first, second = (stage.join(name, pattern=_pattern(stage)) for name in ("first", "second"))
    stage.until_shared((first, 1), (second, 1))
    stage.write()
    stage.until_read()
    stage.topic(2, "-match-b")
    stage.write()
    stage.until_shared((first, 2), (second, 2))
    stage.write()
    stage.judge()


def more_partitions(stage: Stage, incremental: bool) -> None:
    """Partitions that are added are shared out, and read from their beginning."""
    topic = stage.topic(2)
    first, second = stage.join("first"), stage.join("second")
    stage.until_shared((first, 1), (second, 1))
    stage.write()
    stage.until_read()
    stage.add_partitions(topic, 4)
    stage.write()
    stage.until_shared((first, 2), (second, 2))
    stage.write()
    stage.judge()


def migrate(stage: Stage, incremental: bool) -> None:
    """A group goes over to the consumer protocol and back, one member after the other, and reads all the while."""
    # Kafka takes no group over whose assignor keeps notes of its own, as librdkafka's cooperative one does.
    classic = "classic", "range"
    stage.topic(PARTITIONS)
    first, second = stage.join("first", speaks=classic), stage.join("second", speaks=classic)
    stage.until_shared((first, 3), (second, 3))
    stage.write()
    third = stage.join("third")
    stage.write()
    stage.until_shared((first, 2), (second, 2), (third, 2))
    first.leave()
    stage.write()
    second.leave()
    stage.until_shared((third, 6))
    stage.write()
    stage.until_read()
    fourth = stage.join("fourth", speaks=classic)
    stage.until_shared((third, 3), (fourth, 3))
    stage.write()
    third.leave()
    stage.until_shared((fourth, 6))
    stage.write()
    stage.judge()


def _marks(*members: MemberProcess) -> list[tuple[MemberProcess, int]]:
    """How much each has said so far."""
    return [(member, len(member.life.lines)) for member in members]


def _pattern(stage: Stage) -> str:
    return f"^{stage.name}-match-.*"


def _unmatched(stage: Stage) -> tuple[Stage, str]:
    """A topic that the pattern does not match; nobody of the group shall read it."""
    name = stage.topic(1, "-other")
    del stage.written[name, 0]
    return stage, name


@dataclass(frozen=True)
class Row:
    """One promise. `cannot` names clients or variants that have no way to keep their part, each with the reason."""

    story: Callable[[Stage, bool], None]
    cannot: Mapping[str, str] = field(default_factory=dict)

    def reason_against(self, variant: str, client: str) -> str | None:
        return self.cannot.get(variant) or self.cannot.get(client)


UNRELEASED = "KIP-848 refuses the successor until the session of the dead one is over (UNRELEASED_INSTANCE_ID)"

LEAVES_NAMELESS = "1.22 leaves without its instance id; that is refused, and its seat is free when its session is over"
CLASSIC_ONLY = "the client has the classic protocol only"
CLASSIC_OF_TWO = (
    "librdkafka range",
    "librdkafka cooperative",
    "java range",
    "java cooperative",
    "franz-go cooperative",
)
IN_NEXT_COLUMN = "told in the column of the consumer protocol, which is what the group migrates to"

ROWS: dict[str, Row] = {
    "join": Row(join),
    "scale-out": Row(scale_out),
    "scale-in": Row(scale_in),
    "static-restart": Row(static_restart, {"franz-go consumer": LEAVES_NAMELESS}),
    "static-successor": Row(
        static_successor,
        dict.fromkeys(("librdkafka consumer", "java consumer", "franz-go consumer"), UNRELEASED),
    ),
    "kill": Row(kill),
    "pause": Row(pause),
    "two-topics": Row(two_topics),
    "pattern": Row(pattern),
    "later-topic": Row(later_topic),
    "more-partitions": Row(more_partitions),
    "migrate": Row(
        migrate,
        dict.fromkeys(("kafka-python", "aiokafka"), CLASSIC_ONLY) | dict.fromkeys(CLASSIC_OF_TWO, IN_NEXT_COLUMN),
    ),
}
