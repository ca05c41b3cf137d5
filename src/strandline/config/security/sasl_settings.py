"""The settings of authentication by SASL.

Each may be set for one listener, `listener.name.<name>.<setting>`, and for one of its mechanisms,
`listener.name.<name>.<mechanism>.<setting>`, both in lower case. The narrower one wins.
"""

from __future__ import annotations

import dataclasses
from typing import Final, Protocol

from strandline.config.settings import at_least, boolean, class_name, integer, long, one_of, password, text, words
from strandline.errors import InvalidConfig

GSSAPI: Final = "GSSAPI"
PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
NODE_MECHANISMS: Final = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512")
"""Mechanisms that a node logs in to other nodes with: it has no token of its own."""
SERVED_MECHANISMS: Final = (*NODE_MECHANISMS, OAUTHBEARER)
SASL_PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")
CREDENTIALS_OF_JAAS: Final = "jaas"
CREDENTIALS_OF_SCRAM: Final = "scram"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SaslSettings:
    """The table of SASL settings. Each attribute is the setting of that name with underscores for dots."""

    sasl_enabled_mechanisms: tuple[str, ...] = words(
        "sasl.enabled.mechanisms",
        (GSSAPI,),
        None,
        "Mechanisms that clients may log in with: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. There is no GSSAPI "
        "(Kerberos) here, so a listener with SASL needs this setting.",
    )
    sasl_mechanism_inter_broker_protocol: str = text(
        "sasl.mechanism.inter.broker.protocol", GSSAPI, None, "The mechanism that brokers log in to each other with."
    )
    sasl_mechanism_controller_protocol: str = text(
        "sasl.mechanism.controller.protocol", GSSAPI, None, "The mechanism that nodes log in to controllers with."
    )
    sasl_jaas_config: str | None = password(
        "sasl.jaas.config",
        "A login module with its options. `username` and `password` are what this node logs in to other nodes with; of "
        'PLAIN, `user_NAME="PASSWORD"` are the users that it accepts. Usually set for a listener and a mechanism.',
    )
    sasl_server_max_receive_size: int = integer(
        "sasl.server.max.receive.size",
        524_288,
        at_least(1),
        "The largest frame that a client may send before it is authenticated.",
    )
    connections_max_reauth_ms: int = long(
        "connections.max.reauth.ms",
        0,
        at_least(0),
        "How long a login is good for: then the next request closes the connection, unless the client has "
        "authenticated again (KIP-368). 0 means for as long as the connection.",
    )
    connection_failed_authentication_delay_ms: int = integer(
        "connection.failed.authentication.delay.ms",
        100,
        at_least(0),
        "How long the answer to a failed login is held back. It doubles with each failure of a host within a minute, "
        "up to 32 times.",
    )
    sasl_server_callback_handler_class: str | None = class_name(
        "sasl.server.callback.handler.class",
        one_of(
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
            "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
        ),
        "What checks credentials. Kafka needs this class for OAUTHBEARER; here tokens are checked without it, so it "
        "may be set and changes nothing.",
        effect=False,
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = text(
        "sasl.oauthbearer.jwks.endpoint.url",
        None,
        None,
        "The public keys that tokens of OAUTHBEARER are checked with: a JWKS at `https://...` or in `file:///...`. "
        "Without it a listener with OAUTHBEARER does not start.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3_600_000,
        at_least(1),
        "How often the keys are read again. An unknown key id in a token has them read at once.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = long(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        100,
        at_least(1),
        "The pause after keys could not be read; it doubles with each failure.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = long(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 10_000, at_least(1), "The longest such pause."
    )
    sasl_oauthbearer_clock_skew_seconds: int = integer(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        at_least(0),
        "How far the clock of the issuer may be away from ours.",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = words(
        "sasl.oauthbearer.expected.audience",
        (),
        None,
        "Audiences, one of which a token must name. Unlike in Kafka it must be set for OAUTHBEARER, because otherwise "
        "a token for another service would be good here.",
    )
    sasl_oauthbearer_expected_issuer: str | None = text(
        "sasl.oauthbearer.expected.issuer",
        None,
        None,
        "The issuer that a token must name. Unlike in Kafka it must be set for OAUTHBEARER.",
    )
    sasl_oauthbearer_scope_claim_name: str = text(
        "sasl.oauthbearer.scope.claim.name", "scope", None, "The claim with the scopes of a token."
    )
    sasl_oauthbearer_sub_claim_name: str = text(
        "sasl.oauthbearer.sub.claim.name", "sub", None, "The claim whose value is the name of the user."
    )
    delegation_token_secret_key: str | None = password(
        "delegation.token.secret.key",
        "The secret that delegation tokens are made with, long, random, and the same on every node. Without it there "
        "are none. Salts for users that do not exist are made from it, too.",
    )
    delegation_token_max_lifetime_ms: int = long(
        "delegation.token.max.lifetime.ms", 604_800_000, at_least(1), "How long a token may be renewed."
    )
    delegation_token_expiry_time_ms: int = long(
        "delegation.token.expiry.time.ms", 86_400_000, at_least(1), "How long a token is good for unless it is renewed."
    )
    delegation_token_expiry_check_interval_ms: int = long(
        "delegation.token.expiry.check.interval.ms",
        3_600_000,
        at_least(1),
        "How often the active controller removes tokens that are over. They are accepted no longer before that.",
    )
    strandline_sasl_plain_credentials: str = text(
        "strandline.sasl.plain.credentials",
        CREDENTIALS_OF_JAAS,
        one_of(CREDENTIALS_OF_JAAS, CREDENTIALS_OF_SCRAM),
        "Strandline's own. What passwords of PLAIN are checked against: the users of `sasl.jaas.config`, or the SCRAM "
        "credentials of the cluster.",
    )
    strandline_sasl_plain_without_tls: bool = boolean(
        "strandline.sasl.plain.without.tls",
        False,
        "Strandline's own. Whether PLAIN and OAUTHBEARER may be offered by a listener without TLS that is not on "
        "loopback. Passwords and tokens are then sent in the clear.",
    )


class ListenerTexts(Protocol):
    """The settings of a node, as far as listeners have their own."""

    def listener_text(self, listener_name: str, key: str, mechanism: str = "") -> str | None: ...


def sasl_mechanisms(config: ListenerTexts, listener_name: str) -> list[str]:
    """Return the mechanisms of a listener, in their order."""
    raw = config.listener_text(listener_name, "sasl.enabled.mechanisms") or ""
    return list(dict.fromkeys(each.strip().upper() for each in raw.split(",") if each.strip()))


def sends_secrets(config: ListenerTexts, listener_name: str) -> bool:
    """Return whether a mechanism of the listener has clients send a password or a token."""
    return any(each in (PLAIN, OAUTHBEARER) for each in sasl_mechanisms(config, listener_name))


def check_sasl_listener(config: ListenerTexts, listener_name: str, *, is_in_the_clear: bool) -> None:
    """Raise InvalidConfig if a listener with SASL could not authenticate its clients, or not safely.

    `is_in_the_clear`: without TLS, and not on loopback.
    """
    mechanisms = sasl_mechanisms(config, listener_name)
    check_mechanisms(mechanisms, f"listener {listener_name}")
    is_allowed = config.listener_text(listener_name, "strandline.sasl.plain.without.tls") == "true"
    sent = [each for each in mechanisms if each in (PLAIN, OAUTHBEARER)]
    if sent and is_in_the_clear and not is_allowed:
        raise InvalidConfig(
            f"listener {listener_name} offers {sent[0]} without TLS, so secrets would be sent in the clear; expected "
            "SASL_SSL, SCRAM-SHA-512 in sasl.enabled.mechanisms, or strandline.sasl.plain.without.tls=true"
        )


def check_mechanisms(mechanisms: list[str], of: str, known: tuple[str, ...] = SERVED_MECHANISMS) -> None:
    """Raise InvalidConfig for a mechanism that is not served."""
    served = ", ".join(known)
    if GSSAPI in mechanisms:
        raise InvalidConfig(
            f"{of} is to use GSSAPI (Kerberos), Kafka's default, which this node does not speak; expected a mechanism "
            f"among {served}, for example SCRAM-SHA-512 with users of `strandline user create`"
        )
    unknown = [each for each in mechanisms if each not in known]
    if unknown or not mechanisms:
        raise InvalidConfig(f"{of} has {unknown[0] if unknown else 'no mechanism'}; expected one or more of {served}")
