"""The settings of a console as a service: those of the guard (`http/door_settings`), and those of the console."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from strandline.console.settings import ConsoleSettings
from strandline.errors import InvalidConfig
from strandline.services.http.door_settings import DoorSettings

_BODY_LIMIT: Final = "http.body.bytes.max"
_BODY_BYTES_MAX: Final = 4 << 20


@dataclass(frozen=True)
class ConsoleServiceSettings:
    """Where a console listens, and what it shows."""

    door: DoorSettings
    console: ConsoleSettings

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> ConsoleServiceSettings:
        """Return the settings of these properties. Raise InvalidConfig, in a sentence, for those that are not safe."""
        door = DoorSettings.of({_BODY_LIMIT: str(_BODY_BYTES_MAX)} | dict(properties), has_own_login=True)
        console = ConsoleSettings.of(properties, is_exposed=door.is_exposed, is_secure=door.has_tls)
        if door.is_exposed and not door.has_tls and any(each.has_login for each in console.clusters):
            raise InvalidConfig(
                f"listeners=http://{door.host}:{door.port} would take passwords from other machines without TLS; "
                "expected https:// with listeners.https.ssl.keystore.location, or a loopback address such as 127.0.0.1"
            )
        return cls(door, console)
