"""What is checked at the start: that a store keeps its promises, and that it belongs to this cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from strandline.runtime.runtime import Runtime
from strandline.tiers.store.failures import (
    ObjectDamaged,
    ObjectMissing,
    StoreFailed,
    StoreOfAnotherCluster,
    StoreRefused,
    StoreUnsure,
)
from strandline.tiers.store.interface import ObjectStore
from strandline.tiers.store.waiting import together

PROBE_FOLDER: Final = "probe"
MARKER_KEY: Final = "strandline-cluster.json"
MARKER_VERSION: Final = 1
RACERS: Final = 4
"""Writers that try to create one object at the same time."""
ROUNDS: Final = 3
_BODY_BYTES: Final = 4096


@dataclass(frozen=True)
class StorePromises:
    """What a store showed. What it must do is not here, because a store that does not is refused."""

    lists_at_once: bool
    """Whether a list showed an object right after it was written. Only clean-up depends on lists."""


@dataclass(frozen=True)
class StoreClaim:
    """The marker of a store. `is_new` says that this call has written it."""

    cluster_id: str
    is_new: bool


async def probe(store: ObjectStore, *, runtime: Runtime, deadline_s: float = 30.0) -> StorePromises:
    """Check that a store does what is needed, and return what else it does. Raise StoreRefused if it does not.

    The failures of the calls pass through: rights, credentials, clock, bucket. `deadline_s` limits each call.
    """
    folder = f"{PROBE_FOLDER}/{runtime.random.getrandbits(64):016x}"
    written: list[str] = []
    try:
        await _check_create(store, folder, written, runtime, deadline_s)
        promises = await _check_objects(store, f"{folder}/object", written, runtime, deadline_s)
    except StoreFailed as error:
        # Not in `finally`: a probe that is dropped must not begin another request.
        await _clean_up(store, written, deadline_s)
        if isinstance(error, ObjectMissing):
            raise StoreRefused(
                f"{store.name} does not show an object right after its write; use another store"
            ) from error
        raise
    await _clean_up(store, written, deadline_s)
    return promises


async def _clean_up(store: ObjectStore, written: list[str], deadline_s: float) -> None:
    try:
        await store.delete(written, deadline_s=deadline_s)
    except StoreFailed:
        # The failure that ended the probe is told. What is left is small and in a folder of its own.
        return


async def _check_create(
    store: ObjectStore, folder: str, written: list[str], runtime: Runtime, deadline_s: float
) -> None:
    key = f"{folder}/create"
    written.append(key)
    first, second = f"{runtime.random.getrandbits(128):032x}", f"{runtime.random.getrandbits(128):032x}"
    if not await store.create(key, first.encode(), nonce=first, deadline_s=deadline_s):
        raise StoreRefused(f"{store.name} says that {key} exists, which has a random name; use another store")
    is_second = await store.create(key, second.encode(), nonce=second, deadline_s=deadline_s)
    if is_second or await store.read_whole(key, deadline_s=deadline_s) != first.encode():
        raise _ignores_conditions(store)
    for number in range(ROUNDS):
        await _race(store, f"{folder}/race-{number}", written, runtime, deadline_s)


async def _race(store: ObjectStore, key: str, written: list[str], runtime: Runtime, deadline_s: float) -> None:
    written.append(key)
    nonces = [f"{runtime.random.getrandbits(128):032x}" for _ in range(RACERS)]
    outcomes = await together(
        runtime, [store.create(key, nonce.encode(), nonce=nonce, deadline_s=deadline_s) for nonce in nonces]
    )
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, StoreUnsure):
            raise outcome
    found = (await store.read_whole(key, deadline_s=deadline_s)).decode()
    winners = [nonce for nonce, outcome in zip(nonces, outcomes, strict=True) if outcome is True]
    if len(winners) > 1 or (winners and winners[0] != found) or found not in nonces:
        raise _ignores_conditions(store)


def _ignores_conditions(store: ObjectStore) -> StoreRefused:
    return StoreRefused(
        f"{store.name} lets several writers create one object (it ignores If-None-Match); use a store that does not"
    )


async def _check_objects(
    store: ObjectStore, key: str, written: list[str], runtime: Runtime, deadline_s: float
) -> StorePromises:
    written.append(key)
    old, body = runtime.random.randbytes(_BODY_BYTES), runtime.random.randbytes(_BODY_BYTES)
    await store.put(key, old, deadline_s=deadline_s)
    await store.put(key, body, deadline_s=deadline_s)
    found = await store.head(key, deadline_s=deadline_s)
    if await store.read_whole(key, deadline_s=deadline_s) != body or found is None or found.size != len(body):
        raise StoreRefused(f"{store.name} does not show an object right after its write; use another store")
    try:
        part = await store.read(key, 1000, 2000, deadline_s=deadline_s)
    except ObjectDamaged:
        part = b""
    if part != body[1000:3000]:
        raise StoreRefused(f"{store.name} does not return the range that it is asked for; use another store")
    listed = [each.key async for each in store.list(key.rpartition("/")[0])]
    await store.delete([key], deadline_s=deadline_s)
    await store.delete([key], deadline_s=deadline_s)
    if await store.head(key, deadline_s=deadline_s) is not None:
        raise StoreRefused(f"{store.name} still shows an object that was deleted; use another store")
    return StorePromises(lists_at_once=key in listed)


async def claim(
    store: ObjectStore, cluster_id: str, *, runtime: Runtime, deadline_s: float = 30.0, is_read_only: bool = False
) -> StoreClaim:
    """Write the cluster id into a store that has none. Raise StoreOfAnotherCluster if it has another.

    A read-only user writes nothing and may have any id; `cluster_id` is then not compared, and the marker must exist.
    """
    try:
        found = await store.read_whole(MARKER_KEY, deadline_s=deadline_s)
    except ObjectMissing:
        if is_read_only:
            raise
        nonce = f"{runtime.random.getrandbits(128):032x}"
        marker = {"version": MARKER_VERSION, "cluster_id": cluster_id, "nonce": nonce}
        body = json.dumps(marker, sort_keys=True).encode()
        if await store.create(MARKER_KEY, body, nonce=nonce, deadline_s=deadline_s):
            return StoreClaim(cluster_id, is_new=True)
        found = await store.read_whole(MARKER_KEY, deadline_s=deadline_s)
    owner = _owner(store, found)
    if owner != cluster_id and not is_read_only:
        raise StoreOfAnotherCluster(
            f"{store.name} belongs to the cluster {owner} by its object {MARKER_KEY}, and this is {cluster_id}; "
            "use another bucket or prefix"
        )
    return StoreClaim(owner, is_new=False)


def _owner(store: ObjectStore, body: bytes) -> str:
    try:
        marker = json.loads(body)
        version, owner = marker["version"], marker["cluster_id"]
    except (ValueError, KeyError, TypeError):
        version, owner = 0, None
    if not isinstance(owner, str) or not owner:
        raise ObjectDamaged(
            f"{store.name} holds {MARKER_KEY} with content that is no marker of a cluster; restore it from a backup"
        )
    if version != MARKER_VERSION:
        raise StoreRefused(f"{store.name} has version {version} of {MARKER_KEY}; use a newer Strandline")
    return owner
