"""What members of a group are promised."""

from __future__ import annotations

from tests.clients.client import Client, Member, New, until


def group_successor(client: Client, topic: str) -> None:
    """The next member of a group begins where its predecessor ended."""
    client.create_topic(topic, partitions=2)
    group = f"{topic}-group"
    for start in (0, 20):
        client.produce(topic, [New(value=b"%d" % n, partition=n % 2) for n in range(start, start + 20)])
        member = client.member(topic, group)
        assert sorted(_read_members([member], 20)) == sorted(b"%d" % n for n in range(start, start + 20))
        member.commit()
        member.close()


def group_resumes(client: Client, topic: str) -> None:
    """A group goes on where it committed, and what was not committed comes again."""
    client.create_topic(topic, partitions=2)
    group = f"{topic}-group"
    client.produce(topic, [New(value=b"%d" % n, partition=n % 2) for n in range(20)])
    assert client.committed(topic, group, 0) is None
    member = client.member(topic, group)
    assert sorted(_read_members([member], 20)) == sorted(b"%d" % n for n in range(20))
    member.commit()
    client.produce(topic, [New(value=b"%d" % n, partition=n % 2) for n in range(20, 26)])
    assert sorted(_read_members([member], 6)) == sorted(b"%d" % n for n in range(20, 26))
    member.close()
    assert (client.committed(topic, group, 0), client.committed(topic, group, 1)) == (10, 10)
    successor = client.member(topic, group)
    assert sorted(_read_members([successor], 6)) == sorted(b"%d" % n for n in range(20, 26))
    successor.commit()
    successor.close()
    assert (client.committed(topic, group, 0), client.committed(topic, group, 1)) == (13, 13)


def group_shares(client: Client, topic: str) -> None:
    """Two members share the partitions without overlap; when one leaves, the other takes over from its commits."""
    client.create_topic(topic, partitions=4)
    group = f"{topic}-group"
    first, second = client.member(topic, group), client.member(topic, group)

    def shared() -> bool:
        # Nothing is in the topic yet, so these polls only drive the rebalance.
        first.poll()
        second.poll()
        return len(first.assignment()) == 2 and len(second.assignment()) == 2

    until("two members with two partitions each", shared)
    assert first.assignment() | second.assignment() == {0, 1, 2, 3}
    client.produce(topic, [New(value=b"%d" % n, partition=n % 4) for n in range(40)])
    assert sorted(_read_members([first, second], 40)) == sorted(b"%d" % n for n in range(40))
    first.commit()
    second.commit()
    second.close()

    def taken_over() -> bool:
        assert first.poll() == []
        return first.assignment() == {0, 1, 2, 3}

    # Only then is more written: what a member has read and not committed comes again after a rebalance.
    until("one member with all partitions", taken_over)
    client.produce(topic, [New(value=b"%d" % n, partition=n % 4) for n in range(40, 48)])
    assert sorted(_read_members([first], 8)) == sorted(b"%d" % n for n in range(40, 48))
    first.close()


def _read_members(members: list[Member], count: int) -> list[bytes | None]:
    """Poll all members until `count` records came; a record too many is found out by one more round."""
    found: list[bytes | None] = []

    def attempt() -> bool:
        for member in members:
            found.extend(got.value for got in member.poll())
        return len(found) >= count

    until(f"{count} records for the group", attempt)
    attempt()
    return found
