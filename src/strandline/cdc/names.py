"""Names of topics, schemas and fields, as Debezium makes them."""

from __future__ import annotations

import re
from typing import Final

from strandline.cdc.model import CapturedTable
from strandline.cdc.settings import CdcConfig
from strandline.connect.failures import InvalidConnectorConfig

TOPIC_LENGTH_MAX: Final = 249
_NOT_IN_TOPICS: Final = re.compile(r"[^A-Za-z0-9._\-]", re.ASCII)
_NOT_IN_SCHEMAS: Final = re.compile(r"[^A-Za-z0-9_.]", re.ASCII)
_NOT_IN_FIELDS: Final = re.compile(r"[^A-Za-z0-9_]", re.ASCII)
_NOT_IN_UNICODE_SCHEMAS: Final = re.compile(r"[^A-Za-z0-9.]", re.ASCII)
_NOT_IN_UNICODE_FIELDS: Final = re.compile(r"[^A-Za-z0-9]", re.ASCII)


class TopicNames:
    """Names of the topics of a connector. Two tables never share one."""

    def __init__(self, config: CdcConfig) -> None:
        self._prefix = config.topic_prefix
        self._delimiter = config.topic_delimiter
        self.transaction: Final = self._joined(config.topic_transaction)
        self.message: Final = self._joined("message")
        self.heartbeat: Final = config.topic_heartbeat_name or config.topic_delimiter.join(
            (config.topic_heartbeat_prefix, config.topic_prefix)
        )
        self.schema_change: Final = config.topic_prefix
        self._owners: dict[str, tuple[str, str]] = {}
        reserved = ("transactions", self.transaction), ("messages", self.message), ("heartbeats", self.heartbeat)
        self._reserved = {topic: what for what, topic in (*reserved, ("schema changes", self.schema_change))}

    def table(self, table: CapturedTable) -> str:
        """Return the topic of a table. Raise InvalidConnectorConfig if another table has it already."""
        owner = table.schema or table.database, table.name
        topic = valid_topic(self._joined(*owner))
        if topic in self._reserved:
            raise InvalidConnectorConfig(
                f"the table {'.'.join(owner)} would share the topic {topic} with the {self._reserved[topic]}: leave it "
                "out with table.exclude.list, or change topic.delimiter"
            )
        known = self._owners.setdefault(topic, owner)
        if known != owner:
            first, second = (".".join(f'"{part}"' for part in each) for each in (known, owner))
            raise InvalidConnectorConfig(
                f"the tables {first} and {second} would share the topic {topic}: leave one out with "
                "table.exclude.list, or capture it with another connector that has another topic.prefix"
            )
        return topic

    def _joined(self, *parts: str) -> str:
        return self._delimiter.join((self._prefix, *(each for each in parts if each.strip())))


def valid_topic(name: str) -> str:
    """Return a name with an underscore for each character that topics do not have."""
    name = _per_java_character(_NOT_IN_TOPICS, name)[:TOPIC_LENGTH_MAX]
    return name.replace(".", "_") if name in (".", "..") else name


def schema_name(name: str, mode: str) -> str:
    """Return the name of a schema as `schema.name.adjustment.mode` says."""
    match mode:
        case "avro":
            return _underscored(_NOT_IN_SCHEMAS, name)
        case "avro_unicode":
            return _unicode(_NOT_IN_UNICODE_SCHEMAS, name)
    return name


def field_name(name: str, mode: str) -> str:
    """Return the name of a field as `field.name.adjustment.mode` says."""
    match mode:
        case "avro":
            return _underscored(_NOT_IN_FIELDS, name)
        case "avro_unicode":
            return _unicode(_NOT_IN_UNICODE_FIELDS, name)
    return name


def _per_java_character(pattern: re.Pattern[str], name: str) -> str:
    # A character outside the basic plane is two for Java, and so two underscores.
    return pattern.sub(lambda found: "__" if ord(found[0]) > 0xFFFF else "_", name)


def _underscored(pattern: re.Pattern[str], name: str) -> str:
    made = _per_java_character(pattern, name)
    return f"_{made}" if made[:1].isdigit() else f"_{made[1:]}" if made[:1] == "." else made


def _unicode(pattern: re.Pattern[str], name: str) -> str:
    made = "".join(_escaped(each) if pattern.match(each) else each for each in name)
    return _escaped(made[0]) + made[1:] if made[:1].isdigit() or made[:1] == "." else made


def _escaped(character: str) -> str:
    # By Java's rule: four digits, as each is padded from two only.
    units = character.encode("utf-16-be")
    return "".join(f"_u{int.from_bytes(units[at : at + 2], 'big'):04x}" for at in range(0, len(units), 2))
