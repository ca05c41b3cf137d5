"""The log behind the registry: a compacted topic of one partition, read range by range and made when it is missing.

It is read with our own client and not with librdkafka. If a leader dies, librdkafka's admin client answers with an
invalid offset and no error, and its consumer finds the next leader late. Our client tries again until its deadline.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from strandline.client.arrow_rows import FIELDS
from strandline.client.cluster_client import LATEST, READ_COMMITTED, READ_UNCOMMITTED, ClientSettings, ClusterClient
from strandline.client.failures import ClusterFailed
from strandline.client.fetcher import FetchSettings, OffsetRange, read_range
from strandline.client.topic_creation import create_topic
from strandline.ids import TopicPartition

TOPIC: Final = "__strandline_pipelines"
REPLICAS: Final = 3
ANSWER_S_MAX: Final = 5.0
"""How long one broker is waited for, which may have died or stand still."""

_PLACE: Final = TopicPartition(TOPIC, 0)
_COLUMNS: Final = pa.schema([FIELDS["key"], FIELDS["value"]])
_SETTINGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024), "segment.ms": "3600000"}


class RegistryLog:
    """For one thread at a time; `close` it. Whatever fails raises SparkFailed with a sentence."""

    def __init__(self, bootstrap: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._client = ClusterClient(
            ClientSettings(
                bootstrap,
                client_id="strandline-pipelines",
                request_timeout_s=min(ANSWER_S_MAX, timeout_s),
                api_timeout_s=timeout_s,
            )
        )
        # Commands that end with the process, and readers that live as long as a view, do not close their registry.
        weakref.finalize(self, self._client.close)
        self._is_there = False

    def close(self) -> None:
        self._client.close()

    def exists(self) -> bool:
        self._is_there = self._is_there or self._client.topic(TOPIC) is not None
        return self._is_there

    def end(self, *, committed: bool) -> int:
        """Behind the last record that is committed, or the last of all; 0 if there is no such topic yet."""
        if not self.exists():
            return 0
        level = READ_COMMITTED if committed else READ_UNCOMMITTED
        return self._client.list_offsets({_PLACE: LATEST}, isolation_level=level)[_PLACE]

    def read(self, start: int, end: int) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Keys and values of what is committed in this range; what is not decided yet is waited for."""
        settings = FetchSettings(wait_ms_max=50, stall_timeout_s=self._timeout_s, fails_on_data_loss=False)
        for batch in read_range(self._client, OffsetRange(TOPIC, 0, start, end), settings, _COLUMNS):
            yield from zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)

    def make(self) -> None:
        """Create the topic unless it is there."""
        if self.exists():
            return
        try:
            create_topic(self._client, TOPIC, partitions=1, replicas_max=REPLICAS, settings=_SETTINGS)
        except ClusterFailed as error:
            raise ClusterFailed(f"the topic {TOPIC} cannot be made: {error}") from error
