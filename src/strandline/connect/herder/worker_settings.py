"""The settings of a worker, by Kafka Connect's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from strandline.connect.config import Config, Long, option

_DEFAULTS_OF_CONNECTORS: Final = ("key.converter", "value.converter", "header.converter")


class WorkerSettings(Config):
    """What a worker obeys. Clients' security settings go to every client of the cluster."""

    group_id: str = option("Workers of one group share connectors.", default="connect-cluster", importance="HIGH")
    config_topic: str = option("Topic of configs.", default="connect-configs", name="config.storage.topic")
    offset_topic: str = option("Topic of source positions.", default="connect-offsets", name="offset.storage.topic")
    offset_partitions: int = option("Its partitions.", default=25, name="offset.storage.partitions", low=1)
    status_topic: str = option("Topic of states.", default="connect-status", name="status.storage.topic")
    status_partitions: int = option("Its partitions.", default=5, name="status.storage.partitions", low=1)
    key_converter: str = option("Converter of keys, unless a connector has its own.", default="JsonConverter")
    value_converter: str = option("Converter of values, unless a connector has its own.", default="JsonConverter")
    header_converter: str = option("Converter of headers.", default="SimpleHeaderConverter")
    session_timeout_ms: int = option("After this silence others run the tasks.", default=10_000, low=1000)
    heartbeat_interval_ms: int = option("Pause between two signs of life.", default=2_000, low=100)
    rebalance_timeout_ms: int = option("How long the group waits for its members.", default=6_000, low=1000)
    rebalance_delay_ms: int = option(
        "How long tasks of a worker that is gone wait for its return.",
        default=0,
        name="scheduled.rebalance.max.delay.ms",
        low=0,
    )
    graceful_ms: int = option(
        "How long a task may take to stop.", default=5_000, name="task.shutdown.graceful.timeout.ms", low=0
    )
    worker_memory_bytes_max: Long = option(
        "Resident memory at which the worker hands its tasks over and starts again; 0 for no limit.", default=0, low=0
    )
    worker_open_files_max: int = option("Open files and sockets at which it does so; 0 for no limit.", default=0, low=0)
    plugin_modules: list[str] = option("Modules whose classes configs may name as module:Class.", default=[])
    allowed_paths: list[str] = option("Directories that connectors may read and write.", default=[])

    def of_connectors(self) -> dict[str, str]:
        """Return what holds for connectors that do not say otherwise: converters with their settings."""
        found = {
            name: value
            for name, value in self.properties.items()
            if name.startswith(tuple(f"{each}." for each in _DEFAULTS_OF_CONNECTORS))
        }
        converters = dict(
            zip(
                _DEFAULTS_OF_CONNECTORS,
                (self.key_converter, self.value_converter, self.header_converter),
                strict=True,
            )
        )
        for name in _DEFAULTS_OF_CONNECTORS[:2]:
            if "Json" in converters[name] and name not in self.properties:
                # Plain JSON is what Python programs read; a worker that names its converter gets Kafka's default.
                found.setdefault(f"{name}.schemas.enable", "false")
        return converters | found


def with_defaults(defaults: Mapping[str, str], config: Mapping[str, str]) -> dict[str, str]:
    """Return a config with the worker's converters where it has none; settings of a converter go with it."""
    kept = {
        name: value
        for name, value in defaults.items()
        if not any(each in config and name.startswith(each) for each in _DEFAULTS_OF_CONNECTORS)
    }
    return kept | dict(config)
