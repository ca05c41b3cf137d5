"""The validation of all topics of this broker that ask for it: one reader of `_schemas`, and what it has read."""

from __future__ import annotations

from typing import Final
from weakref import WeakValueDictionary

from strandline.broker.environment import Environment
from strandline.broker.validation.schema_topic import SchemaTopic
from strandline.broker.validation.topic_validation import TopicValidation
from strandline.config.topic_config import TopicConfig
from strandline.schemas.records import SchemaRecord
from strandline.schemas.registered_ids import RegisteredIds

_SETTINGS: Final = (
    "key_schema_validation",
    "value_schema_validation",
    "key_subject_name_strategy",
    "value_subject_name_strategy",
    "schema_validation",
    "compact",
)


class SchemaValidation:
    """What validates records. It reads nothing while no partition here needs it."""

    def __init__(self, environment: Environment) -> None:
        self._registered = RegisteredIds(keeps_texts=False)
        self._keeps_texts = False
        # Held by partitions alone: with the last one that asks for it a validation is gone.
        self._topics: WeakValueDictionary[tuple[object, ...], TopicValidation] = WeakValueDictionary()
        self._reader = SchemaTopic(environment, self._on_record, self._on_reset, self._is_needed)

    def of_topic(self, topic: str, config: TopicConfig) -> TopicValidation:
        """Return what validates the records of a topic with these settings."""
        key = (topic, *(getattr(config, name) for name in _SETTINGS))
        found = self._topics.get(key)
        if found is None:
            found = self._topics[key] = TopicValidation(topic, config, self._registered, self._reader)
            if found.needs_texts and not self._keeps_texts:
                # Texts were not kept so far, so everything is read again.
                self._keeps_texts = True
                self._reader.restart()
        self._reader.start()
        return found

    def close(self) -> None:
        self._reader.close()

    def _is_needed(self) -> bool:
        return bool(self._topics)

    def _on_record(self, record: SchemaRecord) -> None:
        self._registered.apply(record)

    def _on_reset(self) -> None:
        if not self._topics:
            self._keeps_texts = False
        self._registered.forget(keeps_texts=self._keeps_texts)
