"""What names mean to views: read from the topic in which a cluster remembers its pipelines.

The records are those of `pipelines.registry`. Views read them as they are, with the reader that they read all else
with, so a query needs neither a second client nor a thread.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from strandline.client.cluster_client import ClusterClient
from strandline.client.failures import ClientFailed, DataLost, TopicMissing
from strandline.client.followed_topic import FollowedTopic
from strandline.views.definition import ViewDefinition, definitions, unknown_words
from strandline.views.failures import ViewFailed, ViewUnknown

REGISTRY_TOPIC: Final = "__strandline_pipelines"


class Catalog:
    def __init__(self, client: ClusterClient) -> None:
        self._entries: dict[str, Mapping[str, Any]] = {}
        self._definitions: dict[str, ViewDefinition] | None = None
        self._topic = FollowedTopic(client, REGISTRY_TOPIC)

    def refresh(self) -> None:
        """All that was committed when this was called is known when it returns."""
        try:
            self._read_on()
        except (TopicMissing, DataLost):
            # There is none, no longer, or another: what was known of it does not hold.
            self._topic.forget()
            self._know({})
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
        entries = dict(self._entries)

        def forget() -> None:
            entries.clear()
            self._know({})

        self._topic.read_on(forget, lambda key, value: _take(entries, key, value))
        self._know(entries)

    def _know(self, entries: dict[str, Mapping[str, Any]]) -> None:
        if entries != self._entries:
            self._entries = entries
            self._definitions = None


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
