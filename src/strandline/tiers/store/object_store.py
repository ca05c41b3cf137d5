"""The door to object stores: open one, and guard it with retries, a budget and counters."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from strandline.runtime.runtime import LoopRuntime, Runtime
from strandline.tiers.store.budget import BudgetedStore, RequestBudget
from strandline.tiers.store.counters import CountedStore, StoreCounters
from strandline.tiers.store.directory_store import DirectoryStore
from strandline.tiers.store.failures import (
    BucketMissing,
    ObjectDamaged,
    ObjectMissing,
    StoreDenied,
    StoreFailed,
    StoreFull,
    StoreMisconfigured,
    StoreOfAnotherCluster,
    StoreRefused,
    StoreUnavailable,
    StoreUnsure,
    StoreWrongClock,
)
from strandline.tiers.store.interface import DELETE_KEYS_MAX, ObjectStore, StoredObject, check_key
from strandline.tiers.store.memory_store import MemoryStore
from strandline.tiers.store.promises import StoreClaim, StorePromises, claim, probe
from strandline.tiers.store.retries import RetryingStore, RetryRules

__all__ = [
    "DELETE_KEYS_MAX",
    "BucketMissing",
    "GuardedStore",
    "ObjectDamaged",
    "ObjectMissing",
    "ObjectStore",
    "RequestBudget",
    "RetryRules",
    "StoreClaim",
    "StoreCounters",
    "StoreDenied",
    "StoreFailed",
    "StoreFull",
    "StoreMisconfigured",
    "StoreOfAnotherCluster",
    "StorePromises",
    "StoreRefused",
    "StoreUnavailable",
    "StoreUnsure",
    "StoreWrongClock",
    "StoredObject",
    "claim",
    "open_store",
    "probe",
]

CLOUD_SCHEMES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")
REQUESTS_PER_S: Final = 1000.0
"""S3 takes 3,500 writes a second and prefix, from all nodes together."""
IN_FLIGHT_MAX: Final = 64
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,200}")


def open_store(url: str, options: Mapping[str, str], *, runtime: Runtime | None = None) -> ObjectStore:
    """Return the store at `s3://`, `gs://`, `az://bucket/prefix`, `file:///directory` or `memory://`.

    It makes one attempt a call. `options` are the words of obstore and of the AWS environment, in any case. Without a
    `runtime` it takes one of the running loop. Raise StoreMisconfigured if address or options are malformed.
    """
    try:
        parts = urlsplit(url)
        is_plain = parts.password is None and not parts.query and not parts.fragment
    except ValueError:
        raise StoreMisconfigured("the address of the object store is malformed; correct it") from None
    if not is_plain or (parts.username is not None and not parts.scheme.startswith("abfs")):
        raise StoreMisconfigured(
            f"the address of the {parts.scheme}:// store holds more than bucket and prefix; give the rest as options"
        )
    if parts.scheme == "memory":
        return MemoryStore(url)
    if runtime is None:
        runtime = LoopRuntime(asyncio.get_running_loop())
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.strip("/"):
            raise StoreMisconfigured(f"{url} does not name a directory; write file:///directory")
        return DirectoryStore(Path(unquote(parts.path)), runtime)
    if parts.scheme not in CLOUD_SCHEMES:
        raise StoreMisconfigured(
            f"the address of the object store begins with {parts.scheme or 'nothing'}://; use s3://, gs://, az://, "
            "file:/// or memory://"
        )
    if _BUCKET.fullmatch(parts.netloc) is None:
        raise StoreMisconfigured(f"{url} does not name a bucket; write {parts.scheme}://bucket/prefix")
    prefix = parts.path.strip("/")
    try:
        if prefix:
            check_key(prefix)
    except ValueError:
        raise StoreMisconfigured(f"{url} has a prefix that is not allowed; use letters, digits, - and _") from None
    try:
        # Late, because a node without such a store must not load 20 MB of a library that it may not even have.
        from strandline.tiers.store.obstore_store import open_obstore
    except ImportError as error:
        raise StoreMisconfigured(f"{url} needs the package obstore; run `pip install 'strandline[tiers]'`") from error
    return open_obstore(url, url.rstrip("/"), parts.scheme, options, runtime)


class GuardedStore(RetryingStore):
    """A raw store with retries around a budget around counters. `replace` brings new credentials without a restart."""

    def __init__(
        self,
        store: ObjectStore,
        runtime: Runtime,
        *,
        rules: RetryRules | None = None,
        budget: RequestBudget | None = None,
        counters: StoreCounters | None = None,
    ) -> None:
        counters = counters or StoreCounters()
        self.budget: Final = budget or RequestBudget(
            runtime, requests_per_s=REQUESTS_PER_S, in_flight_max=IN_FLIGHT_MAX
        )
        self._counted = CountedStore(store, runtime, counters)
        super().__init__(BudgetedStore(self._counted, runtime, self.budget), runtime, rules, counters=counters)

    def __repr__(self) -> str:
        return f"GuardedStore({self.name!r})"

    def replace(self, store: ObjectStore) -> None:
        """Use another raw store from the next attempt on, for example one with renewed credentials."""
        self._counted.inner = store
