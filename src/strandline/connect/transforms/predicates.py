"""Stock predicates."""

from __future__ import annotations

from typing import Any

from strandline.connect.config import Config as BaseConfig
from strandline.connect.config import option
from strandline.connect.records import ConnectRecord
from strandline.connect.transforms.interface import Predicate, wrong_empty_text
from strandline.connect.transforms.patterns import compiled, wrong_pattern


class HasHeaderKey(Predicate):
    """Holds for records that have a header of this name."""

    class Config(BaseConfig):
        name: str = option("The header name.", check=wrong_empty_text)

    def test(self, record: ConnectRecord) -> bool:
        return any(each.name == self.config.name for each in record.headers)


class RecordIsTombstone(Predicate):
    """Holds for records whose value is null."""

    def test(self, record: ConnectRecord) -> bool:
        return record.value is None


class TopicNameMatches(Predicate):
    """Holds for records whose topic's name matches a regular expression as a whole."""

    class Config(BaseConfig):
        pattern: str = option(
            "A Java regular expression for matching against the name of a record's topic.",
            check=lambda value: wrong_empty_text(value) or wrong_pattern(value),
        )

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._pattern = compiled(config.pattern)

    def test(self, record: ConnectRecord) -> bool:
        return self._pattern.fullmatch(record.topic) is not None
