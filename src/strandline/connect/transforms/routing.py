"""Stock transforms of the topic's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from strandline.connect.config import Config as BaseConfig
from strandline.connect.config import option
from strandline.connect.convert.java_dates import JavaDateFormat
from strandline.connect.failures import RecordFailed
from strandline.connect.records import ConnectRecord
from strandline.connect.transforms.interface import Transform
from strandline.connect.transforms.patterns import JavaReplacement, compiled, wrong_pattern

ROUTES_KEPT_MAX: Final = 10_000
"""Names of topics whose new names are remembered."""


class RegexRouter(Transform):
    """Renames the topics that match a regular expression."""

    class Config(BaseConfig):
        regex: str = option("Regular expression to use for matching.", importance="HIGH", check=wrong_pattern)
        replacement: str = option("Replacement string.", importance="HIGH")

        def check_all(self) -> Sequence[tuple[str, str]]:
            try:
                JavaReplacement(self.replacement, compiled(self.regex))
            except ValueError as error:
                shown = f"Invalid value {self.replacement} for configuration replacement"
                return [("replacement", f"{shown}: {error}")]
            return ()

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._pattern = compiled(config.regex)
        self._replacement = JavaReplacement(config.replacement, self._pattern)
        self._routes: dict[str, str] = {}

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        topic = self._routes.get(record.topic)
        if topic is None:
            if len(self._routes) >= ROUTES_KEPT_MAX:
                self._routes.clear()
            topic = self._routes[record.topic] = self._route(record.topic)
        return record if topic == record.topic else record.with_(topic=topic)

    def _route(self, topic: str) -> str:
        if self._pattern.fullmatch(topic) is None:
            return topic
        # Java matches the whole name, and then replaces the first match, which may be shorter.
        return self._replacement.first_in(topic, self._pattern.search(topic))


def _wrong_format(pattern: str) -> str | None:
    try:
        JavaDateFormat(pattern)
    except ValueError as error:
        return str(error)
    return None


class TimestampRouter(Transform):
    """Makes the topic's name of the topic and the record's timestamp."""

    class Config(BaseConfig):
        topic_format: str = option(
            "Format string which can contain ${topic} and ${timestamp} as placeholders for the topic and timestamp, "
            "respectively.",
            default="${topic}-${timestamp}",
            importance="HIGH",
        )
        timestamp_format: str = option(
            "Format string for the timestamp that is compatible with java.text.SimpleDateFormat.",
            default="yyyyMMdd",
            importance="HIGH",
            check=_wrong_format,
        )

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._format = JavaDateFormat(config.timestamp_format)

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        if record.timestamp_ms is None:
            raise RecordFailed("Timestamp missing on record", record)
        shown = self._format.format(record.timestamp_ms)
        topic = self.config.topic_format.replace("${topic}", record.topic).replace("${timestamp}", shown)
        return record.with_(topic=topic)
