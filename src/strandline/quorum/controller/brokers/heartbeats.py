"""What becomes of a broker with its heartbeats, and without them.

FENCED --has applied its registration--> UNFENCED --wants to shut down--> CONTROLLED SHUTDOWN --leads nothing, and every
active broker knows--> FENCED, and asked to shut down
UNFENCED --no heartbeat for a session, known to be dead, or wants to be fenced--> FENCED

`jobs` are steps that go on in `Controller.tick`; the first of them is made at once, with the answer.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from strandline.codec.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from strandline.codec.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from strandline.codec.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from strandline.quorum.controller.brokers.broker_sessions import BrokerSession
from strandline.quorum.controller.elections import Elections
from strandline.quorum.controller.state import ControllerState, Decision, Steps
from strandline.quorum.image.cluster_image import BrokerImage

# What BrokerRegistrationChangeRecord says.
FENCE: Final = 1
UNFENCE: Final = -1
SHUTTING_DOWN: Final = 1


class Heartbeats:
    def __init__(self, state: ControllerState, elections: Elections) -> None:
        self._state = state
        self._elections = elections
        self.jobs: deque[Steps[None]] = deque()

    def begin(self, job: Steps[None]) -> list[Any]:
        """Return the records of a job's first step; `tick` returns the others."""
        records = next(job, None)
        if records is None:
            return []
        self.jobs.append(job)
        return records

    # A heartbeat.

    def heartbeat(
        self, request: BrokerHeartbeatRequest, *, now: float, next_offset: int
    ) -> Decision[BrokerHeartbeatResponse]:
        """STALE_BROKER_EPOCH for an incarnation that is not the registered one."""
        state = self._state
        broker = state.broker(request.broker_id, request.broker_epoch)
        # An epoch is the offset of the registration: from there on the broker knows everything it must.
        is_caught_up = request.current_metadata_offset >= broker.epoch
        session = state.sessions.touch(broker.id, request.current_metadata_offset, now)
        records = self._directories(request, broker, session)
        should_shut_down = False
        if broker.registration.fenced:
            if request.want_shut_down:
                should_shut_down = True
            elif not request.want_fence and is_caught_up and not broker.registration.in_controlled_shutdown:
                # One that was fenced on its way out stays so until it registers again.
                records += self.unfence(broker)
        elif request.want_shut_down and not request.want_fence:
            more, should_shut_down = self._shut_down(broker, session, next_offset + len(records))
            records += more
        elif request.want_fence:
            should_shut_down = request.want_shut_down
            records += self._fence(broker)
        registration = state.broker(broker.id, broker.epoch).registration
        return records, BrokerHeartbeatResponse(
            is_caught_up=is_caught_up,
            # While it is taken out of in-sync sets, it is as good as fenced.
            is_fenced=registration.fenced or (broker.id in state.leaving and not registration.in_controlled_shutdown),
            should_shut_down=should_shut_down,
        )

    def unfence(self, broker: BrokerImage) -> list[Any]:
        if broker.id in self._state.leaving:
            return []
        record = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=UNFENCE)
        return self._state.decided([record]) + self.begin(self._elections.elect_leaderless())

    def _fence(self, broker: BrokerImage) -> list[Any]:
        if broker.id in self._state.leaving:
            return []
        return self.begin(self._elections.leave(broker.id, lambda before: self._fenced(broker)))

    def _fenced(self, broker: BrokerImage) -> list[Any]:
        current = self._state.image.brokers.get(broker.id)
        if current is None or current.epoch != broker.epoch or current.registration.fenced:
            return []
        record = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE)
        return self._state.decided([record])

    def _shut_down(self, broker: BrokerImage, session: BrokerSession, next_offset: int) -> tuple[list[Any], bool]:
        """Return records, and whether the broker may stop now."""
        state = self._state
        if broker.id in state.leaving:
            return [], False
        if self._leads_something(broker.id):
            records = []
            if not broker.registration.in_controlled_shutdown:
                record = BrokerRegistrationChangeRecord(
                    broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=SHUTTING_DOWN
                )
                records = state.decided([record])
            session.shutdown_offset = -1
            return records + self.begin(self._elections.leave(broker.id)), False
        if broker.registration.in_controlled_shutdown:
            if session.shutdown_offset < 0:
                session.shutdown_offset = next_offset
            # Who still believes that it leads must not find it gone: the last record before that offset is known to
            # every active broker.
            lowest = state.sessions.lowest_offset([each.id for each in state.image.active_brokers()])
            if lowest is not None and lowest < session.shutdown_offset - 1:
                return [], False
        # Nothing is asked of it any more, and the fence is in the log before the answer leaves.
        return self._fence(broker), broker.id not in state.leaving

    def _leads_something(self, broker_id: int) -> bool:
        for topic in self._state.image.topics.values():
            for partition in topic.partitions:
                if partition.leader == broker_id:
                    return True
        return False

    def _directories(self, request: BrokerHeartbeatRequest, broker: BrokerImage, session: BrokerSession) -> list[Any]:
        """Leaderships leave directories that went offline; the registration keeps those that are left."""
        registration = broker.registration
        record = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch)
        before, session.offline_dirs = session.offline_dirs, frozenset(request.offline_log_dirs)
        records: list[Any] = []
        if before - session.offline_dirs:
            # What is in a directory that is back may be what a partition without a leader has been waiting for.
            records = self.begin(self._elections.elect_leaderless())
        if session.offline_dirs:
            # Said with every heartbeat, and done again: an election may have come back to it meanwhile.
            records += self.begin(self._elections.evacuate(broker.id, session.offline_dirs))
            online = [each for each in registration.log_dirs if each not in session.offline_dirs]
            # A record cannot say "no directory": only its session shows a broker whose only directory is gone.
            if online and len(online) < len(registration.log_dirs):
                record.log_dirs = online
        cordoned = request.cordoned_log_dirs
        if cordoned is not None and set(cordoned) != set(registration.cordoned_log_dirs or ()):
            record.cordoned_log_dirs = list(cordoned)
        if record.log_dirs or record.cordoned_log_dirs is not None:
            records += self._state.decided([record])
        return records

    # No heartbeat.

    def fence_one_stale(self, now: float) -> list[Any]:
        """Fence a broker that is dead, or the one with the oldest heartbeat if its session is over.

        One at a time: where the next one stands is seen by what the first one left behind.
        """
        state = self._state
        for broker_id in state.sessions.stale(self.counts, self._timeout_s, now):
            return self._fence(state.image.brokers[broker_id])
        return []

    def end_session(self, broker_id: int, broker_epoch: int) -> bool:
        """End the session of a dead broker; return whether it was open."""
        state = self._state
        if not state.is_active or not self.counts(broker_id) or state.image.brokers[broker_id].epoch != broker_epoch:
            return False
        session = state.sessions.get(broker_id)
        if session is None or session.is_over:
            return False
        session.is_over = True
        return True

    def next_end(self) -> float | None:
        return self._state.sessions.next_end(self.counts, self._timeout_s)

    def counts(self, broker_id: int) -> bool:
        """Return whether the end of its session would change anything."""
        broker = self._state.image.brokers.get(broker_id)
        return broker is not None and not broker.registration.fenced and broker_id not in self._state.leaving

    @property
    def _timeout_s(self) -> float:
        return self._state.config.broker_session_timeout_ms / 1000
