"""Credentials of callers, proven by a login to the cluster.

A name with a password (Basic) logs in by SCRAM or PLAIN, a token (Bearer) by OAUTHBEARER, over our own client. A login
that succeeded is remembered for a short time, under a keyed hash of the secret. Failures are answered late, and later
each time. Logins run in a few threads; one address has only a few of them pending.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from strandline.client.cluster_client import check_login
from strandline.client.security import BearerSecurity, ClientSecurity, LoginRefused
from strandline.errors import Disconnected, InvalidConfig, TimedOut, UnsupportedVersion
from strandline.security.http_credentials import BASIC, BEARER, Credentials, parse_basic, parse_bearer
from strandline.security.principal import USER, Principal
from strandline.security.sasl.login_failures import LoginFailures
from strandline.security.sasl.oauthbearer import OAUTHBEARER
from strandline.services.http.door_settings import SUBJECT_CLAIM, DoorSettings
from strandline.services.http.request_refused import RequestRefused

LOGINS_PENDING_MAX: Final = 64
"""Logins that run, wait for a thread, or are held back because they failed."""
LOGINS_OF_ADDRESS_MAX: Final = 4
"""Those of one address, so that one that guesses passwords leaves room for others."""
CACHED_LOGINS_MAX: Final = 10_000
_FAILURE_DELAY_MS: Final = 100
_TIMEOUT_S: Final = 10.0
_CLIENT_ID: Final = "strandline-http"


class Logins:
    """The credentials that the cluster has accepted of late. Used by one event loop; `executor` runs the logins."""

    def __init__(
        self, settings: DoorSettings, executor: Executor, *, clock: Callable[[], float], time_s: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._executor = executor
        self._clock = clock
        self._time_s = time_s
        self._key = secrets.token_bytes(32)
        self._accepted: dict[bytes, tuple[Principal, float]] = {}
        self._running: dict[bytes, asyncio.Task[Principal]] = {}
        self._pending: Counter[str] = Counter()
        self._failures = LoginFailures(_FAILURE_DELAY_MS)

    async def principal_of(self, authorization: str | None, address: str) -> Principal:
        """Return the principal of a header `Authorization`. Raise RequestRefused if it is missing or not accepted."""
        if authorization is None:
            raise self._unauthorized("this service needs a user of the cluster")
        credentials = self._parse(authorization)
        key = self._hash(credentials)
        found = self._accepted.get(key)
        if found is not None and found[1] > self._clock():
            return found[0]
        running = self._running.get(key)
        if running is None:
            self._admit(address)
            running = asyncio.get_running_loop().create_task(self._log_in(credentials, key, address))
            self._running[key] = running
            running.add_done_callback(lambda done: self._on_done(done, key, address))
        # Shielded, because other requests may wait for the same login.
        return await asyncio.shield(running)

    def _admit(self, address: str) -> None:
        if self._pending.total() >= LOGINS_PENDING_MAX or self._pending[address] >= LOGINS_OF_ADDRESS_MAX:
            raise RequestRefused(503, "too many logins are pending; try again", {"Retry-After": "5"})
        self._pending[address] += 1

    def _on_done(self, done: asyncio.Task[Principal], key: bytes, address: str) -> None:
        del self._running[key]
        self._pending[address] -= 1
        if not self._pending[address]:
            del self._pending[address]
        if not done.cancelled():
            # Looked at here, because the request that waited may be gone.
            done.exception()

    async def _log_in(self, credentials: Credentials, key: bytes, address: str) -> Principal:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._executor, self._prove, credentials)
        except LoginRefused:
            await asyncio.sleep(self._failures.note(address, self._clock()))
            raise self._unauthorized("the cluster does not accept these credentials") from None
        except (Disconnected, TimedOut, UnsupportedVersion) as error:
            raise RequestRefused(503, f"the cluster cannot check the login: {error}", {"Retry-After": "5"}) from error
        principal = Principal(USER, credentials.name)
        lasts_s = self._settings.cache_s
        if credentials.expires_s is not None:
            lasts_s = min(lasts_s, credentials.expires_s - self._time_s())
        while len(self._accepted) >= CACHED_LOGINS_MAX:
            del self._accepted[next(iter(self._accepted))]
        self._accepted.pop(key, None)
        self._accepted[key] = principal, self._clock() + lasts_s
        return principal

    def _prove(self, credentials: Credentials) -> None:
        """Log in to the first broker that answers, and leave. Raise LoginRefused if the broker rejects it."""
        bootstrap = self._settings.login["bootstrap.servers"]
        check_login(bootstrap, self._security(credentials), client_id=_CLIENT_ID, timeout_s=_TIMEOUT_S)

    def _security(self, credentials: Credentials) -> ClientSecurity:
        if credentials.scheme == BEARER:
            return BearerSecurity.with_token(
                self._settings.login_settings(OAUTHBEARER), credentials.name, credentials.secret
            )
        given = {"sasl.username": credentials.name, "sasl.password": credentials.secret}
        try:
            return ClientSecurity.of(self._settings.login_settings() | given)
        except InvalidConfig:
            raise LoginRefused("a name or a password is empty") from None

    def _parse(self, authorization: str) -> Credentials:
        scheme, _, rest = authorization.strip().partition(" ")
        scheme = scheme.lower()
        if scheme not in self._settings.authentication:
            raise self._unauthorized(f"expected {' or '.join(sorted(self._settings.authentication))} authentication")
        try:
            return parse_basic(rest.strip()) if scheme == BASIC else self._bearer(rest.strip())
        except (ValueError, RecursionError):
            raise self._unauthorized(f"the header Authorization has no {scheme} credentials") from None

    def _bearer(self, token: str) -> Credentials:
        return parse_bearer(token, self._settings.login.get(SUBJECT_CLAIM, "sub"))

    def _hash(self, credentials: Credentials) -> bytes:
        text = json.dumps([credentials.scheme, credentials.name, credentials.secret])
        return hmac.digest(self._key, text.encode(), "sha256")

    def _unauthorized(self, message: str) -> RequestRefused:
        offered = {BASIC: 'Basic realm="strandline", charset="UTF-8"', BEARER: 'Bearer realm="strandline"'}
        challenges = [offered[each] for each in sorted(self._settings.authentication)]
        return RequestRefused(401, message, {"WWW-Authenticate": ", ".join(challenges)})
