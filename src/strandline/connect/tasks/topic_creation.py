"""Topics that a source creates before it writes to them: `topic.creation.*` (KIP-158).

    topic.creation.default.partitions=6
    topic.creation.default.replication.factor=3
    topic.creation.groups=compacted
    topic.creation.compacted.include=state-.*
    topic.creation.compacted.cleanup.policy=compact

Without such settings the brokers create topics, if they are told to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.failures import ClientFailed
from strandline.client.topic_creation import create_topic
from strandline.connect.failures import ConnectFailed, RetriableFailure
from strandline.errors import Disconnected, TimedOut

TIMEOUT_S: Final = 30.0
BROKERS_CHOICE: Final = -1
_PREFIX: Final = "topic.creation."
_OWN: Final = ("include", "exclude", "partitions", "replication.factor")


@dataclass(frozen=True)
class CreationRule:
    """How topics of some names are created."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]
    partitions: int
    replicas: int
    settings: Mapping[str, str]

    def holds_for(self, topic: str) -> bool:
        return any(re.fullmatch(each, topic) for each in self.include) and not any(
            re.fullmatch(each, topic) for each in self.exclude
        )


class TopicCreation:
    """The rules of a connector."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str]) -> None:
        self._bootstrap = bootstrap
        given = {name.removeprefix(_PREFIX): value for name, value in properties.items() if name.startswith(_PREFIX)}
        groups = [each.strip() for each in given.pop("groups", "").split(",") if each.strip()]
        default = _rule("default", given, {})
        self._rules = [_rule(each, given, given) for each in groups]
        if given:
            self._rules.append(CreationRule((".*",), (), default.partitions, default.replicas, default.settings))

    def create(self, topic: str) -> None:
        """Create a topic if a rule is for it and it is missing."""
        rule = next((each for each in self._rules if each.holds_for(topic)), None)
        if rule is None:
            return
        client = ClusterClient(ClientSettings.within(self._bootstrap, "strandline-connect", TIMEOUT_S))
        try:
            create_topic(
                client, topic, partitions=rule.partitions, replicas_max=rule.replicas, settings=dict(rule.settings)
            )
        except (Disconnected, TimedOut) as error:
            raise RetriableFailure(f"the topic {topic} cannot be created: {error}") from error
        except ClientFailed as error:
            raise ConnectFailed(f"the topic {topic} cannot be created: {error}") from error
        finally:
            client.close()


def _rule(group: str, given: Mapping[str, str], defaults: Mapping[str, str]) -> CreationRule:
    prefix = f"{group}."
    own = {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}

    def number(name: str) -> int:
        return int(own.get(name) or defaults.get(f"default.{name}") or BROKERS_CHOICE)

    return CreationRule(
        _patterns(own.get("include")),
        _patterns(own.get("exclude")),
        number("partitions"),
        number("replication.factor"),
        {name: value for name, value in own.items() if name not in _OWN},
    )


def _patterns(text: str | None) -> tuple[str, ...]:
    return tuple(each.strip() for each in (text or "").split(",") if each.strip())
