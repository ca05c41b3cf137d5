"""Object stores of connectors: their settings, how one is opened, and what its errors mean."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from obstore import exceptions as store_errors
from obstore.store import ObjectStore, from_url

from strandline.connect.config import Config, Password, option
from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RetriableFailure
from strandline.connect.paths import PathRules

SCHEMES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss", "file", "memory")
STORE_ERRORS: Final = (store_errors.BaseError, OSError, ValueError)
"""What obstore raises."""
_OPTION_PREFIX: Final = "store.option."
_OPTION_NAMES: Final = ("aws_", "azure_", "google_")
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
    FileNotFoundError,
    ValueError,
)


def _scheme_problem(value: str) -> str | None:
    if urlsplit(value).scheme in SCHEMES:
        return None
    return f"it begins with one of {', '.join(f'{each}://' for each in SCHEMES)}"


class StoreConfig(Config):
    """Settings of a store. Others of it have the prefix `store.option.`."""

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


def open_store(config: StoreConfig, paths: PathRules, *, makes_directory: bool = False) -> ObjectStore:
    """Return the store of a config. Raise InvalidConnectorConfig if its settings are wrong, or not allowed."""
    url = config.store_url
    arguments: dict[str, Any] = {}
    scheme = urlsplit(url).scheme
    if scheme == "file":
        # The resolved path is opened, so that a link cannot change in between.
        url = paths.check_url(url)
        arguments = {"mkdir": makes_directory}
    elif scheme != "memory":
        arguments = {"config": _settings(config), "client_options": {"allow_http": config.store_allow_http}}
    try:
        return from_url(url, **arguments)
    except STORE_ERRORS as error:
        raise InvalidConnectorConfig(f"store.url: {url} cannot be opened: {first_line(error)}") from None


def _settings(config: StoreConfig) -> dict[str, str]:
    """Return obstore's own settings."""
    given = config.properties
    found = {name: given[each] for each, name in _STORE_OPTIONS.items() if each in given}
    for each, value in given.items():
        if not each.startswith(_OPTION_PREFIX):
            continue
        name = each.removeprefix(_OPTION_PREFIX).replace(".", "_")
        if not name.startswith(_OPTION_NAMES):
            # obstore would panic, and end the worker.
            raise InvalidConnectorConfig(f"{each} does not name an option that begins with {', '.join(_OPTION_NAMES)}")
        found[name] = value
    return found


def store_failure(error: Exception, what: str) -> ConnectFailed:
    """Return the failure for an error of the store: a connection may come back, a wrong password does not."""
    kind = ConnectFailed if isinstance(error, _FOR_GOOD) else RetriableFailure
    return kind(f"{what}: {first_line(error)}")


def first_line(error: Exception) -> str:
    """Return what happened, without the details of the library."""
    return str(error).partition("\n")[0]
