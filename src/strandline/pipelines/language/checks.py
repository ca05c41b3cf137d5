"""What a file may say of one source or dataset: names, topics, times, and what does not go together (pure)."""

from __future__ import annotations

import re
from typing import Final

from strandline.pipelines.failures import refused
from strandline.pipelines.language.model import REGISTRY, Dataset, Kind, Place, SourceTopic, Watermark
from strandline.views.failures import DefinitionRefused
from strandline.views.schema import parse_schema

NAME_LENGTH_MAX: Final = 200
"""Of a pipeline, a dataset or a topic: what is put before and behind it still fits into the 249 of a topic's name."""
_MODES: Final = ("append", "update", "complete")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_ONLY_SPARKS: Final = re.compile(
    r"^struct\s*<|\b(interval|void|time|collate|geometry|geography|object)\b", re.IGNORECASE
)
"""What Spark reads and `parse_schema` does not."""
_VERSION: Final = re.compile(r"\.v\d+$")
_DELAY: Final = re.compile(
    r"\s*\d+\s+(milli|micro)?(second|minute|hour|day|week)s?(\s+\d+\s+(milli|micro)?(second|minute|hour|day)s?)*\s*"
)


def check_source(declared: SourceTopic) -> None:
    at = declared.at
    check_name("the source", declared.name, at)
    check_topic(declared.topic, at)
    _check_schema(declared)
    if declared.dead_letters is not None:
        check_topic(declared.dead_letters, at, is_written=True)
        if declared.schema is None:
            raise refused(
                f"the source {declared.name} has dead letters and no schema, so every record fits: say schema=", at
            )
        if declared.dead_letters == declared.topic:
            raise refused(f"the dead letters of {declared.name} would go to the topic they come from: name another", at)
    if declared.is_table and declared.schema is None:
        raise refused(f"the source {declared.name} has a key and no schema: say schema= with the key's columns", at)
    if declared.is_table and declared.watermark is not None:
        raise refused(f"the source {declared.name} is a table, which has no watermark: leave out key or watermark", at)


def _check_schema(declared: SourceTopic) -> None:
    """Refuse what Spark would refuse, before topics are made and Java is started."""
    schema = (declared.schema or "").strip()
    if not schema or declared.is_of_registry or _ONLY_SPARKS.search(schema):
        return
    try:
        parse_schema(schema)
    except DefinitionRefused as error:
        raise refused(f"the schema of the source {declared.name} is wrong: {error}", declared.at) from None


def check_dataset(declared: Dataset) -> None:
    at, name, kind = declared.at, declared.name, declared.kind
    check_name(f"the {kind.value}", name, at)
    if kind is Kind.TEMPORARY:
        if declared.topic or declared.key or declared.partitions or declared.mode or declared.trigger:
            raise refused(
                f"{name} is a temporary view, which is not written: it has no key, topic, mode or trigger", at
            )
    else:
        check_topic(declared.topic, at, is_written=True)
    if kind.has_keys and not declared.key:
        raise refused(
            f'the {kind.value} {name} has no key: say which columns are, @pipeline.{kind.value}(key="id")', at
        )
    if declared.null_key is not None and not (kind.has_keys and len(declared.key) == 1 and _is_word(declared.null_key)):
        raise refused(
            f"{name} has null_key={declared.null_key!r}: it is a text, for a table or view whose key is one column", at
        )
    if declared.schema is not None and (declared.schema != REGISTRY or kind is Kind.TEMPORARY):
        raise refused(
            f"{name} has schema={declared.schema!r}: a dataset has the columns that its function returns; a stream, "
            f"table or view may say schema={REGISTRY!r}, and is written by the schema of its topic",
            at,
        )
    if declared.mode is not None and declared.mode not in _MODES:
        raise refused(f"{name} has the mode {declared.mode!r}: say append, update or complete", at)
    if declared.partitions is not None and (type(declared.partitions) is not int or declared.partitions < 1):
        raise refused(f"{name} has partitions={declared.partitions!r}: say a whole number, 1 or above", at)
    if declared.trigger is not None and not is_time(declared.trigger):
        raise refused(f"{name} has the trigger {declared.trigger!r}: say a time like '10 seconds'", at)


def _is_word(said: object) -> bool:
    return isinstance(said, str) and bool(said)


def check_name(what: str, name: object, at: Place | None) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX or name in (".", ".."):
        raise refused(
            f"{what} is named {name!r}: use letters without accents, digits, '_', '-' and '.', "
            f"at most {NAME_LENGTH_MAX} of them",
            at,
        )


def check_topic(topic: object, at: Place | None, *, is_written: bool = False) -> None:
    check_name("a topic", topic, at)
    assert isinstance(topic, str)
    if is_written and topic.startswith("__"):
        raise refused(f"{topic} is the name of an internal topic: choose one that does not begin with '__'", at)
    if is_written and _VERSION.search(topic):
        raise refused(
            f"{topic} is the name that a version of the topic {_VERSION.sub('', topic)} gets in a rebuild: choose one "
            "that does not end like this",
            at,
        )


def watermark_of(name: str, column: str, delay: str, at: Place) -> Watermark:
    if not is_time(delay):
        raise refused(f"the source {name} has the watermark delay {delay!r}: say a time like '10 minutes'", at)
    return Watermark(column, delay)


def is_time(text: str) -> bool:
    """Return whether it is a span of time in Spark's words, `10 minutes`."""
    return _DELAY.fullmatch(text) is not None
