"""Passwords in configs that are shown.

Kafka Connect shows a config as it was given, passwords included. Here a value of type PASSWORD that was given in plain
text is shown as `[hidden]`, as is a setting for a library that looks like one, such as `catalog.token`. A value like
`${env:PASSWORD}` is shown as it is, because it tells nothing. A client that sends `[hidden]` back, as a form does that
was filled with what was shown, keeps the value that is stored.

Anyone who may change a connector can send its stored password to another address by changing that address. Keep
secrets in `${...}` and do not give the right to change connectors to callers that may not see them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from strandline.connect.config import Option
from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.herder.interface import RequestFailed
from strandline.connect.plugins import Plugins
from strandline.connect.validation.common_options import (
    CLIENT_PREFIXES,
    CONNECTOR_CLASS,
    CONVERTERS,
    PREDICATES,
    TRANSFORMS,
)
from strandline.connect.validation.config_infos import HIDDEN, REFERENCE
from strandline.connect.validation.parts import aliases_of, part_config

_CLIENT_SECRETS: Final = ("password", "sasl.jaas.config", "ssl.key.pem", "ssl.keystore.key", "secret")
"""Ends of names of a client's settings that are secret, Kafka's and librdkafka's."""
_LIKELY_SECRETS: Final = ("password", "secret", "token", "credentials", "key.pem", "jaas.config", "api.key")
"""Ends of names that are taken for secret if the class, which would know, cannot be loaded."""
_LIBRARY_PREFIXES: Final = ("catalog.", "storage.", "store.option.")
"""Settings that a connector gives to a library as they are, so no class knows which of them are secret."""
_LIBRARY_SECRETS: Final = re.compile("passw|token|secret|key|credential|authorization")
_PASSWORD_IN_URL: Final = re.compile(r"://[^/?#@]*:[^/?#]+@")


def is_library_secret(name: str, value: str) -> bool:
    """Return whether a setting is for a library, and its name or its URL tells that it is secret."""
    if not name.startswith(_LIBRARY_PREFIXES):
        return False
    return _LIBRARY_SECRETS.search(name.lower()) is not None or _PASSWORD_IN_URL.search(value) is not None


def masked(plugins: Plugins, config: Mapping[str, str]) -> dict[str, str]:
    """Return a config as it is shown."""
    secret = _Secrets(plugins, config)
    return {
        name: HIDDEN if value and REFERENCE not in value and secret.has(name, value) else value
        for name, value in config.items()
    }


def unmasked(plugins: Plugins, config: Mapping[str, str | None], stored: Mapping[str, str]) -> dict[str, str | None]:
    """Return a config with the stored values where it says `[hidden]`. Raise RequestFailed if there is none."""
    secret: _Secrets | None = None
    found = dict(config)
    for name, value in config.items():
        if value != HIDDEN:
            continue
        secret = secret or _Secrets(plugins, {key: text for key, text in {**stored, **config}.items() if text})
        if not secret.has(name, stored.get(name, "")):
            continue
        if name not in stored:
            raise RequestFailed(
                400, f"{name} is {HIDDEN}, which stands for the value that is stored, and there is none"
            )
        found[name] = stored[name]
    return found


class _Secrets:
    """Which settings of a config are passwords."""

    def __init__(self, plugins: Plugins, config: Mapping[str, str]) -> None:
        self._names: set[str] = set()
        self._is_known = self._add_connector(plugins, config)
        for setting in CONVERTERS:
            self._add_part(f"{setting}.", config.get(setting))
        for setting in (TRANSFORMS, PREDICATES):
            for alias in aliases_of(config, setting):
                self._add_part(f"{setting}.{alias}.", config.get(f"{setting}.{alias}.type"))

    def has(self, name: str, value: str) -> bool:
        if name in self._names or is_library_secret(name, value):
            return True
        if name.startswith(CLIENT_PREFIXES):
            return name.endswith(_CLIENT_SECRETS)
        return not self._is_known and name.endswith(_LIKELY_SECRETS)

    def _add_connector(self, plugins: Plugins, config: Mapping[str, str]) -> bool:
        try:
            self._add("", plugins.find(config.get(CONNECTOR_CLASS, "")).load().Config.options)
        except InvalidConnectorConfig:
            return False
        return True

    def _add_part(self, prefix: str, name: str | None) -> None:
        config = None if name is None else part_config(name.strip())
        self._add(prefix, () if config is None else config.options)

    def _add(self, prefix: str, options: tuple[Option, ...]) -> None:
        self._names |= {prefix + each.name for each in options if each.type == "PASSWORD"}
