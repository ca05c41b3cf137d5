"""Requests leave no cycles of objects behind: the garbage collector would stop the broker for tens of milliseconds."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
from tests.hostile.batches import produce
from tests.simulation.share_stage import Worker, stored_stage, write
from tests.simulation.stage import Play

from strandline.codec.columns import Record, encode_batch
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.fetch_response import FetchResponse
from strandline.codec.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.codec.messages.list_offsets_response import ListOffsetsResponse
from strandline.codec.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from strandline.codec.messages.offset_fetch_response import OffsetFetchResponse
from strandline.codec.messages.produce_response import ProduceResponse
from strandline.coordinators.shares.delivery.acknowledgements import ACCEPT

TIMES = 50


def share(play: Play, ann: Worker) -> None:
    write(play, 1)
    ((first, last, _),) = ann.poll()
    ann.poll([(first, last, [ACCEPT])], max_wait_ms=0)
    write(play, 1)
    ((first, last, _),) = ann.poll()
    ann.acknowledge((first, last, [ACCEPT]))


def append(play: Play, _: Worker) -> None:
    batch = encode_batch([Record(timestamp_ms=0, key=None, value=b"v")])
    play.ask(play.leader("tasks"), produce("tasks", batch), 12, ProduceResponse)


def fetch(play: Play, _: Worker) -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [FetchTopic(topic_id=play.topic_id("tasks"), partitions=[partition])]
    request = FetchRequest(max_wait_ms=0, max_bytes=1000, session_epoch=-1, topics=topics)
    play.ask(play.leader("tasks"), request, 17, FetchResponse)


def list_offsets(play: Play, _: Worker) -> None:
    topics = [ListOffsetsTopic(name="tasks", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    play.ask(play.leader("tasks"), ListOffsetsRequest(topics=topics), 8, ListOffsetsResponse)


def fetch_offsets(play: Play, _: Worker) -> None:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="workers", topics=None)])
    play.ask(play.leader("tasks"), request, 9, OffsetFetchResponse)


@pytest.mark.slow
@pytest.mark.parametrize("work", [share, append, fetch, list_offsets, fetch_offsets])
def test_a_request_leaves_no_cycle(work: Callable[[Play, Worker], None]) -> None:
    with stored_stage(1) as play:
        ann = Worker(play, play.leader("tasks"), "ann")
        for _ in range(5):
            work(play, ann)
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for _ in range(TIMES):
                work(play, ann)
            gc.collect()
            found = [type(each).__qualname__ for each in gc.garbage if type(each).__module__.startswith("strandline.")]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        assert len(found) < TIMES, sorted(set(found))
