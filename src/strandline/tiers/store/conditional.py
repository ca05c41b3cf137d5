"""The create-only write, which believes the object and not the answer.

An answer can be lost after the work is done, and the repeated write then meets the object of the first. A store may
also answer with a conflict although it wrote nothing. So each write is followed by a read. The own body means won,
another body means lost, and no object means that the outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Awaitable

from strandline.tiers.store.failures import ObjectDamaged, ObjectMissing, StoreUnavailable, StoreUnsure
from strandline.tiers.store.interface import ObjectStore, check_key, check_nonce
from strandline.tiers.store.waiting import Deadline


def check_create(key: str, body: bytes, nonce: str) -> None:
    """Raise ValueError if key or nonce are not allowed."""
    check_key(key)
    check_nonce(body, nonce)


async def read_back(
    store: ObjectStore, write: Awaitable[object], key: str, body: bytes, nonce: str, deadline: Deadline
) -> bool:
    """Wait for the write, whose answer may be lost, and return whether the object is this one."""
    lost: StoreUnavailable | None = None
    try:
        await write
    except StoreUnavailable as error:
        lost = error
    try:
        found = await store.read_whole(key, deadline_s=deadline.left_s)
    except ObjectMissing:
        reason = "the store shows no object" if lost is None else str(lost)
    except StoreUnavailable as error:
        reason = str(lost or error)
    else:
        if found == body:
            return True
        if nonce.encode() in found:
            raise ObjectDamaged(
                f"{store.name} holds {key} with other bytes than were written; run `strandline storage check`"
            ) from lost
        return False
    raise StoreUnsure(f"whether {store.name} created {key} is unknown ({reason}); try again with the same nonce")
