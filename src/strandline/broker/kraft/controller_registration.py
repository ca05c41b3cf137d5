"""A controller tells the active one what it is and where (ControllerRegistration), so that tools can list all of them.

It does so once in each life, and again whenever the metadata does not contain it. Nothing waits for it.

Wiring (`broker/kraft/membership`), on a node with the controller role:

    registration = ControllerRegistration(runtime, controller_channel, request, known=...)
    registration.start()            as soon as the controller can be asked
    registration.on_metadata()      after a snapshot was loaded, and now and then

`known()` tells the incarnation id under which the metadata knows this controller, or None.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from strandline.codec.messages.controller_registration_request import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from strandline.codec.messages.controller_registration_response import ControllerRegistrationResponse
from strandline.handlers.support.context import ControllerChannel
from strandline.runtime.runtime import Runtime, TimerHandle

log = logging.getLogger("strandline.node")

TIMEOUT_S: Final = 10.0
RETRY_S: Final = 1.0


def registration_request(
    node_id: int,
    incarnation_id: uuid.UUID,
    *,
    endpoints: Sequence[tuple[str, str, int, int]],
    features: Mapping[str, tuple[int, int]],
) -> ControllerRegistrationRequest:
    return ControllerRegistrationRequest(
        controller_id=node_id,
        incarnation_id=incarnation_id,
        listeners=[Listener(*each) for each in endpoints],
        features=[
            Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in features.items()
        ],
    )


class ControllerRegistration:
    def __init__(
        self,
        runtime: Runtime,
        channel: ControllerChannel,
        request: ControllerRegistrationRequest,
        *,
        known: Callable[[], uuid.UUID | None],
    ) -> None:
        self._runtime = runtime
        self._channel = channel
        self._request = request
        self._known = known
        self._is_asking = False
        self._is_closed = False
        self._has_complained = False
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        self.on_metadata()

    def on_metadata(self) -> None:
        """Register unless the metadata knows us, or will soon."""
        if self._is_asking or self._is_closed or self._timer is not None:
            return
        if self._known() != self._request.incarnation_id:
            self._is_asking = True
            self._channel.ask(self._request, 0, self._on_answer, timeout_s=TIMEOUT_S)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _on_answer(self, response: ControllerRegistrationResponse | None, error: BaseException | None) -> None:
        self._is_asking = False
        if self._is_closed:
            return
        if response is not None and response.error_code and not self._has_complained:
            self._has_complained = True
            log.warning("the active controller refused this controller's registration: code %d", response.error_code)
        # Then the record is on its way to us, or it is asked again: either way there is time.
        self._timer = self._runtime.call_later(RETRY_S, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self.on_metadata()
