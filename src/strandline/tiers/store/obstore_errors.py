"""What the errors of obstore mean. Status and error code decide, because the library files many under one class."""

from __future__ import annotations

import re
from typing import Final

from strandline.tiers.store.failures import (
    BucketMissing,
    ObjectDamaged,
    ObjectMissing,
    StoreDenied,
    StoreFailed,
    StoreFull,
    StoreMisconfigured,
    StoreRefused,
    StoreUnavailable,
    StoreWrongClock,
)

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r'<Code>(\w+)</Code>|\(code: (\w+)\)|code: \\?"(\w+)|"reason\\?": \\?"(\w+)')
_TRANSPORT: Final = (
    ("ConnectionRefused", "the connection was refused"),
    ("Connection refused", "the connection was refused"),
    ("dns error", "its address cannot be resolved"),
    ("certificate", "its certificate was not accepted"),
    ("IncompleteBody", "the answer ended early"),
    ("IncompleteMessage", "the connection was lost before the answer"),
    ("ConnectionReset", "the connection was reset"),
    ("timed out", "the connection timed out"),
    ("TimedOut", "the connection timed out"),
    ("kind: Connect", "it cannot be reached"),
)
_WRONG_RANGE: Final = ("source: UnexpectedRange", "source: NotPartial", "source: NoContentRange")
_CREDENTIAL_SERVICES: Final = re.compile(
    r"https?://(?:169\.254\.169\.254|169\.254\.170\.2|metadata\.google\.internal|oauth2\.googleapis\.com"
    r"|login\.microsoftonline\.com|[^/\s]+/latest/(?:api/token|meta-data))\b"
)
_SAYS_EXPIRED: Final = re.compile(r"\b(?:token|credentials?|signature)\b[^<>]{0,40} expired", re.IGNORECASE)

_WRONG_CLOCK: Final = {"RequestTimeTooSkewed", "RequestExpired"}
_EXPIRED: Final = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}
_CREDENTIALS: Final = {
    "InvalidAccessKeyId",
    "XAdminUserNotFound",
    "SignatureDoesNotMatch",
    "InvalidToken",
    "UnrecognizedClientException",
    "AuthenticationFailed",
    "InvalidAuthenticationInfo",
    "authError",
}
_FULL: Final = {
    "QuotaExceeded",
    "XMinioStorageFull",
    "InsufficientStorage",
    "NoSpaceLeftOnDevice",
    "AccountQuotaExceeded",
}
_NO_BUCKET: Final = {"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"}
_NO_OBJECT: Final = {"", "NoSuchKey", "NoSuchVersion", "BlobNotFound", "notFound"}
"""Servers file other things under 404, too. The answer to a HEAD has no code."""
_LOOKS: Final = {"read", "describe", "delete"}
_AGAIN: Final = {
    "SlowDown",
    "SlowDownRead",
    "SlowDownWrite",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
    "RequestTimeout",
    "InternalError",
    "ServiceUnavailable",
    "ServerBusy",
    "OperationAborted",
    "ConditionalRequestConflict",
    "NoSuchUpload",
    "XMinioServerNotInitialized",
}
_RIGHTS: Final = {
    "read": "reading",
    "describe": "reading",
    "list": "listing",
    "write": "writing",
    "create": "writing",
    "delete": "deleting",
}


def failure_of(error: Exception, store: str, action: str, key: str) -> StoreFailed:
    """Return the failure for an error that obstore raised while it did `action` with the object `key`."""
    text = str(error)
    status_found = _STATUS.search(text)
    status = int(status_found[1]) if status_found is not None else 0
    code_found = _CODE.search(text)
    code = next((each for each in code_found.groups() if each), "") if code_found is not None else ""
    what = f"{store} did not {action} {key}".rstrip()
    answer = " ".join(part for part in (str(status or ""), code) if part)
    found = _by_code(code, status, text, what, action)
    if found is not None:
        return found
    if _CREDENTIAL_SERVICES.search(text) is not None:
        return StoreDenied(
            f"{what}: no credentials were found; set them in the options or the environment", "credentials"
        )
    if (isinstance(error, FileNotFoundError) or status == 404) and action in _LOOKS and code in _NO_OBJECT:
        return ObjectMissing(f"{store} has no object {key}; if it was deleted by hand, run `strandline storage check`")
    if "inner: BareRedirect" in text or status in (301, 307):
        return StoreMisconfigured(f"{what}: the bucket is in another region; set the option for the region")
    if status == 416 or "source: InvalidRange" in text:
        return ObjectDamaged(f"{store} holds {key} shorter than expected; run `strandline storage check`")
    if any(each in text for each in _WRONG_RANGE):
        return ObjectDamaged(f"{store} returned another range of {key} than it was asked for; use another store")
    if status == 501 or type(error).__name__ == "NotSupportedError":
        return StoreRefused(f"{what}: it does not support this request; use another store")
    # A conflict of a create may mean that the object exists, or that nothing was written: it is read back.
    if status in (408, 425, 429) or status >= 500 or (action == "create" and status in (409, 412)):
        return StoreUnavailable(f"{what}: it answered {answer}; try again later")
    if status:
        return StoreFailed(f"{what}: it rejected the request with {answer}; check the options of the store")
    reason = next((words for sign, words in _TRANSPORT if sign in text), "the request failed on its way")
    return StoreUnavailable(f"{what}: {reason}; check the network and the address of the store")


def _by_code(code: str, status: int, text: str, what: str, action: str) -> StoreFailed | None:
    if code in _WRONG_CLOCK:
        return StoreWrongClock(
            f"{what}: the clock of this machine differs too much from the store's ({code}); set the clock"
        )
    # Google says it in words; Azure's code for a late signature is that of a wrong one.
    if code in _EXPIRED or (status in (400, 401, 403) and _SAYS_EXPIRED.search(text) is not None):
        return StoreDenied(f"{what}: the credentials have expired ({code or status}); renew them", "expired")
    if code in _CREDENTIALS or status == 401:
        return StoreDenied(
            f"{what}: the credentials are unknown or wrong ({code or status}); check the key and its secret",
            "credentials",
        )
    if code in _FULL or status == 507:
        return StoreFull(f"{what}: it has no room left ({code or status}); free some or raise the quota")
    if code in _NO_BUCKET or "bucket does not exist" in text:
        return BucketMissing(f"{what}: the bucket does not exist ({code or status}); create it or correct the address")
    if code in _AGAIN:
        return StoreUnavailable(f"{what}: it answered {status or ''} {code}; try again later".replace("  ", " "))
    if status == 403 or code == "AccessDenied":
        return StoreDenied(f"{what}: the right for {_RIGHTS[action]} is missing ({code or status}); grant it")
    return None
