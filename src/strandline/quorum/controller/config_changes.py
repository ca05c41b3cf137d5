"""A change of settings: what a request may ask of a resource, and the records that make it so.

Either an incremental change (set, delete, append to or subtract from a list) or a replacement of all that was set. The
settings that would result are checked as a whole, so two that are allowed one by one may still be refused together.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from strandline.codec.messages.config_record import ConfigRecord
from strandline.config.node_config import BrokerConfig
from strandline.config.node_settings import NODE_SETTINGS, refusal_of_change
from strandline.config.resource_settings import check_client_metrics, check_group
from strandline.config.settings import text_of
from strandline.config.topic_config import TOPIC_SETTINGS
from strandline.errors import ErrorCode, InvalidConfig, RequestError
from strandline.quorum.controller.retention_lock import check_lock
from strandline.quorum.controller.topic_names import check_topic_name
from strandline.quorum.controller.topic_tiering import check_tiering_of
from strandline.quorum.image.cluster_image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    ClusterImage,
)

CONFIGS_PER_RESOURCE_MAX: Final = 500
CONFIGURED_RESOURCES_MAX: Final = 10_000
"""Groups and subscriptions that have settings; they need not exist, so their number is anybody's choice."""


class AlterOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigOperation:
    name: str
    value: str | None
    operation: int = AlterOperation.SET


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigAlteration:
    """What is asked of one resource; `replaces` takes away whatever is set now and not named here."""

    resource_type: int
    resource_name: str
    operations: Sequence[ConfigOperation]
    replaces: bool = False


def config_records(
    asked: ConfigAlteration, *, image: ClusterImage, config: BrokerConfig, node_id: int | None
) -> list[ConfigRecord]:
    """Return the records of one alteration, none where nothing changes; raise RequestError if it is not allowed.

    A broker takes settings for all brokers and for itself, `node_id`; a controller, None, those of every broker.

    Levels of loggers are asked for in the same way, and it is for the node to set them: no record tells of them.
    """
    _check_operations(asked)
    if asked.resource_type == RESOURCE_BROKER_LOGGER:
        return []
    name = _checked_broker_name(asked, node_id) if asked.resource_type == RESOURCE_BROKER else asked.resource_name
    current = image.configs.get((asked.resource_type, name), {})
    wanted = {} if asked.replaces else dict(current)
    for each in asked.operations:
        _perform(each, asked.resource_type, wanted)
    if len(wanted) > CONFIGS_PER_RESOURCE_MAX:
        message = f"{name!r} would have {len(wanted)} settings; at most {CONFIGS_PER_RESOURCE_MAX} are kept."
        raise RequestError(ErrorCode.POLICY_VIOLATION, message)
    try:
        if asked.resource_type == RESOURCE_BROKER:
            _check_broker(name, wanted, image=image, config=config, node_id=node_id)
        else:
            _check_resource(asked.resource_type, name, wanted, image=image, config=config)
    except InvalidConfig as refusal:
        # Kafka tells of broker settings that they were asked for wrongly, of all others that they are wrong.
        is_broker = asked.resource_type == RESOURCE_BROKER
        code = ErrorCode.INVALID_REQUEST if is_broker else ErrorCode.INVALID_CONFIG
        raise RequestError(code, str(refusal)) from refusal
    if wanted and not current:
        _check_room(asked.resource_type, image)
    changed = {key: wanted.get(key) for key in {**current, **wanted} if current.get(key) != wanted.get(key)}
    return [
        ConfigRecord(resource_type=asked.resource_type, resource_name=name, name=key, value=value)
        for key, value in changed.items()
    ]


def _check_room(resource_type: int, image: ClusterImage) -> None:
    if resource_type == RESOURCE_TOPIC or len(image.configs) < CONFIGURED_RESOURCES_MAX:
        return
    if sum(kind != RESOURCE_TOPIC for kind, _ in image.configs) >= CONFIGURED_RESOURCES_MAX:
        message = f"{CONFIGURED_RESOURCES_MAX} resources have settings; delete those of others first."
        raise RequestError(ErrorCode.POLICY_VIOLATION, message)


