"""Authentication as the settings of a node want it: of a listener's clients, and of this node at others."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from strandline.broker.network.sasl.authentication import SaslListener, SaslMechanism
from strandline.config.security.sasl_settings import (
    CREDENTIALS_OF_SCRAM,
    NODE_MECHANISMS,
    SASL_PROTOCOLS,
    check_mechanisms,
    sasl_mechanisms,
)
from strandline.errors import InvalidConfig
from strandline.security.sasl.credential_store import CredentialStore, JaasUsers, ScramUsers, TokenSecret
from strandline.security.sasl.exchange import ClientLogin, ServerExchange
from strandline.security.sasl.jaas import LoginModule, parse_jaas
from strandline.security.sasl.oauthbearer import OAUTHBEARER, BearerServer
from strandline.security.sasl.plain import PLAIN, PlainLogin, PlainServer
from strandline.security.sasl.scram import (
    ITERATIONS_MIN,
    NONCE_BITS,
    SALT_BYTES,
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramLogin,
    ScramServer,
    credential_of,
    salted_password,
)

if TYPE_CHECKING:
    from strandline.config.node_config import BrokerConfig
    from strandline.quorum.image.cluster_image import ClusterImage
    from strandline.runtime.runtime import Runtime

_JAAS: Final = "sasl.jaas.config"
SECRET_ROUNDS: Final = 100_000

log = logging.getLogger("strandline.authentication")


def sasl_listener(
    config: BrokerConfig, listener_name: str, runtime: Runtime, image: Callable[[], ClusterImage]
) -> SaslListener | None:
    """Return what authenticates the clients of a listener; None if its protocol has no SASL.

    Raise InvalidConfig if its settings do not say how.
    """
    if config.security_protocol(listener_name) not in SASL_PROTOCOLS:
        return None
    names = sasl_mechanisms(config, listener_name)
    check_mechanisms(names, f"listener {listener_name}")
    modules = {name: _login_module(config, listener_name, name) for name in names}
    # Controllers must log in to each other before there is an image, so their own user is good until then.
    own = _own_credentials(runtime, modules) if config.is_for_quorum(listener_name) else {}
    tokens = TokenSecret(config.delegation_token_secret_key or "", runtime.now_ms)
    store = CredentialStore(lambda: image().kept, _secret(config, runtime), own, tokens)

    def begin(name: str) -> Callable[[], ServerExchange]:
        if name == OAUTHBEARER:
            return _tokens(config, listener_name, runtime)
        if name != PLAIN:
            mechanism = SCRAM_MECHANISMS[name]
            return lambda: ScramServer(mechanism, store, _nonce(runtime))
        if config.listener_text(listener_name, "strandline.sasl.plain.credentials") == CREDENTIALS_OF_SCRAM:
            return partial(PlainServer, ScramUsers(store))
        module = modules[name]
        if module is None:
            raise _missing(listener_name, name, 'user_alice="..."')
        return partial(PlainServer, JaasUsers(module.users))

    return SaslListener(
        runtime,
        {
            name: SaslMechanism(
                begin(name), int(config.listener_text(listener_name, "connections.max.reauth.ms", name) or 0)
            )
            for name in names
        },
        frame_size_max=int(config.listener_text(listener_name, "sasl.server.max.receive.size") or 0),
        failure_delay_ms=config.connection_failed_authentication_delay_ms,
    )


def _tokens(config: BrokerConfig, listener_name: str, runtime: Runtime) -> Callable[[], ServerExchange]:
    """Return what checks the tokens of a listener. InvalidConfig without keys, issuer or audience."""

    def setting(key: str) -> str:
        return (config.listener_text(listener_name, f"sasl.oauthbearer.{key}", OAUTHBEARER) or "").strip()

    for key in ("jwks.endpoint.url", "expected.issuer", "expected.audience"):
        if not setting(key):
            raise InvalidConfig(
                f"listener {listener_name} offers OAUTHBEARER, and sasl.oauthbearer.{key} is not set, so that tokens "
                "could not be checked; expected the keys, the issuer and the audience of valid tokens"
            )
    from strandline.broker.network.sasl.jwks_source import JwksSource, RefreshTimes
    from strandline.security.sasl.jwt import TokenRules, check_token

    times = RefreshTimes(
        int(setting("jwks.endpoint.refresh.ms")),
        int(setting("jwks.endpoint.retry.backoff.ms")),
        int(setting("jwks.endpoint.retry.backoff.max.ms")),
    )
    audience = frozenset(each.strip() for each in setting("expected.audience").split(",") if each.strip())
    rules = TokenRules(
        setting("expected.issuer"),
        audience,
        int(setting("clock.skew.seconds")),
        setting("sub.claim.name"),
        setting("scope.claim.name"),
    )
    ring = JwksSource(runtime, setting("jwks.endpoint.url"), times).ring
    return lambda: BearerServer(
        lambda token: check_token(token, ring.key_of, rules, runtime.now_ms()), _on_invalid_token
    )


def _on_invalid_token(reason: str) -> None:
    log.debug("a token was rejected: %s", reason)


def node_login(
    config: BrokerConfig, listener_name: str, mechanism: str, setting: str, runtime: Runtime
) -> Callable[[], ClientLogin] | None:
    """Return how this node logs in to other nodes at this listener; None if its protocol has no SASL.

    `setting` has the mechanism. Raise InvalidConfig if the settings have no name and password.
    """
    if config.security_protocol(listener_name) not in SASL_PROTOCOLS:
        return None
    check_mechanisms([mechanism], setting, NODE_MECHANISMS)
    module = _login_module(config, listener_name, mechanism)
    name = None if module is None else module.option("username")
    secret = None if module is None else module.option("password")
    if not name or not secret:
        raise _missing(listener_name, mechanism, 'username="..." password="..."')
    if mechanism == PLAIN:
        return partial(PlainLogin, name, secret)
    return lambda: ScramLogin(SCRAM_MECHANISMS[mechanism], name, secret, _nonce(runtime))


def _login_module(config: BrokerConfig, listener_name: str, mechanism: str) -> LoginModule | None:
    raw = config.listener_text(listener_name, _JAAS, mechanism)
    return None if raw is None else parse_jaas(raw, setting=_jaas_name(listener_name, mechanism))


def _jaas_name(listener_name: str, mechanism: str) -> str:
    return f"listener.name.{listener_name.lower()}.{mechanism.lower()}.{_JAAS}"


def _missing(listener_name: str, mechanism: str, options: str) -> InvalidConfig:
    kind = "plain.PlainLoginModule" if mechanism == PLAIN else "scram.ScramLoginModule"
    return InvalidConfig(
        f"{_jaas_name(listener_name, mechanism)} is not set, or lacks options; expected "
        f"org.apache.kafka.common.security.{kind} required {options};"
    )


def _own_credentials(
    runtime: Runtime, modules: dict[str, LoginModule | None]
) -> dict[tuple[int, str], ScramCredential]:
    found = {}
    for mechanism_name, module in modules.items():
        mechanism = SCRAM_MECHANISMS.get(mechanism_name)
        name, secret = (None, None) if module is None else (module.option("username"), module.option("password"))
        if mechanism is not None and name and secret:
            salt = runtime.random.randbytes(SALT_BYTES)
            salted = salted_password(mechanism, secret, salt, ITERATIONS_MIN)
            found[mechanism.number, name] = credential_of(mechanism, salted, salt, ITERATIONS_MIN)
    return found


def _secret(config: BrokerConfig, runtime: Runtime) -> bytes:
    """Return what salts of users that do not exist are made from.

    With `delegation.token.secret.key`, which the nodes of a cluster share, all of them answer with the same salts, also
    after a restart. Otherwise it is random. It never comes from a password, because any peer sees such salts and could
    try passwords against them; a key is not guessed, and the many rounds make even a poor one slow to try.
    """
    key = config.delegation_token_secret_key
    if key:
        return hashlib.pbkdf2_hmac("sha512", key.encode(), b"salts of unknown users", SECRET_ROUNDS)
    return runtime.random.randbytes(SALT_BYTES)


def _nonce(runtime: Runtime) -> str:
    return f"{runtime.random.getrandbits(NONCE_BITS):x}"
