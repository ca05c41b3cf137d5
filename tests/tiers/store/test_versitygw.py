"""Against a real server, with the fault proxy between: the only test here that judges fencing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.connect.s3_server import BUCKET, S3Server
from tests.tiers.store.s3_stub import Fault, S3Stub, forward_to, serving
from tests.tiers.store.versitygw import gateway, options_of

from strandline.runtime.runtime import Runtime
from strandline.tiers.store.object_store import (
    BucketMissing,
    GuardedStore,
    RetryRules,
    StoreDenied,
    StoreUnavailable,
    StoreUnsure,
    claim,
    open_store,
    probe,
)
from strandline.tiers.store.waiting import together

pytestmark = pytest.mark.slow
pytest.importorskip("obstore")

WRITERS = 12
ROUNDS = 20
RULES = RetryRules(pause_s=0.01, pause_s_max=0.2)


@dataclass
class Served:
    gateway: S3Server
    proxy: S3Stub


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    server = gateway(tmp_path / "gateway", monkeypatch)
    with serving(forward_to(server.port)) as proxy:
        yield Served(server, proxy)
    server.kill()


async def test_one_winner_a_round_whatever_the_proxy_does(served: Served, runtime: Runtime) -> None:
    chance = random.Random(28)
    print("seed 28")
    stores = [
        GuardedStore(
            open_store(f"s3://{BUCKET}/p", options_of(served.proxy.port), runtime=runtime), runtime, rules=RULES
        )
        for _ in range(WRITERS)
    ]
    for round_number in range(ROUNDS):
        key = f"chain/{round_number:020}"
        for method in ("PUT", "PUT", "PUT", "GET", "GET"):
            served.proxy.plan(
                chance.choice(
                    [
                        Fault(method, loses="after"),
                        Fault(method, loses="before"),
                        Fault(method, status=503, code="SlowDown"),
                        Fault(method, delay_s=0.05),
                        Fault("PUT", status=409, code="ConditionalRequestConflict"),
                    ]
                )
            )
        bodies = [f"writer-{each:04} in round {round_number}".encode() for each in range(WRITERS)]
        outcomes = await together(
            runtime,
            [
                store.create(key, body, nonce=body.decode(), deadline_s=30.0)
                for store, body in zip(stores, bodies, strict=True)
            ],
        )
        assert sorted(outcomes, key=str) == [False] * (WRITERS - 1) + [True], f"round {round_number}: {outcomes}"
        assert await stores[0].read_whole(key, deadline_s=30.0) == bodies[outcomes.index(True)]
    assert sum(store.counters.retries for store in stores) > 0


async def test_a_restart_of_the_server_is_outlived(served: Served, runtime: Runtime) -> None:
    raw = open_store(f"s3://{BUCKET}/p", options_of(served.gateway.port), runtime=runtime)
    store = GuardedStore(raw, runtime, rules=RULES)
    await probe(store, runtime=runtime)
    assert (await claim(store, "cluster-a", runtime=runtime)).is_new
    served.gateway.kill()
    with pytest.raises(StoreUnavailable, match="refused"):
        await store.put("k", b"x", deadline_s=0.5)
    with pytest.raises(StoreUnsure):
        await store.create("n", b"12345678", nonce="12345678", deadline_s=0.5)
    served.gateway.start()
    await store.put("k", b"x", deadline_s=30.0)
    assert not (await claim(store, "cluster-a", runtime=runtime)).is_new


async def test_its_refusals_are_understood(served: Served, runtime: Runtime) -> None:
    good = options_of(served.gateway.port)
    for options in (good | {"aws_secret_access_key": "wrong"}, good | {"aws_access_key_id": "unknown"}):
        store = open_store(f"s3://{BUCKET}/p", options, runtime=runtime)
        with pytest.raises(StoreDenied, match="unknown or wrong") as caught:
            await store.put("k", b"x", deadline_s=10.0)
        assert caught.value.reason == "credentials"
    with pytest.raises(BucketMissing, match="no-such-bucket"):
        await open_store("s3://no-such-bucket/p", good, runtime=runtime).put("k", b"x", deadline_s=10.0)
