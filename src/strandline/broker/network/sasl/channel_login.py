"""The login of this node on a connection to another node, before its requests and again before the session ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from strandline.codec.message import Message
from strandline.codec.messages.sasl_authenticate_request import SaslAuthenticateRequest
from strandline.codec.messages.sasl_authenticate_response import SaslAuthenticateResponse
from strandline.codec.messages.sasl_handshake_request import SaslHandshakeRequest
from strandline.codec.messages.sasl_handshake_response import SaslHandshakeResponse
from strandline.runtime.runtime import Runtime
from strandline.security.sasl.exchange import AuthenticationFailed, ClientLogin, OffLoop

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 1


class LoginOwner(Protocol):
    """The channel that logs in."""

    def send_login(self, request: Message, version: int, on_response: Callable[[Any], object]) -> None:
        """Send a request of the login before all others; call back with its response, if there is one."""

    def on_logged_in(self, login: ChannelLogin, session_ms: int) -> None: ...

    def on_login_failed(self, login: ChannelLogin, reason: str) -> None: ...


class ChannelLogin:
    """One login. `cancel` it when its connection is gone."""

    def __init__(self, runtime: Runtime, owner: LoginOwner, login: ClientLogin) -> None:
        self._runtime = runtime
        self._owner = owner
        self._login = login
        self._is_over = False

    def start(self) -> None:
        request = SaslHandshakeRequest(mechanism=self._login.mechanism)
        self._owner.send_login(request, HANDSHAKE_VERSION, self._on_handshake)

    def cancel(self) -> None:
        self._is_over = True

    def _on_handshake(self, response: SaslHandshakeResponse) -> None:
        if self._is_over:
            return
        if response.error_code:
            offered = ", ".join(response.mechanisms)
            self._fail(f"it does not offer {self._login.mechanism} (error {response.error_code}), but: {offered}")
        else:
            self._send(self._login.first())

    def _send(self, token: bytes) -> None:
        request = SaslAuthenticateRequest(auth_bytes=token)
        self._owner.send_login(request, AUTHENTICATE_VERSION, self._on_token)

    def _on_token(self, response: SaslAuthenticateResponse) -> None:
        if self._is_over:
            return
        if response.error_code:
            self._fail(f"the login failed: {response.error_message}")
        else:
            self._advance(partial(self._login.step, response.auth_bytes), response.session_lifetime_ms)

    def _advance(self, step: Callable[[], Any], session_ms: int) -> None:
        try:
            outcome = step()
        except AuthenticationFailed as failure:
            self._fail(str(failure))
            return
        if isinstance(outcome, OffLoop):
            then = outcome.then
            self._runtime.in_thread(outcome.work, lambda result, error: self._on_work(then, session_ms, result, error))
        elif outcome is not None:
            self._send(outcome)
        else:
            self._is_over = True
            self._owner.on_logged_in(self, session_ms)

    def _on_work(self, then: Callable[[Any], Any], session_ms: int, result: Any, error: BaseException | None) -> None:
        if self._is_over:
            return
        if error is not None:
            self._fail(f"the login could not be computed: {type(error).__name__}")
        else:
            self._advance(partial(then, result), session_ms)

    def _fail(self, reason: str) -> None:
        self._is_over = True
        self._owner.on_login_failed(self, reason)
