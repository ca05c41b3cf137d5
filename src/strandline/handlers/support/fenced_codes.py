"""The error code for a fenced producer: older versions know only the code that was there before PRODUCER_FENCED."""

from __future__ import annotations

from typing import Final

from strandline.errors import ErrorCode

PRODUCER_FENCED_FROM: Final = {22: 4, 24: 2, 25: 2, 26: 2}
"""By API key: the first version whose clients know PRODUCER_FENCED."""


def fenced_code(code: int, *, api_key: int, version: int) -> int:
    if code == ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_FROM[api_key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
