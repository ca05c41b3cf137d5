"""A power cut of the only copy takes back nothing that a producer was promised and nothing that a reader saw.

The broker's directory is an ext4 filesystem in a file. The shutdown ioctl drops everything that was not flushed, data
and journal, as a cut does; then the broker is killed, the filesystem mounted again, and the broker started on what is
left.
"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest
from tests.crash.churn import ProducerIdTaker, TopicChurn
from tests.crash.filesystems import LoopFilesystem, loop_filesystem, why_not_mountable
from tests.crash.harness import RESUME_TIMEOUT_S, SEGMENT_BYTES, SMALL_BATCHES, judge, new_seed, without_one_record

from strandline.ids import TopicPartition
from strandline.local.embedded import embedded
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.testing.checker import check
from strandline.testing.workload import Workload

REASON = why_not_mountable(loop=True)
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)

PARTITIONS = [TopicPartition("orders", number) for number in range(3)]


def test_the_cut_is_real(tmp_path: Path) -> None:
    # If this fails, the tests below prove nothing.
    with loop_filesystem(tmp_path, size_mb=32) as disk:
        flushed, lost = disk.mount_point / "flushed", disk.mount_point / "lost"
        with flushed.open("wb") as file:
            file.write(b"kept")
            file.flush()
            os.fsync(file.fileno())
            file.write(b" and lost")
            file.flush()
            lost.write_bytes(b"lost")
            disk.cut_power()
            with pytest.raises(OSError):
                os.fsync(file.fileno())
        disk.power_on()
        assert flushed.read_bytes() == b"kept"
        assert not lost.exists()


def cut_power_of(log: EmbeddedBroker, disk: LoopFilesystem) -> None:
    """Ends the broker and its disk in one moment, and mounts what is left.

    A power cut ends the process with the disk. If the broker lived on, an fdatasync that was under way could return
    success although the shutdown dropped its journal commit (a bare loop of pwrite and fdatasync shows that in a few of
    forty cuts), and the broker would acknowledge what no machine without power could acknowledge.
    """
    log.pause()
    disk.cut_power()
    log.kill()
    disk.power_on()


def run_power_cuts(cuts: int, directory: Path) -> None:
    seed = new_seed()
    rng = random.Random(seed)
    with loop_filesystem(directory) as disk, embedded(data=disk.mount_point / "data") as log:
        log.create_topic("orders", len(PARTITIONS), internal_segment_bytes=SEGMENT_BYTES)
        with (
            Workload(
                log.bootstrap,
                PARTITIONS,
                seed=seed,
                value_bytes=200,
                consumers=3,
                producer_settings=SMALL_BATCHES,
            ) as workload,
            TopicChurn(workload.recorder, log.bootstrap) as churn,
            ProducerIdTaker(workload.recorder, log.host, log.port),
        ):
            for _ in range(cuts):
                progress = workload.recorder.acknowledged + rng.randint(200, 1000)
                workload.recorder.wait_acknowledged(progress, timeout_s=RESUME_TIMEOUT_S)
                if rng.random() < 0.5:
                    # A killed broker leaves records in the page cache that were never flushed nor acknowledged. The
                    # next one finds them, and must flush them before a reader sees them: the cut may follow at once.
                    log.kill()
                    log.start()
                threading.Event().wait(rng.uniform(0.0, 0.2))
                cut_power_of(log, disk)
                log.start()
        ops, report = judge(workload, directory)
        churn.check_against(set(_topics(log.bootstrap)))
    # No send was given up: each was retried over every cut until the broker had it.
    assert report.sends.keys() == {"ok"}
    assert not check(without_one_record(ops, rng)).ok, "a lost record would not have been noticed"


def _topics(bootstrap: str) -> list[str]:
    from confluent_kafka.admin import AdminClient

    return list(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics)


def test_nothing_acknowledged_or_read_is_lost_in_a_power_cut(tmp_path: Path) -> None:
    run_power_cuts(2, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nothing_acknowledged_or_read_is_lost_in_forty_power_cuts(tmp_path: Path) -> None:
    run_power_cuts(40, tmp_path)


@pytest.mark.slow
def test_asynchronous_flush_may_lose_and_the_checker_says_so(tmp_path: Path) -> None:
    # The other side of the promise, and the proof that the tests above can fail: without the flush before the
    # acknowledgement, a cut loses what was acknowledged a moment ago.
    seed = new_seed()
    with (
        loop_filesystem(tmp_path) as disk,
        embedded(data=disk.mount_point / "data", properties={"flush.mode": "async"}) as log,
    ):
        log.create_topic("orders", len(PARTITIONS))
        with Workload(log.bootstrap, PARTITIONS, seed=seed) as workload:
            workload.recorder.wait_acknowledged(500, timeout_s=RESUME_TIMEOUT_S)
        cut_power_of(log, disk)
        log.start()
        report = check(workload.history())
    print(report)
    assert report.counts["unseen"] + report.counts["vanished"] > 0
