"""The controller: commands in, metadata records out, or a refusal with Kafka's error code.

The controller has an image of its own, which holds what it decided and the log does not hold yet. So the second of two
requests for the same topic is refused before the first is on disk. Handlers `submit` commands. The controller writes
the records in the order of its decisions, and calls back when they are committed and in effect. If a write fails,
`revert` returns the controller to what is in the log.

Only the active controller decides. Wiring (`broker/node.py`):

    at the start             controller.connect(runtime, metadata.write)
    metadata.on_leading      controller.activate(metadata.image, runtime.monotonic(), heard_leader=...)
    metadata.on_not_leading  controller.deactivate(): from then on every command raises RequestError(NOT_CONTROLLER)
    metadata.on_failed       controller.revert(image, pending)
    by time                  records = controller.tick(now), written when there are any; again in the next turn of the
                             loop while `controller.is_busy`, else at `controller.deadline` (None: nothing to wait for);
                             `controller.probes_due(now)` are brokers that may be dead, see `brokers/broker_liveness`

A command that may concern thousands of partitions is a generator, which `submission` runs in slices of a turn.

Its parts: `topic_commands`, `brokers/` (registrations, heartbeats, resignations), `elections`, `in_sync_changes`,
`reassignment`, `directory_assignments`, `access_rules`; they share `state`, and every change of a partition is made by
`partition_changes`.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

from strandline.codec.messages.abort_transaction_record import AbortTransactionRecord
from strandline.codec.messages.alter_partition_request import AlterPartitionRequest
from strandline.codec.messages.alter_partition_response import PartitionData
from strandline.codec.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from strandline.codec.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from strandline.codec.messages.broker_registration_request import BrokerRegistrationRequest
from strandline.codec.messages.clear_elr_record import ClearElrRecord
from strandline.codec.messages.controller_registration_request import ControllerRegistrationRequest
from strandline.codec.messages.feature_level_record import FeatureLevelRecord
from strandline.codec.messages.producer_ids_record import ProducerIdsRecord
from strandline.config.node_config import BrokerConfig
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.brokers.broker_liveness import BrokerLiveness, ProbedBroker, ProbeOutcome
from strandline.quorum.controller.brokers.broker_registry import BrokerRegistry
from strandline.quorum.controller.brokers.heartbeats import Heartbeats
from strandline.quorum.controller.brokers.own_broker import OwnBroker
from strandline.quorum.controller.config_changes import ConfigAlteration, config_records
from strandline.quorum.controller.elections import Elections
from strandline.quorum.controller.features import (
    SUPPORTED_FEATURES,
    FeatureUpdate,
    bootstrap_records,
    check_elr_is_not_needed,
    feature_records,
    hash_record,
    is_kafkas,
)
from strandline.quorum.controller.in_sync_changes import InSyncChanges
from strandline.quorum.controller.new_topics import IN_SYNC_MIN
from strandline.quorum.controller.reassignment import Reassignments
from strandline.quorum.controller.state import UNCLEAN_ELECTION, ControllerState, Decision, Decisions, Steps
from strandline.quorum.controller.submission import DecisionsSubmission, Outcomes, Write, submit_steps
from strandline.quorum.controller.topic_commands import (
    PARTITIONS_PER_REQUEST_MAX,
    TOPICS_PER_REQUEST_MAX,
    DeletedTopic,
    TopicCommands,
    TopicRef,
)
from strandline.quorum.image.cluster_image import RESOURCE_BROKER, RESOURCE_TOPIC, ClusterImage

if TYPE_CHECKING:
    import random

    from strandline.codec.messages.alter_user_scram_credentials_request import AlterUserScramCredentialsRequest
    from strandline.codec.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
    from strandline.codec.messages.delegation_token_record import DelegationTokenRecord
    from strandline.codec.messages.resign_leadership_request import ResignLeadershipRequest
    from strandline.codec.messages.resign_leadership_response import ResignedPartitionResult
    from strandline.quorum.controller.directory_assignments import Assigned
    from strandline.quorum.controller.security.access_rules import AccessRules
    from strandline.quorum.controller.security.client_quotas import QuotaAlteration
    from strandline.quorum.controller.security.credentials import AlteredUser
    from strandline.runtime.runtime import Runtime
    from strandline.security.acl.access_rule import Acl, AclFilter
    from strandline.security.principal import Principal

T = TypeVar("T")

__all__ = [
    "PARTITIONS_PER_REQUEST_MAX",
    "TOPICS_PER_REQUEST_MAX",
    "Controller",
    "DeletedTopic",
    "ProducerIdBlock",
    "TopicRef",
]

PRODUCER_ID_BLOCK_SIZE: Final = 1000
PRODUCER_ID_MAX: Final = 2**63 - 1
LEADERLESS_CHECK_S: Final = 300.0
"""How often leaders are looked for where there are none; everything that could bring one is acted upon at once."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """The producer ids from `first` up to, not including, `end`."""

    first: int
    end: int


class Controller(TopicCommands):
    """Decides what the cluster becomes. Pure: time and randomness come in, records go out.

    Given an image it is active from the start; else `activate` makes it so.
    """

    def __init__(self, image: ClusterImage | None, *, config: BrokerConfig, rng: random.Random) -> None:
        state = ControllerState(config, rng)
        super().__init__(state)
        self._elections = Elections(state)
        self._registry = BrokerRegistry(state, self._elections)
        self._heartbeats = Heartbeats(state, self._elections)
        self._in_sync_changes = InSyncChanges(state)
        self._reassignment = Reassignments(state)
        self._own_broker = OwnBroker(state, self._registry, self._heartbeats)
        self._balance_at = self._leaderless_at = 0.0
        if image is not None:
            self.activate(image, 0.0)

    # Commands.

    def connect(self, runtime: Runtime, write: Write) -> None:
        """Take the loop that commands share, and the log that their records are written to."""
        self._runtime = runtime
        self._write = write

    def submit(
        self, command: Callable[[], Decision[T]], on_done: Callable[[T | None, BaseException | None], object]
    ) -> None:
        """Carry out one decision; `on_done(outcome, None)` when it is in effect, else `on_done(None, error)`."""
        try:
            records, outcome = command()
        except RequestError as refusal:
            on_done(None, refusal)
        else:
            self._write(records, lambda error: on_done(outcome if error is None else None, error))

    def submit_all(self, decisions: Decisions[T], on_done: Callable[[Outcomes[T]], object]) -> None:
        """Carry out independent decisions, a slice per turn of the loop; `on_done` when all of them are in effect."""
        DecisionsSubmission(self._runtime, self._write, decisions, on_done).run_slice()

    def submit_steps(self, steps: Steps[T], on_done: Callable[[T | None, BaseException | None], object]) -> None:
        """Carry out one long decision, a slice per turn; `on_done` as for `submit`, with the first error."""
        submit_steps(self._runtime, self._write, steps, on_done)

    # Active or not.

    @property
    def is_active(self) -> bool:
        return self._state.is_active

    def activate(self, image: ClusterImage, now: float, *, heard_leader: tuple[int, float] | None = None) -> None:
        """Begin to decide; `image` holds everything that was committed. Every broker gets a fresh session.

        Save the one on the node that led before us, if it is a broker: its session runs since we heard of it, or its
        death would cost its partitions an election of the quorum and a whole session on top.
        """
        self._take(image.copy())
        self._state.sessions.reset(image.brokers, now, heard=heard_leader)
        self._state.liveness.reset(image.brokers, now, suspect=None if heard_leader is None else heard_leader[0])
        self._balance_at = now + self._state.config.leader_imbalance_check_interval_seconds
        self._leaderless_at = now

    def deactivate(self) -> None:
        """Another may lead: forget everything that was decided here."""
        self._take(None)

    def revert(self, committed: ClusterImage, still_pending: Iterable[Any] = ()) -> None:
        """Forget what was decided but never reached the log; `still_pending` are earlier records on their way there."""
        if not self.is_active:
            return
        image = committed.copy()
        for record in still_pending:
            image.apply(record)
        self._take(image)
        # What was under way step by step was forgotten half done.
        self._leaderless_at = 0.0

    def _take(self, image: ClusterImage | None) -> None:
        self._heartbeats.jobs.clear()
        self._state.take(image)

    def configure(self, config: BrokerConfig) -> None:
        """Use these settings of the node from now on."""
        self._state.config = config

    # By time.

    @property
    def is_busy(self) -> bool:
        """Whether `tick` has more to do at once."""
        return self.is_active and (bool(self._heartbeats.jobs) or self._state.image.is_in_transaction)

    @property
    def deadline(self) -> float | None:
        """When `tick` has something to do next, in seconds of the monotonic clock."""
        if not self.is_active:
            return None
        ends = [self._heartbeats.next_end(), self._leaderless_at]
        if self._state.config.auto_leader_rebalance_enable:
            ends.append(self._balance_at)
        return min(each for each in ends if each is not None)

    def tick(self, now: float) -> list[Any]:
        """Do one step of the work by time: sessions that end, leaders to move, preferred leaders, unclean elections."""
        if not self.is_active:
            return []
        if self._state.image.is_in_transaction:
            # A controller died within it: what it wrote of it counts as never written.
            return self._state.decided([AbortTransactionRecord(reason="failover")])
        jobs = self._heartbeats.jobs
        while jobs:
            records = next(jobs[0], None)
            if records is not None:
                jobs.rotate(-1)
                return records
            jobs.popleft()
        records = self._heartbeats.fence_one_stale(now)
        if not records and not jobs:
            records = self._look_around(now)
        return records

    def _look_around(self, now: float) -> list[Any]:
        config = self._state.config
        if now >= self._leaderless_at:
            self._leaderless_at = now + LEADERLESS_CHECK_S
            return self._heartbeats.begin(self._elections.elect_leaderless())
        if config.auto_leader_rebalance_enable and now >= self._balance_at:
            self._balance_at = now + config.leader_imbalance_check_interval_seconds
            return self._heartbeats.begin(self._elections.elect_preferred())
        return []

    # Brokers and controllers.

    def bootstrap(self, records: Sequence[Any] = ()) -> list[Any]:
        """Return the first records of a new metadata log: those from formatting the directory, with default levels."""
        has_levels = any(isinstance(each, FeatureLevelRecord) for each in records)
        defaults = [] if has_levels else bootstrap_records(self._state.config)
        return self._state.decided([*defaults, *records, hash_record()])

    def adoption(self) -> list[Any]:
        """Return what Strandline has to write first into a log of Apache Kafka; nothing for any other log."""
        image = self._state.image
        if image.coordinator_hash or not is_kafkas(image):
            return []
        return self._state.decided([hash_record()])

    def registration(
        self,
        request: BrokerRegistrationRequest,
        *,
        cluster_id: str,
        now: float,
        next_offset: Callable[[], int],
        is_own: bool = False,
    ) -> Steps[int]:
        """BrokerRegistration; returns the broker epoch. `next_offset()` is the offset of the next record written.

        `is_own`: the broker runs in this process, so that an incarnation before it is gone, whatever its session.
        """
        return self._registry.registration(
            request, cluster_id=cluster_id, now=now, next_offset=next_offset, is_own=is_own
        )

    def heartbeat(
        self, request: BrokerHeartbeatRequest, *, now: float, next_offset: int
    ) -> Decision[BrokerHeartbeatResponse]:
        """BrokerHeartbeat; STALE_BROKER_EPOCH for a broker that is not the registered one."""
        return self._heartbeats.heartbeat(request, now=now, next_offset=next_offset)

    @property
    def liveness(self) -> BrokerLiveness:
        return self._state.liveness

    def probes_due(self, now: float) -> list[ProbedBroker]:
        """Return silent brokers to probe; report the outcome of each to `on_probed`."""
        if not self.is_active or not self._state.config.broker_death_detection_enable:
            return []
        return self._state.liveness.due(now, self._heartbeats.counts)

    def on_probed(self, watched: ProbedBroker, broker_epoch: int, outcome: ProbeOutcome, *, now: float) -> bool:
        """Return whether the broker of this epoch is newly found dead; then `tick` fences it."""
        is_dead = self._state.liveness.on_probed(watched, outcome, now)
        return is_dead and self._heartbeats.end_session(watched.broker_id, broker_epoch)

    def is_known_dead(self, broker_id: int) -> bool:
        """Return whether its session was ended because it is dead, not by time."""
        return self._state.sessions.is_over(broker_id)

    def unregistration(self, broker_id: int) -> Steps[None]:
        return self._registry.unregistration(broker_id)

    def register_controller(self, request: ControllerRegistrationRequest) -> list[Any]:
        return self._registry.register_controller(request)

    def register_broker(
        self,
        broker_id: int,
        *,
        epoch: int,
        incarnation_id: uuid.UUID,
        endpoints: Iterable[tuple[str, str, int, int]],
        log_dirs: Iterable[uuid.UUID] = (),
        rack: str | None = None,
        previous_epoch: int = -1,
        now: float = 0.0,
    ) -> list[Any]:
        """Register and unfence the broker of a quorum of one at its start, see `own_broker`."""
        return self._own_broker.start(
            broker_id,
            epoch=epoch,
            incarnation_id=incarnation_id,
            endpoints=list(endpoints),
            log_dirs=list(log_dirs),
            rack=rack,
            previous_epoch=previous_epoch,
            now=now,
        )

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[list[Any], ProducerIdBlock]:
        """Return a new block of ids for one broker. It may be used once its record is flushed."""
        self._state.broker(broker_id, broker_epoch)
        first = self._state.image.next_producer_id
        if first > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
            raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been given away.")
        block = ProducerIdBlock(first, first + PRODUCER_ID_BLOCK_SIZE)
        record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=block.end)
        return self._state.decided([record]), block

    # Partitions.

    def decide_in_sync_changes(
        self, request: AlterPartitionRequest, *, version: int
    ) -> Iterator[Decision[tuple[uuid.UUID, PartitionData]]]:
        """AlterPartition, one partition at a time; STALE_BROKER_EPOCH at once for a broker that is no more."""
        self._state.broker(request.broker_id, request.broker_epoch)
        return self._in_sync_changes.decide(request, version)

    def decide_resignations(
        self, request: ResignLeadershipRequest
    ) -> Iterator[Decision[tuple[uuid.UUID, ResignedPartitionResult]]]:
        """ResignLeadership, one partition at a time; STALE_BROKER_EPOCH at once for a broker that is no more."""
        from strandline.quorum.controller.brokers.resignations import decide

        self._state.broker(request.broker_id, request.broker_epoch)
        return decide(self._state, request)

    def decide_directories(self, request: AssignReplicasToDirsRequest) -> Iterator[Decision[Assigned]]:
        """AssignReplicasToDirs, one partition at a time; STALE_BROKER_EPOCH at once for a broker that is no more."""
        from strandline.quorum.controller.directory_assignments import decide

        self._state.broker(request.broker_id, request.broker_epoch)
        return decide(self._state, request)

    @property
    def elections(self) -> Elections:
        return self._elections

    @property
    def reassignment(self) -> Reassignments:
        return self._reassignment

    # Users.

    def alter_credentials(self, request: AlterUserScramCredentialsRequest) -> Decision[list[AlteredUser]]:
        """AlterUserScramCredentials, all users in one decision."""
        from strandline.quorum.controller.security.credentials import decide

        return decide(self._state, request)

    def create_token(
        self,
        owner: Principal,
        requester: Principal,
        renewers: Sequence[Principal],
        *,
        max_lifetime_ms: int,
        token_id: uuid.UUID,
        now_ms: int,
    ) -> Decision[DelegationTokenRecord]:
        """CreateDelegationToken."""
        from strandline.quorum.controller.security.delegation_tokens import create

        return create(
            self._state, owner, requester, renewers, max_lifetime_ms=max_lifetime_ms, token_id=token_id, now_ms=now_ms
        )

    def renew_token(self, token_hmac: bytes, by: Principal, period_ms: int, now_ms: int) -> Decision[int]:
        """RenewDelegationToken; when the token ends."""
        from strandline.quorum.controller.security.delegation_tokens import renew

        return renew(self._state, token_hmac, by, period_ms, now_ms)

    def expire_token(self, token_hmac: bytes, by: Principal, period_ms: int, now_ms: int) -> Decision[int]:
        """ExpireDelegationToken; when the token ends."""
        from strandline.quorum.controller.security.delegation_tokens import expire

        return expire(self._state, token_hmac, by, period_ms, now_ms)

    def remove_expired_tokens(self, now_ms: int) -> list[Any]:
        """Return the records that remove delegation tokens that are over."""
        from strandline.quorum.controller.security.delegation_tokens import remove_expired

        return remove_expired(self._state, now_ms)

    # Settings.

    def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> list[Any]:
        """Return the records of new feature levels; raise RequestError if one of them is not allowed."""
        records = feature_records(updates, self._state.image.features, SUPPORTED_FEATURES)
        if any(isinstance(each, ClearElrRecord) for each in records):
            check_elr_is_not_needed(self._state.image)
        return [] if validate_only else self._state.decided(records)

    def decide_configs(
        self, asked: Sequence[ConfigAlteration], *, node_id: int | None, validate_only: bool = False
    ) -> Iterator[Decision[RequestError | None]]:
        """Yield for each resource in order its records and None, or why its settings stay as they are."""
        times = Counter((each.resource_type, each.resource_name) for each in asked)
        for each in asked:
            try:
                if times[each.resource_type, each.resource_name] > 1:
                    raise RequestError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                records = self._config_records(each, node_id)
            except RequestError as error:
                yield [], error
                continue
            yield [] if validate_only else self._state.decided(records), None

    # Access rules.

    @cached_property
    def _access_rules(self) -> AccessRules:
        from strandline.quorum.controller.security.access_rules import AccessRules

        return AccessRules(self._state)

    def create_access_rules(self, acls: Sequence[Acl]) -> Decisions[RequestError | None]:
        """CreateAcls, one ACL at a time: None, or why it is not created."""
        return self._access_rules.create(acls)

    def delete_access_rules(self, filters: Sequence[AclFilter]) -> Decisions[list[Acl] | RequestError]:
        """DeleteAcls, one filter at a time: the ACLs that it selects, or why none of them is deleted."""
        return self._access_rules.delete(filters)

    def decide_quotas(
        self, asked: Sequence[QuotaAlteration], *, validate_only: bool = False
    ) -> Iterator[Decision[RequestError | None]]:
        """Yield for each entity in order its records and None, or why its quotas stay as they are."""
        from strandline.quorum.controller.security.client_quotas import decide

        return decide(self._state, asked, validate_only=validate_only)

    def _config_records(self, asked: ConfigAlteration, node_id: int | None) -> list[Any]:
        state = self._state
        records: list[Any] = list(config_records(asked, image=state.image, config=state.config, node_id=node_id))
        changed = {record.name: record.value for record in records}
        if UNCLEAN_ELECTION in changed:
            # A partition that waited for just this has no other event to wait for.
            self._leaderless_at = 0.0
        if state.has_elr and IN_SYNC_MIN in changed and asked.resource_type in (RESOURCE_TOPIC, RESOURCE_BROKER):
            if asked.resource_type == RESOURCE_BROKER and asked.resource_name:
                message = f"Broker-level {IN_SYNC_MIN} cannot be altered while ELR is enabled."
                raise RequestError(ErrorCode.INVALID_CONFIG, message)
            if asked.resource_type == RESOURCE_BROKER and changed[IN_SYNC_MIN] is None:
                message = f"Cluster-level {IN_SYNC_MIN} cannot be removed while ELR is enabled."
                raise RequestError(ErrorCode.INVALID_CONFIG, message)
            # The eligible leader replicas stay. A leader commits nothing while there are any, whatever the minimum.
            # Where none is in sync they are all that says which brokers hold the records.
        return records
