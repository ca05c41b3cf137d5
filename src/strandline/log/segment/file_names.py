"""The names of a segment's files: its base offset, and a suffix for each kind."""

from __future__ import annotations

from typing import Final

from strandline.log.segment.digest import DIGEST_SUFFIX
from strandline.log.segment.record_counts import COUNTS_SUFFIX

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
SEGMENT_SUFFIXES: Final = (
    LOG_SUFFIX,
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    COUNTS_SUFFIX,
    DIGEST_SUFFIX,
)


def file_stem(offset: int) -> str:
    return f"{offset:020d}"
