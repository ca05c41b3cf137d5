"""Odd and spoilt requests about share groups, which meet the groups that others left behind."""

from __future__ import annotations

import random

import pytest
from tests.crash.harness import new_seed
from tests.fuzz.engine import spoil
from tests.hostile.odd_requests import odd_message
from tests.hostile.peer import ROUTES, Closed, Peer, raw_request
from tests.hostile.stage import stage

from strandline.codec.message import Message
from strandline.codec.message_codec import encode

APIS = (76, 77, 90, 91, 92, 42, 16, 15, 69, 68)
EXAMPLES = 40
"""Of each API."""
BODY_BYTES_MAX = 60_000
MEETING: dict[str, tuple[object, ...]] = {
    "group_id": ("g", "h", ""),
    "group_ids": (["g", "h"], ["g", "g", ""]),
    "groups_names": (["g"], ["h", "none"]),
    "member_id": ("a", "b", "c", "d"),
    "member_epoch": (0, 0, 0, -1, 1, 2, 3, 4),
    "subscribed_topic_names": (["target"], ["target", "none"], None, []),
    "topic_name": ("target", "none"),
    "partition_index": (0, 1, 2, -1),
    "partitions": ([0], [0, 1, 1], [7]),
    "start_offset": (0, -1, -2, 5, 2**63 - 1),
}

pytestmark = pytest.mark.timeout(300)


def meeting(message: Message, version: int, rng: random.Random) -> Message:
    """Give the fields of the message, and of its structs, values that others use too."""
    for field in message.FIELDS:
        if not field.present(version):
            continue
        value = getattr(message, field.name)
        if field.struct is not None:
            for part in value if isinstance(value, list) else [value]:
                if part is not None:
                    meeting(part, version, rng)
        elif field.name in MEETING and rng.random() < 0.8:
            setattr(message, field.name, rng.choice(MEETING[field.name]))
    return message


@pytest.mark.slow
def test_a_node_with_share_groups_serves_on() -> None:
    rng = random.Random(new_seed())
    order = [ROUTES[key] for key in APIS for _ in range(EXAMPLES)]
    rng.shuffle(order)
    with stage({"target": 2}) as broker:
        port = int(broker.bootstrap.rpartition(":")[2])
        peer = Peer(port)
        for route in order:
            version = rng.randint(route.version_min, route.version_max)
            body = encode(meeting(odd_message(route, version, rng), version, rng), version)[:BODY_BYTES_MAX]
            if rng.random() < 0.3:
                body = spoil(body, rng)
            try:
                peer.send(raw_request(route.api_key, version, body))
                peer.receive_answer()
            except (Closed, OSError):
                peer.close()
                peer = Peer(port)
        peer.close()
