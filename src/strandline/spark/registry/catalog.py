"""The schemas of a cluster's registry, read from the topic `_schemas` as far as it goes.

A registry answers a registration after its record can be read, and a producer uses the id after that. So a process that
has read a record, and then reads `_schemas` up to its end, finds the schema of the record or knows that there is none.
It reads what is new once for all ids that it misses, and asks no registry over HTTP. Only where topics are mirrored may
a record come before its schema: an id greater than every known one is waited for, a bounded time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from typing import Final

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.failures import DataLost, TopicMissing
from strandline.client.followed_topic import FollowedTopic
from strandline.schemas.engines import SchemaSource
from strandline.schemas.failures import RegistryError
from strandline.schemas.records import SCHEMAS_TOPIC, SchemaRecord, SchemaVersion
from strandline.schemas.resolving import source_of
from strandline.schemas.state import RegistryState
from strandline.spark.error_translation import SparkFailed
from strandline.spark.registry.reader_schema import ReaderSchema

WAIT_S: Final = 2.0
"""How long an id is waited for that is greater than every known one."""
WAITS_MAX: Final = 3
"""Such waits in a row that found nothing. Then ids are taken for invented, until one is found again."""
_PAUSE_S: Final = 0.1
_CATALOGS_MAX: Final = 8

_catalogs: dict[tuple[int, ClientSettings], SchemaCatalog] = {}


class SchemaCatalog:
    """What the topic says, up to where it was read."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._waits = 0
        self._state = RegistryState()
        self._topic = FollowedTopic(client, SCHEMAS_TOPIC)

    def close(self) -> None:
        self._client.close()

    def refresh(self) -> None:
        """Read on: all that was committed when this was called is known when it returns."""
        try:
            self._topic.read_on(self._clear, lambda key, value: self._state.apply(SchemaRecord(key or b"", value)))
        except (TopicMissing, DataLost):
            # There is none, no longer, or another: what was known of it does not hold.
            self._topic.forget()
            self._clear()

    @property
    def is_there(self) -> bool:
        """Return whether the cluster has the topic."""
        return self._topic.is_there

    def writers(self, context: str, ids: Collection[int]) -> dict[int, SchemaSource | str]:
        """Return the schemas of ids, or for each that can not be had why not."""
        missing = [each for each in ids if self._state.content_of_id(context, each) is None]
        if missing:
            self.refresh()
            self._wait_for(context, max(missing))
        return {each: self._writer(context, each) for each in ids}

    def _writer(self, context: str, schema_id: int) -> SchemaSource | str:
        places = self._state.contexts[context].places.get(schema_id) if context in self._state.contexts else None
        if not places:
            return f"the registry has no schema with the id {schema_id}"
        (subject, _), content = next(iter(places.items()))
        try:
            return source_of(self._state, subject, content)
        except RegistryError as error:
            return f"the schema with the id {schema_id} can not be used: {error}"

    def _wait_for(self, context: str, schema_id: int) -> None:
        """Wait for an id that may be on its way, as long as waiting has led to something lately."""
        until = time.monotonic() + WAIT_S
        known = self._state.contexts.get(context)
        if known is None or schema_id <= known.id_max or self._waits >= WAITS_MAX:
            return
        while self._state.content_of_id(context, schema_id) is None:
            if time.monotonic() > until:
                self._waits += 1
                return
            time.sleep(_PAUSE_S)
            self.refresh()
        self._waits = 0

    def versions(self, subject: str) -> list[ReaderSchema]:
        """Return the versions of a subject, the newest first. Raise SparkFailed if there is none."""
        self.refresh()
        found = self._state.versions(subject)
        if not found:
            raise SparkFailed(self._no_subject(subject))
        return [self._reader(each) for each in reversed(found)]

    def _reader(self, version: SchemaVersion) -> ReaderSchema:
        try:
            source = source_of(self._state, version.subject, version.content)
        except RegistryError as error:
            raise SparkFailed(f"version {version.version} of {version.subject} can not be used: {error}") from None
        return ReaderSchema(source, version.subject, version.version, version.id)

    def _no_subject(self, subject: str) -> str:
        if not self.is_there:
            return (
                f"the cluster has no topic {SCHEMAS_TOPIC}, so no registry keeps its schemas there: start one with "
                "`strandline registry serve`, or name the columns instead of the registry"
            )
        return (
            f"the registry has no subject {subject}: register a schema with `strandline schema register {subject} "
            "FILE`, or name another subject with the option subject"
        )

    def _clear(self) -> None:
        self._state = RegistryState()


def worker_catalog(settings: ClientSettings) -> SchemaCatalog:
    """Return the catalog that this process keeps for a cluster. It has connections of its own: others are in use."""
    key = (os.getpid(), settings)
    found = _catalogs.get(key)
    if found is None:
        if len(_catalogs) >= _CATALOGS_MAX:
            _catalogs.pop(next(iter(_catalogs))).close()
        found = _catalogs[key] = SchemaCatalog(ClusterClient(settings))
    return found
