"""A broker's standing in its cluster: registered, unfenced, shutting down; kept up by heartbeats to the controller.

    STARTING --registered--> FENCED --has applied its registration, and is ready--> RUNNING
    RUNNING --begin_shutdown--> PENDING_CONTROLLED_SHUTDOWN --leaderships are elsewhere--> STOPPED
    any of them --the controller no longer knows this registration--> STARTING

A registration has an epoch, and whatever an older one asks for is refused. The same process asks again with the same
incarnation id, so a lost answer does no harm; another process with this id is refused while this one is heard of
(DUPLICATE_BROKER_REGISTRATION), and so is this one after a crash, until the session of its former life is over.

Wiring (`broker/kraft/membership`):

    lifecycle = Lifecycle(runtime, controller_channel_of_its_own, Identity(...), timing=Timing.of(config),
                          metadata_offset=lambda: metadata.image.applied_offset, offline_dirs=...)
    lifecycle.on_running = ...      the node prints that it is ready
    lifecycle.on_refused = ...      a sentence why the node must not go on; it ends with status 1
    lifecycle.start()               as soon as the controller can be asked
    lifecycle.be_ready()            once partitions are open; only then the controller is asked to unfence
    lifecycle.on_metadata()         after records were applied: one that starts need not wait for its next heartbeat
"""

from __future__ import annotations

import dataclasses
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from strandline.codec.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from strandline.codec.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from strandline.codec.messages.broker_registration_request import BrokerRegistrationRequest, Feature, Listener
from strandline.codec.messages.broker_registration_response import BrokerRegistrationResponse
from strandline.errors import ErrorCode
from strandline.handlers.support.context import ControllerChannel
from strandline.observability.log_lines import fields
from strandline.runtime.runtime import Runtime, TimerHandle

if TYPE_CHECKING:
    from strandline.config.node_config import BrokerConfig

log = logging.getLogger("strandline.node")

REGISTRATION_VERSION: Final = 4
HEARTBEAT_VERSION: Final = 1
RETRY_S: Final = 0.2
"""Between attempts to register."""
HURRY_S: Final = 0.1
"""Between heartbeats while something is waited for: to be unfenced, to be let go."""


class LifecycleState(Enum):
    STARTING = auto()
    FENCED = auto()
    RUNNING = auto()
    PENDING_CONTROLLED_SHUTDOWN = auto()
    STOPPED = auto()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a broker says of itself."""

    broker_id: int
    cluster_id: str
    incarnation_id: uuid.UUID
    """Of this life of the process."""
    endpoints: Sequence[tuple[str, str, int, int]]
    """Listener, host, port and security protocol, as others are to reach it."""
    features: Mapping[str, tuple[int, int]]
    log_dirs: Sequence[uuid.UUID]
    rack: str | None = None
    previous_broker_epoch: int = -1
    """Under which the last life shut down cleanly; -1 if it did not. Only then it is believed to hold all (KIP-966)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    heartbeat_interval_s: float = 2.0
    session_timeout_s: float = 9.0
    registration_timeout_s: float = 60.0
    shutdown_timeout_s: float = 30.0
    """How long a controlled shutdown may take; after that others notice by the session's end."""
    shutdown_silence_s: float = 5.0
    """How long it waits for a controller that does not answer."""
    lonely_silence_s: float = 0.5
    """The same, when no other broker is left to take over: who stops a whole cluster stops the last one so."""

    @classmethod
    def of(cls, config: BrokerConfig) -> Timing:
        return cls(
            heartbeat_interval_s=config.broker_heartbeat_interval_ms / 1000,
            session_timeout_s=config.broker_session_timeout_ms / 1000,
            registration_timeout_s=config.initial_broker_registration_timeout_ms / 1000,
        )


