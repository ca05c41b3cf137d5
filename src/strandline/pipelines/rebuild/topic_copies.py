"""Topics of versions are made and removed: like another one, if they are not there; and gone, if they are."""

from __future__ import annotations

import time
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

from strandline.errors import WorldError
from strandline.pipelines.run.local_node import admin_of

TIMEOUT_S: Final = 30.0


class TopicFailed(WorldError):
    """The cluster did not make or remove a topic; one sentence."""


def make_like(bootstrap: str, model: str, name: str) -> None:
    """Make a topic with the partitions, replicas and settings of another, unless it is there."""
    admin = admin_of(bootstrap)
    there = living_topics(admin)
    if name in there:
        return
    kafka, admin_api = import_module("confluent_kafka"), import_module("confluent_kafka.admin")
    resource = admin_api.ConfigResource(admin_api.ConfigResource.Type.TOPIC, model)
    told = admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource].result()
    dynamic = admin_api.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    settings = {each.name: each.value for each in told.values() if each.source == dynamic}
    partitions = there[model].partitions
    new = admin_api.NewTopic(
        name,
        num_partitions=len(partitions),
        replication_factor=len(next(iter(partitions.values())).replicas),
        config=settings,
    )
    try:
        admin.create_topics([new], operation_timeout=TIMEOUT_S)[name].result()
    except kafka.KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise TopicFailed(f"topic {name} cannot be made: {error.args[0].str()}") from error
    deadline = time.monotonic() + TIMEOUT_S
    while name not in living_topics(admin):
        if time.monotonic() > deadline:
            raise TopicFailed(f"topic {name} was made, but no broker knows it yet: look at `strandline cluster health`")
        time.sleep(0.05)


def remove_topics(bootstrap: str, names: Iterable[str]) -> list[str]:
    """Those that were there."""
    admin = admin_of(bootstrap)
    there = living_topics(admin)
    doomed = [name for name in names if name in there]
    if not doomed:
        return []
    kafka = import_module("confluent_kafka")
    for name, future in admin.delete_topics(doomed, operation_timeout=TIMEOUT_S).items():
        try:
            future.result()
        except kafka.KafkaException as error:
            if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
                raise TopicFailed(f"topic {name} cannot be removed: {error.args[0].str()}") from error
    return doomed


def living_topics(admin: Any) -> dict[str, Any]:
    found = admin.list_topics(timeout=TIMEOUT_S).topics
    return {name: each for name, each in found.items() if each.error is None and each.partitions}
