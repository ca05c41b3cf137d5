"""The bytes of an object: ranges that are left out leave no gap, and its head says where the others lie."""

from __future__ import annotations

import asyncio
import random
from itertools import combinations
from typing import Any, cast
from uuid import UUID

import pytest
from crc32c import crc32c

from strandline.broker.tiering.objects.object_parcels import Taken, pack
from strandline.runtime.runtime import LoopRuntime
from strandline.tiers.wal.events import RangeCommit
from strandline.tiers.wal.wal_objects import head_size, unpack_head

SIZES = (700, 3, 5000, 90)
PLACES = range(len(SIZES))


@pytest.mark.parametrize("kept", [each for count in range(1, 5) for each in combinations(PLACES, count)])
async def test_what_is_left_out_leaves_no_gap(kept: tuple[int, ...]) -> None:
    source = random.Random(28)
    datas = [source.randbytes(size) for size in SIZES]
    buffer = bytearray(head_size(len(SIZES))) + b"".join(datas)
    taken = []
    for place in kept:
        at = head_size(len(SIZES)) + sum(SIZES[:place])
        commit = RangeCommit(UUID(int=place), place, 0, 10, 20, 0, SIZES[place], 0, -1, ())
        taken.append(Taken(cast(Any, None), 0, commit, at))
    body, placed = await pack(LoopRuntime(asyncio.get_running_loop()), taken, buffer)
    assert len(body) == head_size(len(kept)) + sum(SIZES[place] for place in kept)
    assert [each._replace(max_timestamp_ms=-1, notes=()) for each in unpack_head(bytes(body))] == [
        each.commit for each in placed
    ]
    for place, each in zip(kept, placed, strict=True):
        commit = each.commit
        data = bytes(body[commit.position : commit.position + commit.size_bytes])
        assert (commit.partition, data, commit.crc) == (place, datas[place], crc32c(datas[place]))