class Lifecycle:
    def __init__(
        self,
        runtime: Runtime,
        channel: ControllerChannel,
        identity: Identity,
        *,
        timing: Timing,
        metadata_offset: Callable[[], int],
        offline_dirs: Callable[[], Sequence[uuid.UUID]] = tuple,
        has_company: Callable[[], bool] = lambda: True,
        confirmed_at: Callable[[], float | None] = lambda: None,
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        """`has_company` says whether another broker of the cluster could take a leadership; `confirmed_at`, if this
        node is the controller itself, when a majority last took it for that; `is_late`, whether it cannot follow the
        metadata, though the controller hears it."""
        self._runtime = runtime
        self._channel = channel
        self._identity = identity
        self._timing = timing
        self._metadata_offset = metadata_offset
        self._offline_dirs = offline_dirs
        self._has_company = has_company
        self._confirmed_at = confirmed_at
        self._is_late = is_late
        self.state = LifecycleState.STARTING
        self.broker_epoch = -1
        """Of the registration in force; -1 before the first. Goes into AlterPartition, replica Fetch and so on."""
        self.on_running: Callable[[], object] = lambda: None
        """Called once, when the controller has unfenced the broker for the first time."""
        self.on_registered: Callable[[int], object] = lambda epoch: None
        """Called with the broker epoch of each registration."""
        self.on_refused: Callable[[str], object] = lambda reason: None
        """Called with the reason when the controller rejects this broker."""
        self._is_ready = False
        self._has_run = False
        self._is_fenced = True
        self._heard_at = runtime.monotonic()
        """When the last heartbeat left that the controller answered: its session lasts at least from then on."""
        self._previous_epoch = identity.previous_broker_epoch
        self._registering_since = self._heard_at
        self._has_complained = False
        self._asked = 0
        """The number of the last request; answers to earlier ones are not taken any more."""
        self._is_asking = False
        self._timer: TimerHandle | None = None
        self._on_stopped: Callable[[], object] | None = None
        self._is_closed = False

    @property
    def is_fenced(self) -> bool:
        """Whether the controller last said so, or has not been heard for a session. Then others may lead already."""
        return self._is_fenced or self._runtime.monotonic() - self._heard_at >= self._timing.session_timeout_s

    @property
    def may_be_replaced(self) -> bool:
        """Whether another broker may lead in our place, and we not know it. One that is alone is just late."""
        return (self.is_fenced or self._is_late()) and self._has_company()

    def start(self) -> None:
        """Begin to register."""
        self._registering_since = self._runtime.monotonic()
        self._act_now()

    def adopt(self, broker_epoch: int) -> None:
        """Start as registered and unfenced: a quorum of one has written that itself, before anything else ran."""
        self.broker_epoch = broker_epoch
        self._is_ready = self._has_run = True
        self._is_fenced = False
        self._heard_at = self._runtime.monotonic()
        self.state = LifecycleState.RUNNING
        self._act_now()

    def be_ready(self) -> None:
        """Clients and followers can be served: ask to be unfenced."""
        self._is_ready = True
        if self.state is LifecycleState.FENCED:
            self._act_now()

    def on_metadata(self) -> None:
        """More of the metadata log was applied."""
        if self.state is LifecycleState.FENCED and self._is_ready and self._metadata_offset() >= self.broker_epoch:
            self._act_now()

    def begin_shutdown(self, on_done: Callable[[], object]) -> None:
        """Ask the controller to move leaderships away; `on_done`, later, when it has or did not answer in time."""
        self._on_stopped = on_done
        if self.state in (LifecycleState.STARTING, LifecycleState.STOPPED) or self._is_closed or not self._has_run:
            # One that was never unfenced leads nothing, and need not wait for a controller.
            self._runtime.call_soon(self._stop)
            return
        self.state = LifecycleState.PENDING_CONTROLLED_SHUTDOWN
        now = self._runtime.monotonic()
        self._look_whether_to_give_up(now, now + self._timing.shutdown_timeout_s)
        self._act_now()

    def close(self) -> None:
        """Say nothing more."""
        self._is_closed = True
        self._asked += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # One thing at a time: register, or send a heartbeat, then wait

    def _act_now(self) -> None:
        if not self._is_asking:
            self._act()
        # Else the answer that is under way brings the next step, in a hurry.

    def _act(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_closed or self.state is LifecycleState.STOPPED:
            return
        self._is_asking = True
        if self.state is LifecycleState.STARTING:
            self._register()
        else:
            self._send_heartbeat()

    def _act_in(self, delay_s: float) -> None:
        self._is_asking = False
        if self._is_closed or self.state is LifecycleState.STOPPED:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._runtime.call_later(delay_s, self._act)

    # Registering

    def _register(self) -> None:
        identity = self._identity
        request = BrokerRegistrationRequest(
            broker_id=identity.broker_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=[Listener(*each) for each in identity.endpoints],
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in identity.features.items()
            ],
            rack=identity.rack,
            log_dirs=list(identity.log_dirs),
            previous_broker_epoch=self._previous_epoch,
        )
        self._asked += 1
        number, sent_at = self._asked, self._runtime.monotonic()

        def on_answer(response: BrokerRegistrationResponse | None, error: BaseException | None) -> None:
            if number == self._asked:
                self._on_registration(response, error, sent_at)

        self._channel.ask(
            request, REGISTRATION_VERSION, on_answer, timeout_s=max(1.0, self._timing.session_timeout_s / 2)
        )

    def _on_registration(
        self, response: BrokerRegistrationResponse | None, error: BaseException | None, sent_at: float
    ) -> None:
        if response is None or response.error_code:
            self._on_not_registered(ErrorCode.NONE if response is None else response.error_code, error)
            return
        self.broker_epoch = response.broker_epoch
        # What a former life left is told once. From here on only this life can lose anything.
        self._previous_epoch = -1
        self._heard_at = sent_at
        self._is_fenced = True
        self._has_complained = False
        self.state = LifecycleState.FENCED
        log.info(
            "registered as broker %d with epoch %d",
            self._identity.broker_id,
            self.broker_epoch,
            extra=fields(broker_id=self._identity.broker_id, broker_epoch=self.broker_epoch),
        )
        self.on_registered(self.broker_epoch)
        self._act_in(0.0)

    def _on_not_registered(self, code: int, error: BaseException | None) -> None:
        broker_id = self._identity.broker_id
        if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._refuse(
                f"this directory belongs to cluster {self._identity.cluster_id}, and the controller to another one: "
                "correct controller.quorum.bootstrap.servers, or choose another directory"
            )
            return
        if code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            reason = (
                f"another process is registered as broker {broker_id} and lives. If it was this broker before a crash, "
                "its session ends within broker.session.timeout.ms; else give this one another node.id"
            )
        elif code:
            reason = f"the controller refused the registration of broker {broker_id} with {_name_of(code)}"
        else:
            reason = f"the controller cannot be reached to register broker {broker_id}: {error}"
        if self._runtime.monotonic() - self._registering_since >= self._timing.registration_timeout_s:
            self._refuse(f"{reason} (initial.broker.registration.timeout.ms is over)")
            return
        if not self._has_complained:
            self._has_complained = True
            log.warning("%s", reason, extra=fields(broker_id=broker_id, error_code=int(code)))
        self._act_in(RETRY_S * (0.5 + self._runtime.random.random()))

    def _refuse(self, reason: str) -> None:
        log.error("%s", reason, extra=fields(broker_id=self._identity.broker_id))
        self.close()
        self.on_refused(reason)

    # Heartbeats

    def _send_heartbeat(self) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=self._identity.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=not self._is_ready,
            want_shut_down=self.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=list(self._offline_dirs()),
        )
        self._asked += 1
        number, sent_at = self._asked, self._runtime.monotonic()

        def on_answer(response: BrokerHeartbeatResponse | None, error: BaseException | None) -> None:
            if number == self._asked:
                self._on_heartbeat(request, response, error, sent_at)

        timeout_s = max(self._timing.heartbeat_interval_s, self._timing.session_timeout_s / 2)
        self._channel.ask(request, HEARTBEAT_VERSION, on_answer, timeout_s=timeout_s)

    def _on_heartbeat(
        self,
        request: BrokerHeartbeatRequest,
        response: BrokerHeartbeatResponse | None,
        error: BaseException | None,
        sent_at: float,
    ) -> None:
        if response is None:
            if not self._has_complained:
                self._has_complained = True
                log.warning("the controller does not answer heartbeats: %s", error)
            self._act_in(HURRY_S)
            return
        if response.error_code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            self._on_unknown(response.error_code)
            return
        if response.error_code:
            log.error("the controller refused a heartbeat with %s", _name_of(response.error_code))
            self._act_in(self._timing.heartbeat_interval_s)
            return
        # The next controller counts our session from when the others last heard us, if that is what we were: what we
        # tell ourselves later does not count.
        confirmed_at = self._confirmed_at()
        self._heard_at = sent_at if confirmed_at is None else min(sent_at, confirmed_at)
        self._has_complained = False
        if response.is_fenced != self._is_fenced:
            self._is_fenced = response.is_fenced
            log.info("the controller has %s this broker", "fenced" if response.is_fenced else "unfenced")
        if self.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
            # An answer to a heartbeat that left before the shutdown says nothing about it.
            if response.should_shut_down and request.want_shut_down:
                self._stop()
            else:
                self._act_in(HURRY_S if request.want_shut_down else 0.0)
            return
        self._go_on(request)

    def _go_on(self, request: BrokerHeartbeatRequest) -> None:
        if not self._is_fenced and self.state is LifecycleState.FENCED:
            self.state = LifecycleState.RUNNING
            if not self._has_run:
                self._has_run = True
                self.on_running()
        if self.state is LifecycleState.RUNNING and not self._is_fenced:
            self._act_in(self._timing.heartbeat_interval_s)
        elif self._is_ready and request.want_fence:
            self._act_in(0.0)
        else:
            self._act_in(min(HURRY_S, self._timing.heartbeat_interval_s))

    def _on_unknown(self, code: int) -> None:
        """The controller knows another registration of this id, or none: what it gave us is void."""
        self._is_fenced = True
        if self.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
            self._stop()
            return
        log.warning(
            "the controller no longer knows broker %d with epoch %d (%s); registering again",
            self._identity.broker_id,
            self.broker_epoch,
            _name_of(code),
        )
        self.state = LifecycleState.STARTING
        self._registering_since = self._runtime.monotonic()
        self._act_in(0.0)

    # Stopping

    def _look_whether_to_give_up(self, since: float, deadline: float) -> None:
        """Where all nodes stop together, the last of them find no controller: they are not to wait for long."""
        if self.state is not LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
            return
        now = self._runtime.monotonic()
        timing = self._timing
        patience_s = timing.shutdown_silence_s if self._has_company() else timing.lonely_silence_s
        if now >= deadline or now - max(since, self._heard_at) >= patience_s:
            log.warning("the controller did not take the leaderships of this broker in time; stopping without it")
            self._stop()
        else:
            self._runtime.call_later(HURRY_S, self._look_whether_to_give_up, since, deadline)

    def _stop(self) -> None:
        self.state = LifecycleState.STOPPED
        self.close()
        on_done, self._on_stopped = self._on_stopped, None
        if on_done is not None:
            on_done()


def _name_of(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode.__members__.values() else f"error {code}"
