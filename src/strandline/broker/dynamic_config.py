"""Settings that change while the broker runs: read from the cluster's image, passed on to the parts that subscribed.

Most parts ask `environment.config()` whenever they need a value. A part that holds a copy subscribes. The controller
checks settings before it writes them. An older version or Apache Kafka may have written one that this version does not
accept: the broker then ignores that setting, and logs it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from strandline.broker.environment import Environment
from strandline.config.node_config import BrokerConfig
from strandline.config.node_settings import NODE_SETTINGS, refusal_of_change, setting_of_listener
from strandline.errors import InvalidConfig
from strandline.quorum.image.cluster_image import RESOURCE_BROKER

log = logging.getLogger("strandline.config")

Subscriber = Callable[[BrokerConfig], object]


class DynamicConfig:
    """The settings of the image on top of those of the file, and the parts that hold a copy of some."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._static = environment.config()
        self._subscribers: list[Subscriber] = []

    def subscribe(self, configure: Subscriber) -> None:
        """Have `configure` called with the settings after each change, in the order of subscription."""
        self._subscribers.append(configure)

    def apply(self) -> None:
        """Put into force what the image says now."""
        before, image, node_id = self._environment.config(), self._environment.image(), self._environment.node_id
        default = image.configs.get((RESOURCE_BROKER, ""), {})
        broker = image.configs.get((RESOURCE_BROKER, str(node_id)), {})
        if default == before.dynamic_default and broker == before.dynamic_broker:
            return
        try:
            config = self._static.with_dynamic(
                _usable(default, for_one_broker=False), _usable(broker, for_one_broker=True)
            )
        except InvalidConfig as error:
            log.error("dynamic settings are not in force: %s", error)
            return
        for configure in self._subscribers:
            configure(config)


def _usable(settings: Mapping[str, str], *, for_one_broker: bool) -> dict[str, str]:
    """Return the settings that this version accepts; log the others."""
    usable = {}
    for name, raw in settings.items():
        try:
            refusal = refusal_of_change(name, for_one_broker=for_one_broker)
            if refusal is not None:
                raise InvalidConfig(refusal)
            known = NODE_SETTINGS.get(name) or setting_of_listener(name)
            if known is not None:
                known.parse(raw)
        except InvalidConfig as error:
            log.error("a dynamic setting is ignored: %s", error)
        else:
            usable[name] = raw
    return usable
