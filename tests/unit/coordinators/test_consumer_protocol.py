"""Subscriptions and assignments as clients write them, in every version, damaged, and from the future."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.codec.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from strandline.codec.messages.consumer_protocol_assignment import TopicPartition as Assigned
from strandline.codec.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from strandline.codec.messages.consumer_protocol_subscription import TopicPartition as Owned
from strandline.coordinators.groups.classic.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    version_of,
)
from strandline.errors import MalformedMessage

SUBSCRIPTION_BY_HAND = bytes.fromhex(
    "0001"  # version 1
    "00000002" "0001" "61" "0002" "6262"  # topics "a" and "bb"
    "ffffffff"  # no user data
    "00000001" "0001" "61" "00000002" "00000000" "00000003"  # owns a-0 and a-3
)  # fmt: skip

ASSIGNMENT_BY_HAND = bytes.fromhex(
    "0000"  # version 0
    "00000001" "0001" "61" "00000001" "00000007"  # a-7
    "00000001" "78"  # user data "x"
)  # fmt: skip


def test_a_subscription_as_a_client_writes_it() -> None:
    subscription = decode_subscription(SUBSCRIPTION_BY_HAND)
    assert subscription == ConsumerProtocolSubscription(
        topics=["a", "bb"], owned_partitions=[Owned(topic="a", partitions=[0, 3])]
    )
    assert encode_subscription(subscription, 1) == SUBSCRIPTION_BY_HAND


def test_an_assignment_as_a_leader_writes_it() -> None:
    assignment = decode_assignment(ASSIGNMENT_BY_HAND)
    assert assignment == ConsumerProtocolAssignment(
        assigned_partitions=[Assigned(topic="a", partitions=[7])], user_data=b"x"
    )
    assert encode_assignment(assignment, 0) == ASSIGNMENT_BY_HAND


def test_a_version_of_the_future_is_read_as_the_newest_and_answered_in_it() -> None:
    subscription = ConsumerProtocolSubscription(topics=["a"], generation_id=4, rack_id="r")
    from_the_future = b"\x00\x09" + encode_subscription(subscription, 3)[2:] + b"fields of version 9"
    assert decode_subscription(from_the_future) == subscription
    assert version_of(from_the_future) == 9
    assert version_of(encode_assignment(ConsumerProtocolAssignment(), 9)) == ConsumerProtocolAssignment.VERSION_MAX


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\x00",
        b"\xff\xff",
        b"\x80\x00" + SUBSCRIPTION_BY_HAND[2:],
        b"range",
        SUBSCRIPTION_BY_HAND[:-1],
        SUBSCRIPTION_BY_HAND[:9],
        b"\x00\x01\x7f\xff\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff\xff\xff\xff\xff",
    ],
)
def test_what_is_no_subscription_is_malformed(damaged: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_subscription(damaged)


@given(st.binary(max_size=60))
def test_only_the_declared_error_escapes(damaged: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        with suppress(MalformedMessage):
            decode(damaged)


names = st.text(min_size=1, max_size=8)
partitions = st.lists(st.integers(0, 2**31 - 1), max_size=4)


@given(
    st.integers(0, 3),
    st.lists(names, max_size=4),
    st.none() | st.binary(max_size=9),
    st.lists(st.builds(lambda topic, parts: Owned(topic=topic, partitions=parts), names, partitions), max_size=3),
)
def test_a_subscription_survives_the_way_there_and_back(
    version: int, topics: list[str], user_data: bytes | None, owned: list[Owned]
) -> None:
    subscription = ConsumerProtocolSubscription(topics=topics, user_data=user_data, owned_partitions=owned)
    again = decode_subscription(encode_subscription(subscription, version))
    assert again.topics == topics
    assert again.user_data == user_data
    # Before version 1 a member could not say what it owns: it rebalanced eagerly and owned nothing.
    assert again.owned_partitions == (owned if version >= 1 else [])
