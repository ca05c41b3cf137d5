"""Brokers and controllers make themselves known: registration, and its end.

A broker's epoch is the offset of its registration record. A new incarnation gets a new one, and everything that an
older one asks for is refused from then on (KIP-631). Before the record of a new incarnation comes what the end of the
previous one means: it leaves every in-sync set, and the eligible leader replicas too, unless it can name the epoch
under which it shut down cleanly (KIP-966). The order matters: a controller that dies in between leaves a broker that
registers again, not one that is believed to hold what it lost.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from strandline.codec.messages.broker_registration_request import BrokerRegistrationRequest
from strandline.codec.messages.controller_registration_request import ControllerRegistrationRequest
from strandline.codec.messages.register_broker_record import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from strandline.codec.messages.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from strandline.codec.messages.unregister_broker_record import UnregisterBrokerRecord
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.elections import Elections
from strandline.quorum.controller.state import ControllerState, Steps, Then
from strandline.quorum.image.cluster_image import METADATA_VERSION, RESERVED_DIRECTORY_IDS, BrokerImage

BROKERS_MAX: Final = 1_000
"""Registered brokers and controllers, each: anybody may ask to become one, and every node keeps them all."""
ENDPOINTS_MAX: Final = 100
"""Listeners, features or directories of one registration."""


class BrokerRegistry:
    def __init__(self, state: ControllerState, elections: Elections) -> None:
        self._state = state
        self._elections = elections

    def registration(
        self,
        request: BrokerRegistrationRequest,
        *,
        cluster_id: str,
        now: float,
        next_offset: Callable[[], int],
        is_own: bool,
    ) -> Steps[int]:
        """Register a broker, or amend the registration of one whose answer got lost; returns the broker epoch."""
        existing = self._checked(request, cluster_id, now, is_own)
        if existing is not None and existing.registration.incarnation_id == request.incarnation_id:
            self._state.sessions.touch(request.broker_id, -1, now)
            yield self._amended(request, existing)
            return existing.epoch
        refusals: list[RequestError] = []
        epochs: list[int] = []

        def register(before: int) -> list[Any]:
            try:
                # The steps took time: another incarnation may be registered by now, or this one by a retry.
                current = self._checked(request, cluster_id, now, is_own)
            except RequestError as refusal:
                refusals.append(refusal)
                return []
            if current is not None and current.registration.incarnation_id == request.incarnation_id:
                epochs.append(current.epoch)
                return self._amended(request, current)
            epochs.append(next_offset() + before)
            self._state.sessions.begin(request.broker_id, now)
            return self._state.decided([_record(request, epochs[0])])

        # In one step with the last change for the former incarnation. Until it is registered again the broker counts as
        # leaving, and from then on as fenced. In between it could be elected.
        yield from self._end_of_previous(request, existing, register)
        if refusals:
            raise refusals[0]
        return epochs[0]

    def _amended(self, request: BrokerRegistrationRequest, existing: BrokerImage) -> list[Any]:
        record = _record(request, existing.epoch)
        record.fenced = existing.registration.fenced
        record.in_controlled_shutdown = existing.registration.in_controlled_shutdown
        return self._state.decided([record])

    def _end_of_previous(
        self, request: BrokerRegistrationRequest, existing: BrokerImage | None, then: Then
    ) -> Steps[None]:
        """End the former incarnation. After an unclean shutdown it also leaves the ELR: it may have lost records."""
        is_clean = existing is not None and existing.epoch == request.previous_broker_epoch
        if is_clean or not self._state.has_elr:
            return self._elections.leave(request.broker_id, then)
        return self._elections.lose(request.broker_id, then)

    # What a registration must be.

    def _checked(
        self, request: BrokerRegistrationRequest, cluster_id: str, now: float, is_own: bool
    ) -> BrokerImage | None:
        """Return the broker that is registered with this id; raise RequestError if this one may not register."""
        state = self._state
        if request.cluster_id != cluster_id:
            raise RequestError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}",
            )
        existing = state.image.brokers.get(request.broker_id)
        if existing is None and len(state.image.brokers) >= BROKERS_MAX:
            raise _invalid(f"{BROKERS_MAX} brokers are registered; unregister those that are gone")
        if (
            existing is not None
            and existing.registration.incarnation_id != request.incarnation_id
            and not existing.registration.fenced
            and not is_own
            and state.sessions.is_valid(request.broker_id, state.config.broker_session_timeout_ms / 1000, now)
        ):
            message = "Another broker is registered with that broker id."
            raise RequestError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message)
        if request.broker_id < 0:
            raise _invalid(f"Broker id {request.broker_id} is negative")
        if request.is_migrating_zk_broker:
            message = "Controller does not support registering ZK brokers."
            raise RequestError(ErrorCode.BROKER_ID_NOT_REGISTERED, message)
        self._check_directories(request.broker_id, request.log_dirs)
        _check_counts(request.listeners, request.features, request.log_dirs)
        self._check_features(request)
        return existing

    def _check_directories(self, broker_id: int, log_dirs: Sequence[uuid.UUID]) -> None:
        if not log_dirs:
            raise _invalid("No directories specified in request")
        if any(directory.int < RESERVED_DIRECTORY_IDS for directory in log_dirs):
            raise _invalid("Reserved directory ID in request")
        asked = set(log_dirs)
        if len(asked) != len(log_dirs):
            raise _invalid("Duplicate directory ID in request")
        for other in self._state.image.brokers.values():
            if other.id != broker_id:
                for directory in other.registration.log_dirs:
                    if directory in asked:
                        raise _invalid(f"Broker {other.id} is already registered with directory {directory}")

    def _check_features(self, request: BrokerRegistrationRequest) -> None:
        """Raise RequestError unless the broker supports every feature level in force."""
        ranges = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
        finalised = self._state.image.features
        for name in {**finalised, **ranges}:
            # A broker that does not know a feature cannot work with it; metadata.version has no level 0.
            lowest, highest = ranges.get(name, (0, 0))
            level = finalised.get(name, 1 if name == METADATA_VERSION else 0)
            if not lowest <= level <= highest:
                raise RequestError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"Unable to register because the broker does not support finalized version {level} of {name}. "
                    f"The broker wants a version between {lowest} and {highest}, inclusive.",
                )

    # The end.

    def unregistration(self, broker_id: int) -> Steps[None]:
        """Forget a broker that is gone for good. A live one gets an error for its next heartbeat, and stops."""
        broker = self._state.image.brokers.get(broker_id)
        if broker is None:
            raise RequestError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")

        def then(before: int) -> list[Any]:
            # Unregistered by another request, or registered again, during the steps.
            if self._state.image.brokers.get(broker_id) is not broker:
                return []
            self._state.sessions.end(broker_id)
            self._state.liveness.forget(broker_id)
            return self._state.decided([UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)])

        yield from self._elections.lose(broker_id, then)

    def register_controller(self, request: ControllerRegistrationRequest) -> list[Any]:
        """Return the records of a controller, which tools can list."""
        _check_counts(request.listeners, request.features)
        kept = self._state.image.kept.by_identity
        known = sum(1 for identity in kept if identity[0] == "controller")
        if known >= BROKERS_MAX and ("controller", request.controller_id) not in kept:
            raise _invalid(f"{BROKERS_MAX} controllers are registered")
        record = RegisterControllerRecord(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            zk_migration_ready=False,
            end_points=[
                ControllerEndpoint(
                    name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
                )
                for each in request.listeners
            ],
            features=[
                ControllerFeature(
                    name=each.name,
                    min_supported_version=each.min_supported_version,
                    max_supported_version=each.max_supported_version,
                )
                for each in request.features
            ],
        )
        return self._state.decided([record])


def _record(request: BrokerRegistrationRequest, epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=[
            BrokerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in request.listeners
        ],
        features=[
            BrokerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
        rack=request.rack,
        log_dirs=list(request.log_dirs),
    )


def _check_counts(*lists: Iterable[object]) -> None:
    for each in lists:
        if len(list(each)) > ENDPOINTS_MAX:
            raise _invalid(f"A registration has at most {ENDPOINTS_MAX} listeners, features or directories")


def _invalid(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REGISTRATION, message)
