"""What a cluster can promise to its writers, said before the first batch: not every cluster commits a batch whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.pipelines.run.sink_notes import SinkNotes
from strandline.spark.sink.driver import LIMITS

WEAKER: Final = (
    f"this cluster cannot commit a whole batch by one request, as Apache Kafka cannot, {LIMITS}; a Strandline cluster "
    "has no such limits"
)


def tell_if_weaker(bootstrap: str, tell: Callable[[str], None]) -> None:
    with SinkNotes(bootstrap) as notes:
        if not notes.are_kept:
            tell(WEAKER)
