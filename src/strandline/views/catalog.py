"""What names mean to views: read from the topic in which a cluster remembers its pipelines.

The records are those of `pipelines.registry`. Views read them as they are, with the reader that they read all else
with, so a query needs neither a second client nor a thread.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from strandline.client.arrow_rows import FIELDS
from strandline.client.cluster_client import EARLIEST, LATEST, ClusterClient
from strandline.client.failures import ClientFailed, DataLost, TopicMissing
from strandline.client.fetcher import FetchSettings, OffsetRange, read_range
from strandline.ids import TopicPartition
from strandline.views.definition import ViewDefinition, definitions, unknown_words
from strandline.views.failures import ViewFailed, ViewUnknown

REGISTRY_TOPIC: Final = "__strandline_pipelines"

_PLACE: Final = TopicPartition(REGISTRY_TOPIC, 0)
_READ: Final = pa.schema([FIELDS["key"], FIELDS["value"]])


class Catalog:
    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._entries: dict[str, Mapping[str, Any]] = {}
        self._definitions: dict[str, ViewDefinition] | None = None
        self._topic_id: UUID | None = None
        self._next_offset = 0

    def refresh(self) -> None:
        """All that was committed when this was called is known when it returns."""
        try:
            self._read_on()
        except (TopicMissing, DataLost):
            # There is none, no longer, or another: what was known of it does not hold.
            self._forget()
        except ClientFailed as error:
            raise ViewFailed(str(error)) from error

    @property
    def views(self) -> dict[str, ViewDefinition]:
        """By name, and those of pipelines by `pipeline.name`, too."""
        if self._definitions is None:
            self._definitions = definitions(self._entries)
        return self._definitions

    def view(self, name: str) -> ViewDefinition:
        known = self.views
        # As in DuckDB, where capitals in names do not matter.
        found = known.get(name) or next((known[each] for each in known if each.lower() == name.lower()), None)
        if found is None:
            raise ViewUnknown(unknown_words(name, self._entries, known))
        return found

    def _read_on(self) -> None:
        if self._topic_id is None and not self._begin():
            return
        end = self._client.list_offsets({_PLACE: LATEST})[_PLACE]
        if end < self._next_offset:
            # Another topic of that name, which has less in it.
            self._forget()
            self._read_on()
            return
        if end == self._next_offset:
            return
        assert self._topic_id is not None, "it has begun"
        offsets = OffsetRange(REGISTRY_TOPIC, 0, self._next_offset, end, self._topic_id)
        entries = dict(self._entries)
        for batch in read_range(self._client, offsets, FetchSettings(), _READ):
            for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
                _take(entries, key, value)
        self._next_offset = end
        if entries != self._entries:
            self._entries = entries
            self._definitions = None

    def _begin(self) -> bool:
        topic = self._client.topic(REGISTRY_TOPIC)
        if topic is None:
            return False
        self._topic_id = topic.topic_id
        self._next_offset = self._client.list_offsets({_PLACE: EARLIEST})[_PLACE]
        return True

    def _forget(self) -> None:
        self._entries = {}
        self._definitions = None
        self._topic_id = None
        self._next_offset = 0


def _take(entries: dict[str, Mapping[str, Any]], key: bytes | None, value: bytes | None) -> None:
    name = (key or b"").decode(errors="replace")
    if not name.startswith(("pipeline/", "view/")):
        return
    told: Any = None
    if value is not None:
        try:
            told = json.loads(value)
        except ValueError:
            told = None
    if isinstance(told, dict):
        entries[name] = told
    else:
        entries.pop(name, None)
