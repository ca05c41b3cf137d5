"""Logins: a visitor proves to the cluster itself who it is, and the console talks to the cluster as that user."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Final

from strandline.client.cluster_client import check_login
from strandline.client.security import BearerSecurity, ClientSecurity, LoginRefused
from strandline.console.failures import PageFailed, words_of
from strandline.console.reading.user_cluster import ClusterUser
from strandline.console.settings import ConsoleCluster
from strandline.errors import Disconnected, InvalidConfig, TimedOut
from strandline.security.http_credentials import BASIC, has_control, parse_basic, parse_bearer
from strandline.security.sasl.login_failures import LoginFailures
from strandline.security.sasl.oauthbearer import OAUTHBEARER
from strandline.security.sasl.scram import SCRAM_MECHANISMS

PASSWORD: Final = "password"
DELEGATION: Final = "delegation"
BEARER_TOKEN: Final = "bearer"
KINDS: Final = (PASSWORD, DELEGATION, BEARER_TOKEN)
LOGINS_PENDING_MAX: Final = 64
LOGINS_OF_ADDRESS_MAX: Final = 4
"""So that an address that guesses passwords leaves room for others."""
_FAILURE_DELAY_MS: Final = 200
_TIMEOUT_S: Final = 8.0
_SCRAM_DEFAULT: Final = "SCRAM-SHA-512"
_WRONG: Final = "The cluster does not accept this login"


class ConsoleLogins:
    """The logins that run. Used by one event loop; `executor` runs them."""

    def __init__(self, executor: Executor, clock: Callable[[], float]) -> None:
        self._executor = executor
        self._clock = clock
        self._pending: Counter[str] = Counter()
        self._failures = LoginFailures(_FAILURE_DELAY_MS)

    async def prove(self, cluster: ConsoleCluster, kind: str, name: str, secret: str, address: str) -> ClusterUser:
        """Return the user that these credentials prove. Raise PageFailed if the cluster does not accept them."""
        user = _user(cluster, kind, name, secret)
        if self._pending.total() >= LOGINS_PENDING_MAX or self._pending[address] >= LOGINS_OF_ADDRESS_MAX:
            raise PageFailed(503, "Too many logins are pending", "try again in a moment")
        self._pending[address] += 1
        try:
            loop = asyncio.get_running_loop()
            check = partial(
                check_login, cluster.bootstrap, user.security, client_id="strandline-console", timeout_s=_TIMEOUT_S
            )
            await loop.run_in_executor(self._executor, check)
        except LoginRefused:
            await asyncio.sleep(self._failures.note(address, self._clock()))
            raise PageFailed(401, _WRONG, "check the name and the secret") from None
        except (Disconnected, TimedOut) as error:
            raise PageFailed(503, f"The login cannot be checked: {words_of(error).sentence}", "try again") from None
        finally:
            self._pending[address] -= 1
            if not self._pending[address]:
                del self._pending[address]
        return user

    async def prove_header(self, cluster: ConsoleCluster, header: str, address: str) -> ClusterUser:
        """Return the user of a header `Authorization`, for programs that have no session."""
        scheme, _, rest = header.strip().partition(" ")
        try:
            if scheme.lower() == BASIC:
                given = parse_basic(rest.strip())
                return await self.prove(cluster, PASSWORD, given.name, given.secret, address)
            return await self.prove(cluster, BEARER_TOKEN, "", rest.strip(), address)
        except ValueError:
            raise PageFailed(401, "The header Authorization has no credentials of Basic or Bearer") from None


def _user(cluster: ConsoleCluster, kind: str, name: str, secret: str) -> ClusterUser:
    if not secret or (kind != BEARER_TOKEN and not name) or has_control(name + secret):
        raise PageFailed(401, _WRONG, "a name and a secret are needed, without control characters")
    try:
        if kind == BEARER_TOKEN:
            found = parse_bearer(secret, cluster.client.get("sasl.oauthbearer.sub.claim.name", "sub"))
            bearer = BearerSecurity.with_token(_client(cluster, OAUTHBEARER), found.name, secret)
            return ClusterUser(found.name, bearer, found.expires_s)
        if kind == DELEGATION:
            return ClusterUser(f"token {name}", ClientSecurity.of(_delegation(cluster, name, secret)))
        mechanism = cluster.mechanism if cluster.mechanism != OAUTHBEARER else _SCRAM_DEFAULT
        given = {"sasl.username": name, "sasl.password": secret}
        return ClusterUser(name, ClientSecurity.of(_client(cluster, mechanism) | given))
    except (ValueError, RecursionError):
        raise PageFailed(401, "This is no token of OAUTHBEARER", "paste a JSON web token, whole") from None
    except InvalidConfig as error:
        raise PageFailed(400, f"The login cannot be made: {error}") from None


def _client(cluster: ConsoleCluster, mechanism: str) -> dict[str, str]:
    kept = {name: text for name, text in cluster.client.items() if not name.startswith("sasl.oauthbearer.")}
    return kept | {"sasl.mechanism": mechanism}


def _delegation(cluster: ConsoleCluster, token_id: str, hmac_text: str) -> Mapping[str, str]:
    """Return the settings of a login with a delegation token: SCRAM with its id and its HMAC."""
    mechanism = cluster.mechanism if cluster.mechanism in SCRAM_MECHANISMS else _SCRAM_DEFAULT

    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'{module} required username={quoted(token_id)} password={quoted(hmac_text)} tokenauth="true";'
    return _client(cluster, mechanism) | {"sasl.jaas.config": jaas}
