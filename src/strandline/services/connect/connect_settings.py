"""The settings of a worker as a service: those of the guard (`http/door_settings`), and how other workers call it.

    listeners=https://0.0.0.0:8083
    rest.advertised.host.name=connect-1.example.com

`rest.advertised.*` are Kafka Connect's: where other workers of the group reach this one, to send changes on.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.herder.worker_settings import WorkerSettings
from strandline.errors import InvalidConfig
from strandline.services.http.door_settings import DoorSettings
from strandline.services.http.peers import peer_context

HOST_NAME: Final = "rest.advertised.host.name"
PORT: Final = "rest.advertised.port"
_BODY_LIMIT: Final = "http.body.bytes.max"
_BODY_BYTES_MAX: Final = 64 << 20
_EVERYWHERE: Final = ("", "0.0.0.0", "::")


@dataclass(frozen=True)
class ConnectServiceSettings:
    """Where a worker listens, who may call it, how others call it, and what it obeys."""

    door: DoorSettings
    worker: WorkerSettings
    bootstrap: str
    host_name: str
    port: int
    """Where other workers connect; 0 for the port that it listens on."""

    @classmethod
    def of(cls, properties: Mapping[str, str], bootstrap: str) -> ConnectServiceSettings:
        """Return the settings of these properties. Raise InvalidConfig, in a sentence, for those that are not safe."""
        # A body that is too large is answered by the API, with Connect's code.
        door = DoorSettings.of({_BODY_LIMIT: str(_BODY_BYTES_MAX)} | dict(properties))
        host_name = properties.get(HOST_NAME, "").strip() or door.host
        if host_name in _EVERYWHERE:
            raise InvalidConfig(
                f"listeners names no host by which other workers reach this one; expected {HOST_NAME}, for example "
                f"{HOST_NAME}=connect-1.example.com"
            )
        port = properties.get(PORT, "0").strip()
        if not port.isdecimal():
            raise InvalidConfig(f"{PORT}={port} is no port")
        try:
            worker = WorkerSettings(properties)
        except InvalidConnectorConfig as error:
            raise InvalidConfig(str(error)) from None
        return cls(replace(door, hosts=door.hosts | {host_name.lower()}), worker, bootstrap, host_name, int(port))

    def leader_context(self) -> ssl.SSLContext:
        """Return the context that checks the certificate of another worker, and shows our own."""
        return peer_context(self.door)
