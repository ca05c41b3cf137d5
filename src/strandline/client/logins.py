"""The login of our own client, from the settings that Kafka's clients have.

`security.protocol`, `sasl.mechanism`, and `sasl.username` with `sasl.password`, or `sasl.jaas.config`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from strandline.errors import InvalidConfig
from strandline.security.sasl.exchange import ClientLogin
from strandline.security.sasl.jaas import parse_jaas
from strandline.security.sasl.plain import PLAIN, PlainLogin
from strandline.security.sasl.scram import SCRAM_MECHANISMS, ScramLogin

PLAINTEXT: Final = "plaintext"
SASL_PLAINTEXT: Final = "sasl_plaintext"
NONCE_BYTES: Final = 24


def protocol_of(properties: Mapping[str, str]) -> str:
    return properties.get("security.protocol", PLAINTEXT).strip().lower()


def mechanism_of(properties: Mapping[str, str]) -> str:
    return (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "").strip().upper()


def can_log_in(properties: Mapping[str, str]) -> bool:
    """Return whether our own client can reach a listener with these settings."""
    if protocol_of(properties) == SASL_PLAINTEXT:
        return mechanism_of(properties) in (PLAIN, *SCRAM_MECHANISMS)
    return protocol_of(properties) == PLAINTEXT


def login_of(properties: Mapping[str, str]) -> Callable[[], ClientLogin] | None:
    """Return what makes the login of a connection; None if none is needed. InvalidConfig if something is missing."""
    if protocol_of(properties) == PLAINTEXT:
        return None
    if not can_log_in(properties):
        raise InvalidConfig(
            f"security.protocol={protocol_of(properties)} with sasl.mechanism={mechanism_of(properties) or 'none'} is "
            f"out of reach here; expected sasl_plaintext with PLAIN, {' or '.join(SCRAM_MECHANISMS)}"
        )
    name, secret, is_token = properties.get("sasl.username"), properties.get("sasl.password"), False
    if properties.get("sasl.jaas.config"):
        module = parse_jaas(properties["sasl.jaas.config"])
        name, secret = module.option("username"), module.option("password")
        is_token = (module.option("tokenauth") or "").lower() == "true"
    if not name or not secret:
        raise InvalidConfig("the login lacks a name or a password; expected sasl.username and sasl.password")
    mechanism = SCRAM_MECHANISMS.get(mechanism_of(properties))
    if mechanism is None:
        return partial(PlainLogin, name, secret)
    return lambda: ScramLogin(mechanism, name, secret, secrets.token_hex(NONCE_BYTES), is_token=is_token)
