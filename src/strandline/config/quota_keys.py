"""The names that quotas have in the metadata log, and the values that each may have."""

from __future__ import annotations

import math
from typing import Final

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
CLIENT_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
"""Quotas of users and client ids."""
IP_KEYS: Final = (CONNECTION_CREATION_RATE,)

WHOLE_MAX: Final = {PRODUCER_BYTE_RATE: 2**63 - 1, CONSUMER_BYTE_RATE: 2**63 - 1, CONNECTION_CREATION_RATE: 2**31 - 1}
"""The keys whose values are whole numbers, and the greatest of each."""
_WHOLE_TOLERANCE: Final = 1e-6


def refusal_of_value(key: str, value: float) -> str | None:
    """Return why a quota cannot have this value; None if it can."""
    if math.isnan(value) or value <= 0.0:
        return f"Quota {key} must be greater than 0"
    if math.isinf(value):
        return f"Quota {key} must be a finite number"
    if key in WHOLE_MAX:
        if value > WHOLE_MAX[key]:
            kind = "an INT" if key == CONNECTION_CREATION_RATE else "a LONG"
            return f"Proposed value for {key} is too large for {kind}."
        if value % 1.0 > _WHOLE_TOLERANCE:
            return f"{key} cannot be a fractional value."
    return None
