"""A disk that is full or that fails hurts only what it must.

The writer is told, readers and other partitions go on, and after a restart everything acknowledged is there exactly
once.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from tests.crash.filesystems import small_tmpfs, why_not_mountable
from tests.crash.harness import RESUME_TIMEOUT_S, judge, new_seed
from tests.crash.sync_fault import sync_fault, why_not_available

from strandline.ids import TopicPartition
from strandline.local.embedded import embedded
from strandline.testing.client_threads import ProducerThread
from strandline.testing.final_read import read_to_the_end
from strandline.testing.history import Op
from strandline.testing.recorder import Recorder
from strandline.testing.workload import Workload

NO_MOUNT = why_not_mountable(loop=False)
NO_SHIM = why_not_available()

ORDERS = TopicPartition("orders", 0)
BYSTANDER = TopicPartition("bystander", 0)


class Probe(ProducerThread):
    """A producer that never retries, so that it is told each refusal at once. Its records belong to the history."""

    def __init__(self, workload: Workload, partition: TopicPartition) -> None:
        settings = {"enable.idempotence": False, "message.send.max.retries": 0, "delivery.timeout.ms": 5000}
        super().__init__(
            workload.recorder,
            workload.bootstrap,
            [partition],
            value_bytes=2000,
            burst=1,
            pause_s=0.05,
            settings=settings,
        )

    def wait_error(self, *, timeout_s: float = 30.0) -> Op:
        """The next send that was refused."""

        def refused(op: Op) -> bool:
            return op.process == self.process and op.outcome == "info"

        return self.recorder.wait_op(refused, timeout_s=timeout_s)


def error_name(op: Op) -> str:
    return op.error.partition(":")[0]


def fill(ballast: Path) -> None:
    """Takes every free block of the filesystem."""
    descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    try:
        for size_bytes in (1 << 20, 4096, 1):
            try:
                while True:
                    os.write(descriptor, b"\0" * size_bytes)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
    finally:
        os.close(descriptor)


@pytest.mark.skipif(bool(NO_MOUNT), reason=NO_MOUNT)
@pytest.mark.parametrize("restart", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["restart", "carry on"])
def test_a_full_disk_refuses_writers_serves_readers_and_loses_nothing(tmp_path: Path, *, restart: bool) -> None:
    seed = new_seed()
    with small_tmpfs(tmp_path, size_mb=64) as disk, embedded(data=disk / "data") as log:
        log.create_topic("orders", 1, internal_segment_bytes=256 * 1024)
        with Workload(
            log.bootstrap, [ORDERS], seed=seed, value_bytes=1000, producer_settings={"batch.size": 64 * 1024}
        ) as workload:
            workload.recorder.wait_acknowledged(500, timeout_s=RESUME_TIMEOUT_S)
            probe = Probe(workload, ORDERS)
            probe.start()
            ballast = disk / "ballast"
            fill(ballast)
            assert error_name(probe.wait_error()) in {
                "KAFKA_STORAGE_ERROR",
                "NOT_LEADER_FOR_PARTITION",
                "REQUEST_TIMED_OUT",
            }
            # A new reader gets everything that was there before.
            read_to_the_end(Recorder(), log.bootstrap, [ORDERS])
            with pytest.raises(KafkaException):
                # So many partitions that their records do not fit the last page of the metadata log either.
                log.create_topic("no-room", 200)
            assert log.running
            probe.stop()
            ballast.unlink()
            if restart:
                log.restart()
            progress = workload.recorder.acknowledged + 500
            workload.recorder.wait_acknowledged(progress, timeout_s=RESUME_TIMEOUT_S)
        judge(workload, tmp_path)


@pytest.mark.skipif(bool(NO_SHIM), reason=NO_SHIM)
def test_the_fault_is_real(tmp_path: Path) -> None:
    program = "import os, sys; fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); os.fdatasync(fd); os.fsync(fd)"
    command = [sys.executable, "-c", program]
    with sync_fault(tmp_path) as fault:
        environ = os.environ | fault.environ
        fault.arm("broken")
        subprocess.run([*command, str(tmp_path / "healthy")], env=environ, check=True)
        broken = subprocess.run([*command, str(tmp_path / "broken")], env=environ, capture_output=True, text=True)
        assert "Input/output error" in broken.stderr
        fault.wait_refused(timeout_s=0)
        fault.disarm()
        subprocess.run([*command, str(tmp_path / "broken")], env=environ, check=True)


@pytest.mark.skipif(bool(NO_SHIM), reason=NO_SHIM)
def test_a_failed_flush_takes_the_partition_offline_and_loses_nothing(tmp_path: Path) -> None:
    seed = new_seed()
    with sync_fault(tmp_path) as fault, embedded(data=tmp_path / "data", environ=fault.environ) as log:
        log.create_topic(ORDERS.topic)
        log.create_topic(BYSTANDER.topic)
        with (
            Workload(log.bootstrap, [ORDERS], seed=seed) as workload,
            Workload(log.bootstrap, [BYSTANDER], seed=seed, producers=1, consumers=1) as bystanders,
        ):
            workload.recorder.wait_acknowledged(200, timeout_s=RESUME_TIMEOUT_S)
            bystanders.recorder.wait_acknowledged(100, timeout_s=RESUME_TIMEOUT_S)
            probe = Probe(workload, ORDERS)
            probe.start()
            fault.arm("/orders-0/")
            fault.wait_refused(timeout_s=RESUME_TIMEOUT_S)
            refused = probe.wait_error()
            assert error_name(refused) == "KAFKA_STORAGE_ERROR"
            # After a failed sync the kernel may have dropped the pages and call them clean, so a second sync that
            # succeeds proves nothing: the log stays offline although the disk is well again.
            fault.disarm()
            assert error_name(probe.wait_error()) == "KAFKA_STORAGE_ERROR"
            bystanders.recorder.wait_acknowledged(bystanders.recorder.acknowledged + 200, timeout_s=RESUME_TIMEOUT_S)
            probe.stop()
            # Acknowledgements from before the fault may still be on their way to a client thread; what was sent after
            # the first refusal has none.
            sends = [op for op in workload.recorder.ops() if op.f == "send" and op.invoked_ns > refused.completed_ns]
            assert not [op for op in sends if op.outcome == "ok"]
            progress = workload.recorder.acknowledged + 200
            log.restart()
            workload.recorder.wait_acknowledged(progress, timeout_s=RESUME_TIMEOUT_S)
        judge(bystanders, tmp_path)
        judge(workload, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(bool(NO_SHIM), reason=NO_SHIM)
def test_a_failed_flush_of_the_metadata_log_acknowledges_no_topic(tmp_path: Path) -> None:
    with sync_fault(tmp_path) as fault, embedded(data=tmp_path / "data", environ=fault.environ) as log:
        log.create_topic(ORDERS.topic)
        fault.arm("__cluster_metadata-0")
        with pytest.raises(KafkaException):
            log.create_topic("never")
        fault.disarm()
        # Whether the broker gave up or lives on without its metadata log is its own choice; it comes back whole.
        log.kill()
        log.start()
        with Workload(log.bootstrap, [ORDERS], seed=new_seed()) as workload:
            workload.recorder.wait_acknowledged(100, timeout_s=RESUME_TIMEOUT_S)
        judge(workload, tmp_path)
