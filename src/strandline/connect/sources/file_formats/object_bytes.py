"""Objects of a store: its settings, a listing, and the bytes of one object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import obstore
from obstore import exceptions as store_errors
from obstore.store import ObjectStore, from_url

from strandline.connect.config import Password, option
from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RetriableFailure
from strandline.connect.paths import PathRules
from strandline.connect.sources.file_formats.format_config import FormatConfig

WINDOW_BYTES: Final = 8 << 20
"""Bytes of one request: a store takes as long for a few as for these."""
SCHEMES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss", "file", "memory")
_OPTION_PREFIX: Final = "store.option."
_STORE_OPTIONS: Final = {
    "store.access.key.id": "aws_access_key_id",
    "store.secret.access.key": "aws_secret_access_key",
    "store.session.token": "aws_session_token",
    "store.region": "aws_region",
    "store.endpoint": "aws_endpoint",
    "store.service.account.key": "google_service_account_key",
    "store.account.name": "azure_storage_account_name",
    "store.account.key": "azure_storage_account_key",
}
_FOR_GOOD: Final = (
    store_errors.PermissionDeniedError,
    store_errors.UnauthenticatedError,
    store_errors.UnknownConfigurationKeyError,
    store_errors.InvalidPathError,
    store_errors.NotSupportedError,
)


def _scheme_problem(value: str) -> str | None:
    if urlsplit(value).scheme in SCHEMES:
        return None
    return f"it begins with one of {', '.join(f'{each}://' for each in SCHEMES)}"


class StoreConfig(FormatConfig):
    """Settings of a store that is read. Others of it have the prefix `store.option.`."""

    store_url: str = option(
        "Where the objects are: s3://bucket/path, gs://, az:// or file:///directory.",
        importance="HIGH",
        check=_scheme_problem,
    )
    store_access_key_id: str | None = option("Access key of S3; without one the environment's is used.", default=None)
    store_secret_access_key: Password | None = option("Secret of the access key of S3.", default=None)
    store_session_token: Password | None = option("Session token of S3.", default=None)
    store_region: str | None = option("Region of S3.", default=None)
    store_endpoint: str | None = option("Address of a server that speaks S3, for example MinIO.", default=None)
    store_allow_http: bool = option("Whether the endpoint may be without TLS.", default=False)
    store_service_account_key: Password | None = option("Key of a Google service account, as JSON.", default=None)
    store_account_name: str | None = option("Azure's storage account.", default=None)
    store_account_key: Password | None = option("Key of Azure's storage account.", default=None)


class StoredObject(NamedTuple):
    """An object as it is listed. `version` changes when it is replaced."""

    name: str
    size: int
    version: str
    modified_ms: int
    e_tag: str | None


def open_store(config: StoreConfig, paths: PathRules) -> ObjectStore:
    """Return the store of a config. Raise InvalidConnectorConfig if the settings are wrong."""
    url, given = config.store_url, config.properties
    settings = {name: given[each] for each, name in _STORE_OPTIONS.items() if each in given}
    settings |= {
        name.removeprefix(_OPTION_PREFIX).replace(".", "_"): value
        for name, value in given.items()
        if name.startswith(_OPTION_PREFIX)
    }
    arguments: dict[str, Any] = {}
    scheme = urlsplit(url).scheme
    if scheme == "file":
        # The resolved path is opened, so that a link cannot change in between.
        url = paths.check(unquote(urlsplit(url).path)).as_uri()
    elif scheme != "memory":
        arguments = {"config": settings, "client_options": {"allow_http": config.store_allow_http}}
    try:
        return from_url(url, **arguments)
    except (store_errors.BaseError, OSError, ValueError) as error:
        raise InvalidConnectorConfig(f"store.url: {url} cannot be opened: {first_line(error)}") from None


def listed(store: ObjectStore, what: str) -> Iterator[StoredObject]:
    """Yield every object, in the order of the store."""
    try:
        for page in obstore.list(store, chunk_size=1000):
            for each in page:
                tag = each["e_tag"]
                modified = each["last_modified"]
                version = tag or f"{modified.isoformat()}/{each['size']}"
                yield StoredObject(each["path"], each["size"], version, int(modified.timestamp() * 1000), tag)
    except (store_errors.BaseError, OSError) as error:
        raise failure(error, f"{what} was not listed") from None


class ObjectReplaced(ConnectFailed):
    """An object is gone, or is another one than was listed."""


class ObjectBytes:
    """One object. It is read in large requests, each of which makes sure that it is still the same."""

    def __init__(self, store: ObjectStore, found: StoredObject) -> None:
        self.name = found.name
        self._store = store
        self._found = found
        self._start = 0
        self._window = b""

    def size(self) -> int:
        return self._found.size

    def read_at(self, position: int, length: int) -> bytes:
        """Return the bytes from a position on; fewer than `length` only at the end."""
        end = min(position + length, self._found.size)
        if position >= end:
            return b""
        if not self._start <= position <= end <= self._start + len(self._window):
            window_end = min(max(end, position + WINDOW_BYTES), self._found.size)
            self._window, self._start = self._request(position, window_end), position
        return self._window[position - self._start : end - self._start]

    def _request(self, start: int, end: int) -> bytes:
        options: Any = {"range": (start, end)}
        if self._found.e_tag is not None:
            options["if_match"] = self._found.e_tag
        try:
            return bytes(obstore.get(self._store, self.name, options=options).bytes())
        except (FileNotFoundError, store_errors.PreconditionError) as error:
            raise ObjectReplaced(f"the object {self.name} has changed: {first_line(error)}") from None
        except (store_errors.BaseError, OSError) as error:
            raise failure(error, f"the object {self.name} was not read") from None


def failure(error: Exception, what: str) -> ConnectFailed:
    """Return the failure for an error of the store: a connection may come back, a wrong password does not."""
    kind = ConnectFailed if isinstance(error, _FOR_GOOD) else RetriableFailure
    return kind(f"{what}: {first_line(error)}")


def first_line(error: Exception) -> str:
    """Return what happened, without the details of the library."""
    return str(error).partition("\n")[0]
