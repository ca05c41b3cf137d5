"""The settings of a registry as a service: those of the guard (`http/door_settings`), and how others call it.

    listeners=https://0.0.0.0:8081
    host.name=registry-1.example.com

`host.name` is Confluent's: the name under which other registries of the group reach this one, to send writes on.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from strandline.errors import InvalidConfig
from strandline.schemas.http.rest import DROPPED_BYTES_MAX
from strandline.schemas.registry import RegistrySettings
from strandline.services.http.door_settings import DoorSettings
from strandline.services.http.peers import peer_context

HOST_NAME: Final = "host.name"
_BODY_LIMIT: Final = "http.body.bytes.max"
_EVERYWHERE: Final = ("", "0.0.0.0", "::")


@dataclass(frozen=True)
class RegistryServiceSettings:
    """Where a registry listens, who may call it, how others call it, and the topic that it serves."""

    door: DoorSettings
    registry: RegistrySettings
    host_name: str

    @classmethod
    def of(cls, properties: Mapping[str, str], registry: RegistrySettings) -> RegistryServiceSettings:
        """Return the settings of these properties. Raise InvalidConfig, in a sentence, for those that are not safe."""
        # A schema that is too large is answered by the registry, with Confluent's code.
        door = DoorSettings.of({_BODY_LIMIT: str(DROPPED_BYTES_MAX)} | dict(properties))
        host_name = properties.get(HOST_NAME, "").strip() or door.host
        if host_name in _EVERYWHERE:
            raise InvalidConfig(
                f"listeners names no host by which other registries reach this one; expected {HOST_NAME}, for example "
                f"{HOST_NAME}=registry-1.example.com"
            )
        return cls(replace(door, hosts=door.hosts | {host_name.lower()}), registry, host_name)

    def primary_context(self) -> ssl.SSLContext:
        """Return the context that checks the certificate of another registry, and shows our own."""
        return peer_context(self.door)
