"""S3, Google Cloud Storage and Azure, by obstore, one attempt a call.

obstore's own retries are off, because they hide lost answers from the code that must know about them. An upload in
parts that is cut leaves its parts in the store. Obstore has no call that lists them, so a lifecycle rule of the bucket
removes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import obstore
from obstore import exceptions as store_errors
from obstore.store import from_url

from strandline.runtime.runtime import Runtime
from strandline.tiers.store.conditional import check_create, read_back
from strandline.tiers.store.failures import (
    ObjectDamaged,
    ObjectMissing,
    StoreFailed,
    StoreMisconfigured,
    StoreUnavailable,
)
from strandline.tiers.store.interface import (
    DELETE_KEYS_MAX,
    PART_BYTES,
    PARTS_MAX,
    StoredObject,
    below,
    check_key,
    check_range,
    size_of,
)
from strandline.tiers.store.obstore_errors import failure_of
from strandline.tiers.store.waiting import Deadline, LateAnswer, in_thread, within

T = TypeVar("T")

UPLOADED_PARTS_MAX: Final = 4
"""Parts of one object on their way at a time. Each is held in memory."""
LIST_PAGE_S: Final = 60.0
"""What one page of a list may take."""
_ERRORS: Final = (store_errors.BaseError, OSError, ValueError)
_PREFIXES: Final = {"s3": "aws_", "s3a": "aws_", "gs": "google_", "az": "azure_", "abfs": "azure_", "abfss": "azure_"}
_CLIENT: Final = {
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "read_timeout",
    "root_certificate",
    "user_agent",
}
_TRUE: Final = {"true", "1", "yes", "on"}
_FALSE: Final = {"false", "0", "no", "off"}
_TIMEOUT: Final = timedelta(days=1)
"""Deadlines are ours: obstore would end a long upload after 30 s."""
_NO_RETRIES: Final = {"max_retries": 0, "retry_timeout": timedelta(seconds=60)}


class ObstoreStore:
    """A store that obstore speaks to. Runs on an event loop of asyncio."""

    def __init__(self, store: Any, name: str, runtime: Runtime) -> None:
        self.name: Final = name
        self._store = store
        self._runtime = runtime

    def __repr__(self) -> str:
        return f"ObstoreStore({self.name!r})"

    async def put(self, key: str, body: bytes | memoryview | Path, *, deadline_s: float) -> StoredObject:
        check_key(key)
        deadline = Deadline(self._runtime, deadline_s)
        is_file = isinstance(body, Path)
        size = await in_thread(self._runtime, lambda: size_of(body)) if is_file else size_of(body)
        if size > PART_BYTES * PARTS_MAX:
            raise StoreFailed(f"{self.name} cannot hold {key}: {size} bytes are more than one object may have")

        def write() -> Awaitable[Any]:
            return obstore.put_async(
                self._store,
                key,
                body,
                use_multipart=size > PART_BYTES,
                chunk_size=PART_BYTES,
                max_concurrency=UPLOADED_PARTS_MAX,
            )

        result = await self._call(write, "write", key, deadline, of_file=is_file)
        return StoredObject(key, size, result["e_tag"])

    async def create(self, key: str, body: bytes, *, nonce: str, deadline_s: float) -> bool:
        check_create(key, body, nonce)
        deadline = Deadline(self._runtime, deadline_s)
        return await read_back(self, self._put_new(key, body, deadline), key, body, nonce, deadline)

    async def _put_new(self, key: str, body: bytes, deadline: Deadline) -> None:
        def write() -> Awaitable[Any]:
            return obstore.put_async(self._store, key, body, mode="create", use_multipart=False)

        await self._call(
            write, "create", key, deadline, expected=(store_errors.AlreadyExistsError, store_errors.PreconditionError)
        )

    async def read(self, key: str, start: int, length: int, *, deadline_s: float) -> bytes | memoryview:
        check_key(key)
        check_range(start, length)
        deadline = Deadline(self._runtime, deadline_s)

        def ask() -> Awaitable[Any]:
            return obstore.get_range_async(self._store, key, start=start, length=length)

        found = await self._call(ask, "read", key, deadline)
        if len(found) != length:
            raise ObjectDamaged(
                f"{self.name} returned {len(found)} bytes of {key} from {start} on and not {length}; "
                "run `strandline storage check`"
            )
        return memoryview(found)

    async def read_whole(self, key: str, *, deadline_s: float) -> bytes:
        check_key(key)
        deadline = Deadline(self._runtime, deadline_s)
        got = await self._call(lambda: obstore.get_async(self._store, key), "read", key, deadline)
        return bytes(await self._call(got.bytes_async, "read", key, deadline))

    async def head(self, key: str, *, deadline_s: float) -> StoredObject | None:
        check_key(key)
        deadline = Deadline(self._runtime, deadline_s)
        try:
            found = await self._call(lambda: obstore.head_async(self._store, key), "describe", key, deadline)
        except ObjectMissing:
            return None
        return StoredObject(key, found["size"], found["e_tag"], _ms_of(found))

    async def delete(self, keys: Sequence[str], *, deadline_s: float) -> None:
        for key in keys:
            check_key(key)
        deadline = Deadline(self._runtime, deadline_s)
        for first in range(0, len(keys), DELETE_KEYS_MAX):
            await self._delete(list(keys[first : first + DELETE_KEYS_MAX]), deadline)

    async def _delete(self, keys: Sequence[str], deadline: Deadline) -> None:
        try:
            what = keys[0] if len(keys) == 1 else f"{keys[0]} and {len(keys) - 1} more"
            await self._call(lambda: obstore.delete_async(self._store, keys), "delete", what, deadline)
        except ObjectMissing:
            # Google and Azure stop at a missing object without saying which it is.
            if len(keys) > 1:
                half = len(keys) // 2
                await self._delete(keys[:half], deadline)
                await self._delete(keys[half:], deadline)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[StoredObject]:
        folder = below(prefix)
        pages = obstore.list(self._store, folder.rstrip("/") or None, offset=after or None, chunk_size=1000)
        while True:
            try:
                page = await self._call(lambda: anext(pages), "list", folder, Deadline(self._runtime, LIST_PAGE_S))
            except StopAsyncIteration:
                return
            for each in page:
                yield StoredObject(each["path"], each["size"], each["e_tag"], _ms_of(each))

    async def _call(
        self,
        request: Callable[[], Awaitable[T]],
        action: str,
        key: str,
        deadline: Deadline,
        *,
        expected: tuple[type[Exception], ...] = (),
        of_file: bool = False,
    ) -> T | Any:
        """Return the answer to a request within the deadline, None for an expected error."""
        try:
            # obstore sends when it is called, and returns a future of asyncio.
            return await within(self._runtime, deadline.left_s, asyncio.ensure_future(request()))
        except LateAnswer:
            raise StoreUnavailable(
                f"{self.name} did not {action} {key} in time; check the store or allow more time"
            ) from None
        except expected:
            return None
        except _ERRORS as error:
            if of_file and isinstance(error, OSError) and "status code" not in str(error):
                # The file that should be uploaded, not the object.
                raise
            # Not chained, because the text of the library's error may hold what ours must not.
            raise failure_of(error, self.name, action, key) from None


def open_obstore(url: str, name: str, scheme: str, options: Mapping[str, str], runtime: Runtime) -> ObstoreStore:
    """Return the store at an address. Raise StoreMisconfigured, in words that hold no value of an option."""
    config, client = _divided(options, name, _PREFIXES[scheme])
    try:
        store = from_url(url, config=config or None, client_options=client, retry_config=_NO_RETRIES)  # type: ignore[call-overload]
    except store_errors.UnknownConfigurationKeyError:
        raise StoreMisconfigured(f"{name}: one of the options {_names(options)} is unknown to this store") from None
    except BaseException as error:
        # The library panics on some values, with an error that is no Exception.
        if not isinstance(error, _ERRORS) and type(error).__name__ != "PanicException":
            raise
        given = (
            f"the options {_names(options)} and those of the environment" if options else "the environment's options"
        )
        raise StoreMisconfigured(f"{name} cannot be opened: check its address, {given}") from None
    return ObstoreStore(store, name, runtime)


def _divided(options: Mapping[str, str], name: str, prefix: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the options of the store and those of its HTTP client, which obstore takes apart."""
    config: dict[str, str] = {}
    client: dict[str, Any] = {"timeout": _TIMEOUT}
    for given, value in options.items():
        word = given.lower()
        bare = word.removeprefix(prefix)
        if bare in _CLIENT:
            client[bare] = _truth(given, value, name) if bare.startswith("allow_") else value
        elif word.startswith(prefix):
            config[word] = value
        else:
            raise StoreMisconfigured(f"{name}: the option {given} does not begin with {prefix}; correct or remove it")
    return config, client


def _truth(option: str, value: str, name: str) -> bool:
    if value.lower() not in _TRUE | _FALSE:
        raise StoreMisconfigured(f"{name}: the option {option} must be true or false")
    return value.lower() in _TRUE


def _names(options: Mapping[str, str]) -> str:
    return ", ".join(sorted(options))


def _ms_of(found: Mapping[str, Any]) -> int:
    return int(found["last_modified"].timestamp() * 1000)
