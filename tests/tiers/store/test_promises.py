"""Stores that break a promise are refused, and those of another cluster too."""

from __future__ import annotations

import random

import pytest
from tests.tiers.store.faulty_store import FaultyStore, StoreFaults
from tests.tiers.store.s3_stub import BUCKET, Fault, Response, S3Stub

from strandline.runtime.runtime import Runtime
from strandline.tiers.store.memory_store import MemoryStore
from strandline.tiers.store.object_store import (
    GuardedStore,
    ObjectDamaged,
    ObjectMissing,
    ObjectStore,
    RetryRules,
    StoreDenied,
    StoreFailed,
    StoreOfAnotherCluster,
    StoreRefused,
    StoreWrongClock,
    claim,
    open_store,
    probe,
)
from strandline.tiers.store.promises import MARKER_KEY

FAST = RetryRules(pause_s=0.002, pause_s_max=0.02)


@pytest.fixture
def s3(stub: S3Stub, runtime: Runtime) -> ObjectStore:
    pytest.importorskip("obstore")
    return GuardedStore(open_store(f"s3://{BUCKET}/pre", stub.options, runtime=runtime), runtime, rules=FAST)


async def test_a_store_that_ignores_if_none_match_is_refused(s3: ObjectStore, stub: S3Stub, runtime: Runtime) -> None:
    stub.bucket.ignores_conditions = True
    with pytest.raises(StoreRefused, match=r"^s3://lake/pre lets several writers .* If-None-Match"):
        await probe(s3, runtime=runtime)
    assert stub.bucket.objects == {}


class RacyStore(MemoryStore):
    """A store whose check and write are two steps, so that only a race shows that it has several winners."""

    async def create(self, key: str, body: bytes, *, nonce: str, deadline_s: float) -> bool:
        from strandline.tiers.store.waiting import pause

        is_free = key not in self.objects
        await pause(self.runtime, 0.01)  # type: ignore[attr-defined]
        if is_free:
            await self.put(key, body, deadline_s=deadline_s)
        return is_free


async def test_a_store_with_two_winners_of_a_race_is_refused(runtime: Runtime) -> None:
    store = RacyStore()
    store.runtime = runtime  # type: ignore[attr-defined]
    with pytest.raises(StoreRefused, match="several writers"):
        await probe(store, runtime=runtime)


@pytest.mark.parametrize(
    ("flaw", "words"),
    [("ignores_ranges", "does not return the range"), ("ignores_deletes", "still shows an object")],
)
async def test_other_broken_promises_are_refused(
    flaw: str, words: str, s3: ObjectStore, stub: S3Stub, runtime: Runtime
) -> None:
    setattr(stub.bucket, flaw, True)
    with pytest.raises(StoreRefused, match=words):
        await probe(s3, runtime=runtime)


class StaleStore(MemoryStore):
    """A store whose reads come late: they show the object before the last one."""

    async def read_whole(self, key: str, *, deadline_s: float) -> bytes:
        found = await super().read_whole(key, deadline_s=deadline_s)
        return found if "object" not in key else b"old" + found[3:]


async def test_a_store_without_read_after_write_is_refused(runtime: Runtime) -> None:
    with pytest.raises(StoreRefused, match="right after its write"):
        await probe(StaleStore(), runtime=runtime)


@pytest.mark.parametrize(
    ("status", "code", "method", "failure"),
    [
        (403, "AccessDenied", "PUT", StoreDenied),
        (403, "AccessDenied", "GET", StoreDenied),
        (403, "AccessDenied", "POST", StoreDenied),
        (403, "RequestTimeTooSkewed", "PUT", StoreWrongClock),
        (501, "NotImplemented", "PUT", StoreRefused),
    ],
)
async def test_what_keeps_the_probe_from_its_work_is_said(
    status: int, code: str, method: str, failure: type[StoreFailed], s3: ObjectStore, stub: S3Stub, runtime: Runtime
) -> None:
    stub.plan(Fault(method, status=status, code=code, times=999))
    with pytest.raises(failure):
        await probe(s3, runtime=runtime)


async def test_a_sound_store_passes_through_faults(runtime: Runtime) -> None:
    faults = StoreFaults(unavailable=0.2, conflict=0.2, lost=0.2, cut=0.1, short_range=0.2, late_list_s=9e9)
    shown = set()
    for seed in range(10):
        faulty = FaultyStore(MemoryStore(), runtime, random.Random(seed), faults)
        store = GuardedStore(faulty, runtime, rules=RetryRules(pause_s=1e-4, pause_s_max=1e-3, damaged_tries_max=9))
        shown.add((await probe(store, runtime=runtime)).lists_at_once)
        assert faulty.injected, f"seed {seed}"
    assert shown == {True, False}


# The marker


async def test_a_store_of_another_cluster_is_refused(runtime: Runtime) -> None:
    store = MemoryStore()
    assert (await claim(store, "cluster-a", runtime=runtime)).is_new
    before = dict(store.objects)
    with pytest.raises(StoreOfAnotherCluster, match=r"cluster-a .* this is cluster-b; use another bucket or prefix"):
        await claim(store, "cluster-b", runtime=runtime)
    assert store.objects == before
    assert not (await claim(store, "cluster-a", runtime=runtime)).is_new
    assert (await claim(store, "", runtime=runtime, is_read_only=True)).cluster_id == "cluster-a"


async def test_a_reader_writes_no_marker(runtime: Runtime) -> None:
    store = MemoryStore()
    with pytest.raises(ObjectMissing):
        await claim(store, "", runtime=runtime, is_read_only=True)
    assert store.objects == {}


async def test_the_marker_is_ours_after_a_lost_answer(s3: ObjectStore, stub: S3Stub, runtime: Runtime) -> None:
    stub.plan(Fault("PUT", loses="after"))
    assert (await claim(s3, "cluster-a", runtime=runtime)).is_new


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff", b"[]", b"{}", b'{"version":1}', b'{"version":1,"cluster_id":7}', b'{"version":1,"cluster_id":""}'],
)
async def test_a_marker_that_was_edited_is_refused_and_kept(body: bytes, runtime: Runtime) -> None:
    store = MemoryStore()
    await store.put(MARKER_KEY, body, deadline_s=1.0)
    with pytest.raises(ObjectDamaged, match="no marker of a cluster"):
        await claim(store, "cluster-a", runtime=runtime)
    assert store.objects == {MARKER_KEY: body}


async def test_a_marker_of_a_later_version_is_refused(runtime: Runtime) -> None:
    store = MemoryStore()
    await store.put(MARKER_KEY, b'{"version": 2, "cluster_id": "cluster-a"}', deadline_s=1.0)
    with pytest.raises(StoreRefused, match="newer Strandline"):
        await claim(store, "cluster-a", runtime=runtime)


async def test_the_clusters_of_a_race_agree_on_one(s3: ObjectStore, stub: S3Stub, runtime: Runtime) -> None:
    from strandline.tiers.store.waiting import together

    stub.plan(Fault("GET", changes=lambda answer: Response(404), times=4))
    outcomes = await together(runtime, [claim(s3, f"cluster-{each}", runtime=runtime) for each in range(4)])
    assert sum(not isinstance(each, BaseException) for each in outcomes) == 1
    assert sum(isinstance(each, StoreOfAnotherCluster) for each in outcomes) == 3
