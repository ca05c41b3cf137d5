"""The log of an object partition: a cache, for which the disk is never made to sync."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest
from tests.unit.log.engine import NOON_MS, batch_of, open_log
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.config.topic_config import TopicConfig
from strandline.log.flusher import Flusher
from strandline.log.leader_epochs import LeaderEpochs
from strandline.log.truncation import Former, restart_at
from strandline.partition.object_partition import ObjectPartition
from strandline.partition.producers import Producers


def test_a_new_leader_begins_its_log_without_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may begin a thousand at once, and each sync would take milliseconds of the loop."""
    producers = Producers()
    log = open_log(tmp_path, observer=producers)
    partition = ObjectPartition(
        "orders",
        0,
        uuid.UUID(int=1),
        log=log,
        producers=producers,
        flusher=Flusher(ManualRuntime()),
        config=TopicConfig(),
        leader_epoch=0,
        high_watermark=0,
    )
    partition.is_leader = True
    partition.append(memoryview(batch_of([b"1"], producer_id=8, producer_epoch=0, sequence=0)), NOON_MS)
    epochs = LeaderEpochs()
    epochs.note(3, 0)
    known = producers.snapshot()
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr(os, "fdatasync", synced.append)
    restart_at(log, 70, NOON_MS, Former(epochs, known, 0))
    assert (log.log_start_offset, log.log_end_offset, log.tier_start_offset) == (70, 70, 0)
    assert log.leader_epochs.latest == 3
    assert producers.snapshot() == known
    assert not synced
