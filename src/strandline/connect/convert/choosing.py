"""Converters by the names of Kafka Connect: whole class names, and the short ones that its plugins have."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from strandline.connect.convert.interface import Converter
from strandline.connect.failures import InvalidConnectorConfig

_PLAIN: Final = "org.apache.kafka.connect.converters"
_STORAGE: Final = "org.apache.kafka.connect.storage"

CONVERTERS: Final[Mapping[str, str]] = {
    "org.apache.kafka.connect.json.JsonConverter": "json_converter",
    f"{_STORAGE}.StringConverter": "plain",
    f"{_STORAGE}.SimpleHeaderConverter": "headers",
    f"{_PLAIN}.ByteArrayConverter": "plain",
    f"{_PLAIN}.BooleanConverter": "plain",
    f"{_PLAIN}.DoubleConverter": "plain",
    f"{_PLAIN}.FloatConverter": "plain",
    f"{_PLAIN}.IntegerConverter": "plain",
    f"{_PLAIN}.LongConverter": "plain",
    f"{_PLAIN}.ShortConverter": "plain",
    "io.confluent.connect.avro.AvroConverter": "avro_converter",
    "io.confluent.connect.json.JsonSchemaConverter": "json_schema_converter",
    "io.confluent.connect.protobuf.ProtobufConverter": "protobuf_converter",
}
"""The module of each converter."""

_EXTRA: Final = "registry"


def _aliases() -> dict[str, str]:
    """Return the class name for each name that a config may have: `X` stands for `XConverter`."""
    found: dict[str, str] = {}
    for name in CONVERTERS:
        short = name.rpartition(".")[2]
        found |= dict.fromkeys((name, short, short.removesuffix("Converter")), name)
    return found


ALIASES: Final = _aliases()


def converter_class(name: str) -> type[Converter]:
    """Return the class of a converter's name. Raise InvalidConnectorConfig if there is none."""
    full = ALIASES.get(name)
    if full is None:
        raise InvalidConnectorConfig(
            f"Failed to find any class that implements Converter and which name matches {name}, available converters "
            f"are: {', '.join(CONVERTERS)}"
        )
    module, short = CONVERTERS[full], full.rpartition(".")[2]
    try:
        found: type[Converter] = getattr(import_module(f"strandline.connect.convert.{module}"), short)
    except ModuleNotFoundError as error:
        raise InvalidConnectorConfig(
            f"{short} needs the package {error.name}: pip install 'strandline[{_EXTRA}]'"
        ) from None
    return found


def converter_of(name: str, properties: Mapping[str, str], is_key: bool) -> Converter:
    """Return a converter with its settings, whose names have no prefix. Raise InvalidConnectorConfig."""
    found = converter_class(name)
    errors = found.Config.errors_of(properties)
    if errors:
        raise InvalidConnectorConfig(next(iter(errors.values()))[0])
    return found(found.Config(properties), is_key=is_key)
