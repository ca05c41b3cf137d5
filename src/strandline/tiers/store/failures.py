"""What can go wrong with an object store.

    StoreFailed
    ├── StoreUnavailable        try again: overload, a lost connection, a deadline that passed
    ├── StoreUnsure             a conditional write whose outcome is unknown; the same call may be made again
    ├── StoreDenied             no rights, or credentials that are unknown, wrong or expired; `reason` says which
    ├── StoreWrongClock         the clock of this machine is too far from the store's
    ├── StoreFull               no room, or a quota is used up
    ├── BucketMissing           no such bucket, container or directory
    ├── ObjectMissing           no such object
    ├── ObjectDamaged           an object that is shorter than its reader was told, or holds other bytes than it should
    ├── StoreMisconfigured      an address or an option that is none
    ├── StoreRefused            the store does not keep a promise that Strandline needs
    └── StoreOfAnotherCluster   the marker in the store names another cluster

Each message is one sentence that names store and key and says what to do. It quotes a store's error code and nothing
else of its answer, because answers and addresses can hold credentials.
"""

from __future__ import annotations

from typing import Final, Literal

from strandline.errors import ErrorCode, WorldError

DeniedReason = Literal["rights", "expired", "credentials"]


class StoreFailed(WorldError):
    """A call of an object store that did not do its work."""

    code = ErrorCode.KAFKA_STORAGE_ERROR
    is_retriable: bool = False
    """Whether the same call may succeed without a change by an operator."""


class StoreUnavailable(StoreFailed):
    """The store cannot be reached, is overloaded, or did not answer in time."""

    is_retriable = True


class StoreUnsure(StoreFailed):
    """A conditional write may or may not be done. The same call, with the same nonce, finds out."""

    is_retriable = True


class StoreDenied(StoreFailed):
    """The store rejected the credentials, or they lack a right."""

    def __init__(self, message: str, reason: DeniedReason = "rights") -> None:
        super().__init__(message)
        self.reason: Final[DeniedReason] = reason


class StoreWrongClock(StoreFailed):
    """The store rejected the time of a signature."""


class StoreFull(StoreFailed):
    """The store has no room."""


class BucketMissing(StoreFailed):
    """There is no such bucket, container or directory."""


class ObjectMissing(StoreFailed):
    """There is no such object."""


class ObjectDamaged(StoreFailed):
    """An object does not hold what its reader was told."""


class StoreMisconfigured(StoreFailed):
    """An address or option of a store is malformed or unknown."""


class StoreRefused(StoreFailed):
    """The store does not keep a promise that is needed."""


class StoreOfAnotherCluster(StoreFailed):
    """The store belongs to another cluster."""
