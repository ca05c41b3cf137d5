"""What `doctor` says of an object store that fails: one sentence and the command, while sound records are served."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import CommandLine
from tests.hostile.peer import Peer
from tests.tiers.raw_reads import fetch_once
from tests.tiers.store.s3_stub import BUCKET, Fault, S3Stub, serving
from tests.tiers.test_restore import copied_up_to
from tests.tiers.tiered_nodes import fill, local_bases, properties, read, settings_of_tiered, wait_until

import strandline
from strandline.cli.common.client import connect
from strandline.cli.doctor.findings import Finding
from strandline.cli.doctor.object_store import ADVICE, tier_findings
from strandline.cli.doctor.storage import storage_findings
from strandline.codec.messages.describe_storage_response import DescribeStorageResponse, TierStatus
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.tiers.store import failures

pytest.importorskip("obstore")

RECORDS = 300
EVER = 1_000_000


@pytest.fixture
def stub() -> Iterator[S3Stub]:
    with serving() as found:
        yield found


@pytest.fixture
def log(tmp_path: Path, stub: S3Stub) -> Iterator[EmbeddedBroker]:
    settings = properties(tmp_path / "none") | {
        "strandline.remote.store.url": f"s3://{BUCKET}/pre",
        "strandline.remote.store.options": ",".join(f"{name}={value}" for name, value in stub.options.items()),
        "strandline.remote.checkpoint.interval.ms": "1000",
    }
    with strandline.embedded(data=tmp_path / "data", properties=settings) as found:
        found.create_topic("orders", **settings_of_tiered(retention_ms=-1))
        yield found


def findings(log: EmbeddedBroker, check: str = "object-store") -> list[Finding]:
    host, port = log.bootstrap.split(":")
    cluster = connect(log.bootstrap, None, 5.0)
    return [each for each in storage_findings(cluster, [(host, int(port))]) if each.check == check]


CASES = [
    (403, "AccessDenied", "the right for writing is missing", "grant reading, writing"),
    (400, "ExpiredToken", "the credentials have expired", "renew the credentials"),
    (403, "InvalidAccessKeyId", "the credentials are unknown or wrong", "correct the credentials"),
    (403, "RequestTimeTooSkewed", "the clock of this machine differs", "timedatectl set-ntp true"),
    (404, "NoSuchBucket", "the bucket does not exist", "aws s3 mb"),
    (507, "QuotaExceeded", "it has no room left", "make room or raise the quota"),
]


@pytest.mark.slow
def test_each_failure_is_told_with_what_mends_it(log: EmbeddedBroker, stub: S3Stub, tmp_path: Path) -> None:
    rng, data, values = random.Random(1), tmp_path / "data", []

    def more(count: int) -> None:
        new = [rng.randbytes(500) for _ in range(count)]
        values.extend(new)
        fill(log.bootstrap, ["orders"], new)

    more(RECORDS)
    wait_until(lambda: copied_up_to(log, "orders") == local_bases(data, "orders")[-1], "segments are copied")
    (sound,) = wait_until(lambda: findings(log), "doctor says something")
    assert sound.level == "ok"
    for status, code, words, advice in CASES:
        before = {key: body for key, body in stub.bucket.objects.items() if "/seg/" in key}
        stub.plan(
            Fault("PUT", status=status, code=code, times=EVER), Fault("POST", status=status, code=code, times=EVER)
        )
        more(100)

        def told(words: str = words) -> Any:
            return [each for each in findings(log) if each.level == "problem" and words in each.text]

        (found,) = wait_until(told, f"doctor tells of {code}")
        assert advice in found.advice, code
        assert "\n" not in found.text
        assert "tester" not in found.text, "no credentials"
        assert {key: stub.bucket.objects.get(key) for key in before} == before, "nothing is overwritten"
        low = local_bases(data, "orders")[-2]
        assert [each[2] for each in read(log.bootstrap, "orders", low, len(values))] == values[low:]
        stub.faults.clear()
        wait_until(lambda: [each.level for each in findings(log)] == ["ok"], f"it is over after {code}")
    assert [each[2] for each in read(log.bootstrap, "orders", 0, len(values))] == values
    damaged = CommandLine(log.bootstrap)
    victim = next(key for key in sorted(stub.bucket.objects) if "/seg/" in key and key.endswith(".log"))
    log.kill()
    log.restart()
    del stub.bucket.objects[victim]
    with Peer(log.port) as peer:
        wait_until(lambda: fetch_once(peer, "orders", 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR, "it is missed")
    (found,) = findings(log, "object-damaged")
    assert Path(victim).name in found.text
    assert "storage check --deep" in found.advice
    ended = damaged.run("doctor", "--json")
    assert ended.status == 5
    assert any(each["check"] == "object-damaged" for each in ended.objects)
    end = len(values)
    assert [each[2] for each in read(log.bootstrap, "orders", 200, end)] == values[200:], "all others are served"


def test_every_failure_of_a_store_has_an_advice() -> None:
    kinds = {each.__name__ for each in vars(failures).values() if isinstance(each, type)} - {
        "StoreFailed",
        "WorldError",
    }
    assert kinds == {each.partition(":")[0] for each in ADVICE} | {"ErrorCode"} & kinds
    for problem, advice in ADVICE.items():
        assert "`" in advice or "strandline.remote.store" in advice, problem


def status(**more: Any) -> list[Finding]:
    known: dict[str, Any] = {"is_open": True, "task_interval_ms": 30_000, "checkpoint_interval_ms": 60_000} | more
    return list(tier_findings([DescribeStorageResponse(node_id=1, tiers=[TierStatus(**known)])]))


def test_copies_and_checkpoints_that_are_late_are_warnings() -> None:
    assert [each.level for each in status()] == ["ok"]
    assert [each.level for each in status(lag_segments=2, lag_bytes=10, lag_ms=60_000)] == ["ok"]
    (late,) = status(lag_segments=2, lag_bytes=10, lag_ms=3_600_000)
    assert (late.level, late.check) == ("warning", "copy-lag")
    assert "2 segments" in late.text
    (old,) = status(checkpoint_age_ms=600_000)
    assert (old.level, old.check) == ("warning", "checkpoint")
    assert status(is_read_only=True, lag_segments=2, lag_ms=3_600_000)[0].level == "ok"
    (closed,) = status(is_open=False, problem="StoreOfAnotherCluster", message="it belongs to another")
    assert "cannot be read" in closed.text
    assert "read.only=true" in closed.advice
