"""Quotas of users, client ids and IP addresses: what a request may ask for, and the records that make it so."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from strandline.codec.messages.client_quota_record import ClientQuotaRecord, EntityData
from strandline.config.quota_keys import CLIENT_ID, CLIENT_KEYS, ENTITY_TYPES, IP, IP_KEYS, USER, refusal_of_value
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.state import ControllerState, Decision

QUOTAS_MAX: Final = 20_000
"""All of them are read again when one changes, one or two microseconds each."""
QUOTAS_PER_REQUEST_MAX: Final = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """What is asked of one entity. Its parts are types with a name, or None for the default of the type."""

    entity: Sequence[tuple[str, str | None]]
    operations: Sequence[tuple[str, float | None]]
    """A key with its value, or None to remove it."""


def decide(
    state: ControllerState, asked: Sequence[QuotaAlteration], *, validate_only: bool
) -> Iterator[Decision[RequestError | None]]:
    """Yield for each entity in order its records and None, or why its quotas stay as they are."""
    refusal = state.refusal
    operations = sum(len(each.operations) for each in asked)
    if refusal is None and operations > QUOTAS_PER_REQUEST_MAX:
        message = f"{operations} quotas are more than the {QUOTAS_PER_REQUEST_MAX} one request may change."
        refusal = RequestError(ErrorCode.POLICY_VIOLATION, message)
    times = Counter(tuple(sorted(each.entity, key=repr)) for each in asked)
    # Counted once: others may add some meanwhile, which matters less than a look at all of them for each entity.
    room = 0 if refusal is not None else QUOTAS_MAX - len(state.image.kept.of_kind("quota"))
    for each in asked:
        try:
            if refusal is not None:
                raise refusal
            if times[tuple(sorted(each.entity, key=repr))] > 1:
                raise _bad("Each entity must appear at most once.")
            records, added = _records(state, each)
            if added > room:
                message = f"There are {QUOTAS_MAX} quotas; remove others first."
                raise RequestError(ErrorCode.POLICY_VIOLATION, message)
        except RequestError as error:
            yield [], error
            continue
        room -= added
        yield [] if validate_only else state.decided(records), None


def _records(state: ControllerState, asked: QuotaAlteration) -> tuple[list[Any], int]:
    """Return the records of one alteration, and how many quotas there are more with them."""
    names = _checked_entity(asked.entity)
    if any(value is not None for _, value in asked.operations):
        # Apache Kafka may have stored a host name: it can be removed, but not set.
        _check_address(names.get(IP))
    if max(Counter(key for key, _ in asked.operations).values(), default=0) > 1:
        raise _bad("Duplicate quota key")
    kept = state.image.kept
    records: list[Any] = []
    added = 0
    for key, value in asked.operations:
        record = ClientQuotaRecord(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()],
            key=key,
            value=value or 0.0,
            remove=value is None,
        )
        current = kept.same_as(record)
        if value is not None:
            _check_quota(names, key, value)
            added += current is None
        if (current is None) != (value is None) or (current is not None and current.value != value):
            records.append(record)
    return records, added


def _checked_entity(entity: Sequence[tuple[str, str | None]]) -> dict[str, str | None]:
    names: dict[str, str | None] = {}
    for kind, name in entity:
        if kind in names:
            raise _bad(f"Invalid client quota entity, duplicate entity entry {kind}")
        if kind not in ENTITY_TYPES:
            raise _bad(f"Unhandled client quota entity type: {kind}")
        if name is not None and not name:
            raise _bad(f"Empty {kind} not supported")
        names[kind] = name
    if not names:
        raise _bad("Invalid empty client quota entity")
    if IP in names:
        if USER in names or CLIENT_ID in names:
            raise _bad("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
        names[IP] = _plain_address(names[IP])
    return names


def _plain_address(name: str | None) -> str | None:
    """Return the address as connections show it."""
    try:
        address = ipaddress.ip_address(name or "")
    except ValueError:
        return name
    return str(getattr(address, "ipv4_mapped", None) or address)


def _check_address(name: str | None) -> None:
    try:
        ipaddress.ip_address(name or "::")
    except ValueError:
        raise _bad(f"{name} is not a valid IP address; give the address instead of a host name.") from None


def _check_quota(names: Mapping[str, str | None], key: str, value: float) -> None:
    if key not in (IP_KEYS if IP in names else CLIENT_KEYS):
        raise _bad(f"Invalid configuration key {key}")
    message = refusal_of_value(key, value)
    if message is not None:
        raise _bad(message)


def _bad(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message)
