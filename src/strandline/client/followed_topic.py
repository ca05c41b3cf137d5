"""A topic of one partition that tells a state, read as far as it goes and, the next time, on from there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

import pyarrow as pa

from strandline.client.arrow_rows import FIELDS
from strandline.client.cluster_client import EARLIEST, LATEST, ClusterClient
from strandline.client.fetcher import FetchSettings, OffsetRange, read_range
from strandline.ids import TopicPartition

_READ: Final = pa.schema([FIELDS["key"], FIELDS["value"]])


class FollowedTopic:
    """Where the topic was read up to."""

    def __init__(self, client: ClusterClient, name: str) -> None:
        self._client = client
        self._place = TopicPartition(name, 0)
        self._topic_id: UUID | None = None
        self._next_offset = 0

    @property
    def is_there(self) -> bool:
        """Return whether the cluster had the topic when it was last read."""
        return self._topic_id is not None

    def read_on(self, on_another: Callable[[], object], take: Callable[[bytes | None, bytes | None], object]) -> None:
        """Give `take` the key and the value of each record that was committed when this was called.

        Those of an earlier call come again only if that failed, or after `on_another`: the topic was made again.
        TopicMissing and DataLost say that it is gone, or another one: then `forget`.
        """
        if self._topic_id is None and not self._begin():
            return
        end = self._client.list_offsets({self._place: LATEST})[self._place]
        if end < self._next_offset:
            # Another topic of that name, which has less in it.
            self.forget()
            on_another()
            self.read_on(on_another, take)
            return
        if end == self._next_offset:
            return
        assert self._topic_id is not None, "it has begun"
        offsets = OffsetRange(*self._place, self._next_offset, end, self._topic_id)
        for batch in read_range(self._client, offsets, FetchSettings(), _READ):
            for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
                take(key, value)
        self._next_offset = end

    def forget(self) -> None:
        """Begin with the first record the next time."""
        self._topic_id = None
        self._next_offset = 0

    def _begin(self) -> bool:
        topic = self._client.topic(self._place.topic)
        if topic is None:
            return False
        self._topic_id = topic.topic_id
        self._next_offset = self._client.list_offsets({self._place: EARLIEST})[self._place]
        return True