def _check_operations(asked: ConfigAlteration) -> None:
    if len(asked.operations) > CONFIGS_PER_RESOURCE_MAX:
        message = f"{len(asked.operations)} settings; a resource has at most {CONFIGS_PER_RESOURCE_MAX}."
        raise RequestError(ErrorCode.POLICY_VIOLATION, message)
    if max(Counter(each.name for each in asked.operations).values(), default=0) > 1:
        raise bad_request("Error due to duplicate config keys")
    nulls = [each.name for each in asked.operations if each.value is None and each.operation != AlterOperation.DELETE]
    if nulls:
        raise bad_request(f"Null value not supported for : {', '.join(nulls)}")
    is_known = asked.resource_type in (RESOURCE_TOPIC, RESOURCE_BROKER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP)
    if not is_known and (asked.resource_type != RESOURCE_BROKER_LOGGER or asked.replaces):
        raise bad_request(f"Unknown resource type {asked.resource_type}")
    for each in asked.operations:
        if each.operation not in AlterOperation.__members__.values():
            raise bad_request(f"Unknown operations type {each.operation}")


def _checked_broker_name(asked: ConfigAlteration, node_id: int | None) -> str:
    """Empty for the defaults of all brokers, or the id of one."""
    name = asked.resource_name
    if not name:
        return name
    broker_id = broker_id_of(name)
    if broker_id is None:
        raise bad_request(f"Node id must be an integer, but it is: {name}")
    if node_id is not None and broker_id != node_id:
        raise bad_request(f"Unexpected broker id, expected {node_id}, but received {name}")
    return str(broker_id)


def broker_id_of(name: str) -> int | None:
    """Return the broker id of a resource name, read as Java reads numbers."""
    return int(name) if re.fullmatch(r"[+-]?[0-9]{1,10}", name) else None


def _perform(each: ConfigOperation, resource_type: int, settings: dict[str, str]) -> None:
    if each.operation == AlterOperation.DELETE:
        settings.pop(each.name, None)
    elif each.value is not None:
        is_plain = each.operation == AlterOperation.SET
        settings[each.name] = each.value if is_plain else _changed_list(each, each.value, resource_type, settings)


def _changed_list(each: ConfigOperation, value: str, resource_type: int, settings: dict[str, str]) -> str:
    kind, default = _kind_and_default(each.name, resource_type)
    if kind != "list":
        verb = AlterOperation(each.operation).name
        raise RequestError(ErrorCode.INVALID_CONFIG, f"Can't {verb} to key {each.name} because its type is not LIST.")
    words = [word for word in settings.get(each.name, default or "").split(",") if word]
    named = Counter(value.split(","))
    if each.operation == AlterOperation.APPEND:
        there = set(words)
        return ",".join([*words, *(word for word in named if word not in there)])
    kept = []
    for word in words:
        # As often as it is named, and not as often as it is there.
        if named[word]:
            named[word] -= 1
        else:
            kept.append(word)
    return ",".join(kept)


def _kind_and_default(name: str, resource_type: int) -> tuple[str, str | None]:
    """Return kind and default of a setting that may be a list; as in Kafka, not for groups and subscriptions."""
    if resource_type == RESOURCE_TOPIC and name in TOPIC_SETTINGS:
        setting = TOPIC_SETTINGS[name][1]
        return setting.kind, text_of(setting.default)
    if resource_type == RESOURCE_BROKER and name in NODE_SETTINGS:
        return NODE_SETTINGS[name].kind, NODE_SETTINGS[name].default
    return "", None


def _check_resource(
    resource_type: int, name: str, settings: dict[str, str], *, image: ClusterImage, config: BrokerConfig
) -> None:
    if resource_type == RESOURCE_TOPIC:
        if not name:
            raise bad_request("Default topic resources are not allowed.")
        check_topic_name(name)
        asked = config.topic_config(settings)
        if name not in image.topics:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        check_lock(name, asked, image=image, config=config)
        check_tiering_of(name, asked, image=image, config=config)
    elif resource_type == RESOURCE_GROUP:
        if not name:
            raise bad_request("Default group resources are not allowed.")
        check_group(settings, config.text)
    else:
        check_client_metrics(name, settings)


def _check_broker(
    name: str, settings: dict[str, str], *, image: ClusterImage, config: BrokerConfig, node_id: int | None
) -> None:
    for key in settings:
        refusal = refusal_of_change(key, for_one_broker=bool(name))
        if refusal is not None:
            raise InvalidConfig(refusal)
    if name:
        config.with_dynamic(image.configs.get((RESOURCE_BROKER, ""), {}), settings)
    else:
        config.with_dynamic(settings, image.configs.get((RESOURCE_BROKER, str(node_id)), {}))


def bad_request(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message)
