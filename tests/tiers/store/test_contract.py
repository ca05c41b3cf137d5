"""What every store must do, whatever it is made of."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from strandline.runtime.runtime import Runtime
from strandline.tiers.store.interface import PART_BYTES
from strandline.tiers.store.object_store import ObjectDamaged, ObjectMissing, ObjectStore, claim, probe
from strandline.tiers.store.waiting import together

S = 20.0


async def keys(store: ObjectStore, prefix: str, after: str = "") -> list[str]:
    found = [each.key async for each in store.list(prefix, after=after)]
    if "LocalStore" in repr(getattr(store, "_store", "")):
        # The one of obstore that has no order.
        found.sort()
    return found


async def test_an_object_is_read_as_it_was_written(store: ObjectStore, tmp_path: Path) -> None:
    body = random.Random(1).randbytes(100_000)
    written = await store.put("a/b/object.bin", body, deadline_s=S)
    assert (written.key, written.size) == ("a/b/object.bin", len(body))
    assert await store.read_whole("a/b/object.bin", deadline_s=S) == body
    assert await store.read("a/b/object.bin", 0, len(body), deadline_s=S) == body
    assert await store.read("a/b/object.bin", 77_777, 1, deadline_s=S) == body[77_777:77_778]
    assert await store.read("a/b/object.bin", 99_990, 10, deadline_s=S) == body[-10:]
    # A view of what a library holds must not change, either.
    assert memoryview(await store.read("a/b/object.bin", 5, 5, deadline_s=S)).readonly
    found = await store.head("a/b/object.bin", deadline_s=S)
    # A PUT is answered without the time of the object.
    assert found._replace(modified_ms=written.modified_ms) == written
    await store.put("a/view", memoryview(bytearray(body))[10:20], deadline_s=S)
    assert await store.read_whole("a/view", deadline_s=S) == body[10:20]
    (tmp_path / "file").write_bytes(body)
    assert (await store.put("a/file", tmp_path / "file", deadline_s=S)).size == len(body)
    assert await store.read_whole("a/file", deadline_s=S) == body
    assert (await store.put("empty", b"", deadline_s=S)).size == 0
    assert await store.read_whole("empty", deadline_s=S) == b""


async def test_a_put_replaces_and_its_tag_changes(store: ObjectStore) -> None:
    first = await store.put("x", b"first", deadline_s=S)
    second = await store.put("x", b"second!", deadline_s=S)
    assert first.e_tag != second.e_tag
    assert await store.read_whole("x", deadline_s=S) == b"second!"
    found = await store.head("x", deadline_s=S)
    assert found._replace(modified_ms=second.modified_ms) == second


async def test_a_large_object_is_written_in_parts(store: ObjectStore, tmp_path: Path) -> None:
    body = random.Random(2).randbytes(PART_BYTES + 12_345)
    await store.put("large", body, deadline_s=60.0)
    assert await store.read("large", PART_BYTES - 5, 10, deadline_s=S) == body[PART_BYTES - 5 : PART_BYTES + 5]
    (tmp_path / "file").write_bytes(body)
    assert (await store.put("large-file", tmp_path / "file", deadline_s=60.0)).size == len(body)
    assert await store.read_whole("large-file", deadline_s=60.0) == body


async def test_what_is_missing_or_short_is_named(store: ObjectStore) -> None:
    for call in (store.read("no/such", 0, 1, deadline_s=S), store.read_whole("no/such", deadline_s=S)):
        with pytest.raises(ObjectMissing, match="no/such"):
            await call
    assert await store.head("no/such", deadline_s=S) is None
    await store.put("short", b"12345", deadline_s=S)
    for start, length in ((0, 6), (4, 2), (5, 1), (100, 1)):
        with pytest.raises(ObjectDamaged, match="short"):
            await store.read("short", start, length, deadline_s=S)
    for start, length in ((0, 0), (-1, 2), (2, -1)):
        with pytest.raises(ValueError, match="range"):
            await store.read("short", start, length, deadline_s=S)
    with pytest.raises(OSError, match="none"):
        await store.put("from-file", Path("/none/none"), deadline_s=S)


async def test_one_of_several_writers_creates(store: ObjectStore, runtime: Runtime) -> None:
    for round_number in range(5):
        key = f"chain/{round_number:020}"
        bodies = {f"writer-{each:04}": f"body of writer-{each:04}".encode() for each in range(12)}
        outcomes = await together(
            runtime, [store.create(key, body, nonce=nonce, deadline_s=S) for nonce, body in bodies.items()]
        )
        assert sorted(outcomes, key=str) == [False] * 11 + [True], outcomes
        winner = list(bodies)[outcomes.index(True)]
        assert await store.read_whole(key, deadline_s=S) == bodies[winner]
        # The same call again finds out what it was.
        assert await store.create(key, bodies[winner], nonce=winner, deadline_s=S)
        loser = next(each for each in bodies if each != winner)
        assert not await store.create(key, bodies[loser], nonce=loser, deadline_s=S)


async def test_a_create_needs_its_nonce_in_the_body(store: ObjectStore) -> None:
    for nonce in ("12345678", "body"):
        with pytest.raises(ValueError, match="nonce"):
            await store.create("x", b"body without one", nonce=nonce, deadline_s=S)
    assert await store.head("x", deadline_s=S) is None


async def test_lists_go_below_a_folder_and_on_after_a_key(store: ObjectStore) -> None:
    names = ["a/1", "a/2/x", "a/2-y", "a/2.z", "ab/1", "b", "c/d/e/f"]
    for name in names:
        await store.put(name, name.encode(), deadline_s=S)
    assert await keys(store, "") == sorted(names)
    assert await keys(store, "a") == await keys(store, "a/") == ["a/1", "a/2-y", "a/2.z", "a/2/x"]
    assert await keys(store, "", after="a/2.z") == ["a/2/x", "ab/1", "b", "c/d/e/f"]
    assert await keys(store, "a", after="a/2.zz") == ["a/2/x"]
    assert await keys(store, "none") == await keys(store, "b") == []
    found = [each async for each in store.list("c")]
    assert [(each.key, each.size) for each in found] == [("c/d/e/f", 7)]
    assert found[0] == await store.head("c/d/e/f", deadline_s=S)


async def test_deletes_are_many_and_may_meet_nothing(store: ObjectStore) -> None:
    names = [f"d/{each % 7}/{each}" for each in range(60)]
    for name in names:
        await store.put(name, b"x", deadline_s=S)
    await store.delete([*names[:30], "d/none", "e/none/none"], deadline_s=S)
    assert await keys(store, "d") == sorted(names[30:])
    await store.delete(names, deadline_s=S)
    await store.delete([], deadline_s=S)
    assert await keys(store, "") == []


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", ".tmp/x", "a b", "a\n", "ä", "a" * 801])
async def test_keys_that_could_mean_something_else_are_refused(store: ObjectStore, key: str) -> None:
    for call in (
        store.put(key, b"", deadline_s=S),
        store.create(key, b"12345678", nonce="12345678", deadline_s=S),
        store.read(key, 0, 1, deadline_s=S),
        store.read_whole(key, deadline_s=S),
        store.head(key, deadline_s=S),
        store.delete([key], deadline_s=S),
    ):
        with pytest.raises(ValueError, match="not allowed"):
            await call


async def test_a_sound_store_passes_the_probe_and_is_claimed_once(store: ObjectStore, runtime: Runtime) -> None:
    assert (await probe(store, runtime=runtime)).lists_at_once
    assert await keys(store, "") == []
    assert (await claim(store, "cluster-a", runtime=runtime)).is_new
    assert not (await claim(store, "cluster-a", runtime=runtime)).is_new
