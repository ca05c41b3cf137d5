"""`__cluster_metadata-0` on this node: drives the Raft core, and folds what is committed into the image.

Records are appended as one batch, flushed here and by a majority, and folded into the image; then the writer is called
back. So nothing is answered, and no producer id leaves, that a crash or another leader could take back. A quorum of one
does the same, and waits for no other member.

`connect(host, port)` gives a `Channel` to a controller listener; a quorum of one needs none. `kraft/membership` wires
all of this. The handlers of the quorum's own requests (52, 53, 54, 55, 59, and Fetch on the controller listener) ask
this class.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from strandline.broker.kraft.idle_records import IdleRecords
from strandline.broker.kraft.metadata_lateness import MetadataLateness
from strandline.broker.kraft.metadata_loader import Done, MetadataLoader, Write
from strandline.broker.kraft.metadata_snapshots import MetadataSnapshots
from strandline.broker.kraft.quorum_log import QuorumLog
from strandline.broker.kraft.quorum_news import QuorumNews
from strandline.broker.kraft.quorum_peers import Connect, Strangers
from strandline.broker.kraft.quorum_settings import QuorumSettings
from strandline.broker.kraft.raft_driver import RaftDriver, read_state
from strandline.broker.kraft.snapshot_loading import SnapshotInstall, load_snapshot
from strandline.broker.kraft.snapshot_making import SnapshotMaker
from strandline.broker.kraft.voter_bootstrap import voters_known
from strandline.codec.message import Message
from strandline.codec.messages.fetch_response import FetchResponse
from strandline.codec.messages.voters_record import VotersRecord
from strandline.config.topic_config import TopicConfig
from strandline.errors import CorruptLog, ErrorCode, NotLeader, RequestError, StrandlineError
from strandline.ids import TopicPartition
from strandline.log.flusher import Flusher
from strandline.log.log_directory import LogDirectory
from strandline.log.trimming import trim_now
from strandline.observability.log_lines import fields
from strandline.quorum.controller.prepared_records import encoded
from strandline.quorum.controller.topic_names import CLUSTER_METADATA
from strandline.quorum.image.cluster_image import ClusterImage
from strandline.quorum.raft.effects import (
    Effect,
    HighWatermark,
    Inconsistent,
    InstallSnapshot,
    LeaderKnown,
    Leading,
    NoLongerLeading,
    SnapshotChunk,
    Truncated,
    WrongCluster,
)
from strandline.quorum.raft.fetch import ReplicaFetch, ReplicaFetchAnswer
from strandline.quorum.raft.messages import fetched_partition
from strandline.quorum.raft.raft import Raft
from strandline.quorum.raft.voters import Peer, ReplicaKey, VoterSet
from strandline.runtime.runtime import Runtime

__all__ = ["NAME", "Done", "MetadataQuorum", "QuorumSettings"]

log = logging.getLogger("strandline.metadata")

NAME: Final = TopicPartition(CLUSTER_METADATA, 0)


class MetadataQuorum:
    def __init__(
        self,
        directory: LogDirectory,
        runtime: Runtime,
        flusher: Flusher,
        *,
        settings: QuorumSettings,
        connect: Connect | None = None,
    ) -> None:
        self._directory = directory
        self._runtime = runtime
        self.settings = settings
        config = TopicConfig(segment_bytes=settings.segment_bytes, segment_ms=settings.segment_ms)
        self.log = directory.open_log(NAME, config, now_ms=runtime.now_ms())
        # What recovery found in the file is flushed before it is believed.
        self.log.flush_now()
        self.snapshots = MetadataSnapshots(directory.disk, self.log.directory)
        self.quorum_log = QuorumLog(NAME, self.log, self.snapshots, directory, runtime)
        self._fold = MetadataLoader(self.log, runtime)
        self.subscribe = self._fold.subscribe
        self.bootstrap_records: list[Any] = []
        """What `strandline format` wrote into the bootstrap snapshot (feature levels): the first leader of an empty
        log writes them; they are not folded before that."""
        voters = self._load()
        raft = self.raft = Raft(
            node_id=settings.node_id,
            directory_id=settings.directory_id,
            cluster_id=settings.cluster_id,
            voters=voters,
            bootstrap_servers=settings.bootstrap_servers,
            may_vote=settings.is_controller,
            state=read_state(self.log),
            log=self.quorum_log,
            timing=settings.timing(),
            random=runtime.random,
        )
        self._driver = RaftDriver(raft, self.log, runtime, flusher, connect, self._on_effect)
        self._driver.on_answered = self._on_answered
        self._lateness = MetadataLateness(runtime, self.log, lambda: self._fold.folded_offset)
        self._maker = SnapshotMaker(self._fold, self.quorum_log, runtime, settings, lambda: raft.voters.record())
        self._idle = IdleRecords(runtime, settings.idle_interval_ms if len(voters) > 1 else 0, self.write)
        self._install: SnapshotInstall | None = None
        self._strangers = Strangers()

        self.on_failed: Callable[[list[Any]], None] | None = None
        """Called when a write failed, with the records of earlier ones that are still under way."""
        self.on_leading: Callable[[int], object] | None = None
        """Called with the epoch once this node leads it and the image holds everything written before it."""
        self.on_not_leading: Callable[[], object] | None = None
        """Called when another node may lead. Writes under way have been answered with NOT_CONTROLLER."""
        self.on_image_replaced: Callable[[], object] | None = None
        """Called when `image` is another object, made from a snapshot."""
        self.on_caught_up: Callable[[], object] | None = None
        """Called once, when the image has reached for the first time what a leader said is committed."""
        self.on_stop: Callable[[str], object] | None = None
        """Called with the reason when the node must not go on: its directory belongs to another cluster."""

        self.is_leader = False
        """Whether writes are taken: this node leads, and all before its epoch is in the image."""
        self.has_caught_up = False
        self._has_known_leader = False
        self._led: tuple[int, int] | None = None
        """Epoch and offset: what is led, and how far the image must be before the controller acts."""
        self._committed_by_leader: int | None = None
        """The high watermark as the leader of this epoch last told it."""
        self._news = QuorumNews(runtime)
        self.wait_for_news, self.stop_waiting = self._news.subscribe, self._news.unsubscribe
        self._fold.on_progress = self._on_folded
        self._fold.on_error = self._on_unreadable
        self._fold.on_voters = self._on_voters
        self.quorum_log.on_appended = self._on_appended
        self.log.on_failed = self._on_log_failed

    # What others see

    @property
    def image(self) -> ClusterImage:
        """The cluster as of the last committed record that was folded, on every node."""
        return self._fold.image

    @property
    def removed_topic_ids(self) -> set[UUID]:
        """Topics that were seen to go since the start, until `forget_removed`: a crash may have left directories."""
        return self._fold.removed_topic_ids

    def forget_removed(self) -> None:
        """The directories of removed topics are gone; those that come after are removed as their records come."""
        self._fold.keeps_removed = False
        self._fold.removed_topic_ids.clear()

    @property
    def on_applied(self) -> Callable[[list[Any], Callable[[], object]], None] | None:
        """Called with records that are now part of the image; it calls back when they have taken effect here."""
        return self._fold.on_applied

    @on_applied.setter
    def on_applied(self, told: Callable[[list[Any], Callable[[], object]], None] | None) -> None:
        self._fold.on_applied = told

    @property
    def epoch(self) -> int:
        """The newest epoch this node knows of."""
        return self.raft.epoch

    @property
    def leader_id(self) -> int | None:
        return None if self.raft.leader_id < 0 else self.raft.leader_id

    @property
    def is_confirmed(self) -> bool:
        """Whether this node leads the quorum, and no other can by now."""
        return self.raft.is_confirmed(self._runtime.monotonic())

    @property
    def is_late(self) -> bool:
        """Whether its disk keeps this node from what the quorum decides: others may lead in its place, unheard."""
        return self._driver.is_held_up or (not self.is_leader and self._lateness.is_late)

    @property
    def voter_ids(self) -> tuple[int, ...]:
        return self.raft.voters.node_ids

    def leader_address(self) -> tuple[str, int] | None:
        """Return where the leader's controller listener is; None while no leader is known."""
        leader = self.raft.leader
        return None if leader is None else (leader.host, leader.port)

    @property
    def high_watermark(self) -> int:
        return self.raft.high_watermark

    @property
    def folded_offset(self) -> int:
        """Everything before it is in the image."""
        return self._fold.folded_offset

    @property
    def next_offset(self) -> int:
        """Where the next record goes."""
        return self.log.log_end_offset

    # Starting

    def _load(self) -> VoterSet:
        """The newest snapshot, if there is one, and who votes."""
        latest = self.snapshots.latest
        voters: VotersRecord | None = None
        if latest is not None:
            loaded = load_snapshot(self.snapshots, latest)
            self._fold.replace(loaded.image, latest.end_offset, loaded.last_timestamp_ms)
            voters = loaded.voters
            is_at_its_end = self.log.log_start_offset == self.log.log_end_offset == latest.end_offset
            if not is_at_its_end and (
                latest.epoch > self.log.leader_epochs.latest or latest.end_offset > self.log.log_end_offset
            ):
                # A crash came between a snapshot that was taken from the leader and the end of the log before it.
                self.quorum_log.restart_at(latest)
            elif 0 < self.log.log_start_offset < self.snapshots.ids[0].end_offset:
                # A crash took back what was known of the log's start; there must be a snapshot at it.
                trim_now(self.log, min(self.snapshots.ids[0].end_offset, self.log.log_end_offset))
        if self.log.log_start_offset > self._fold.folded_offset:
            raise CorruptLog(
                f"{self.log.directory}: the log begins at {self.log.log_start_offset} and no snapshot does"
            )
        known = voters_known(self.settings, self.log, self.snapshots, voters)
        self.bootstrap_records = known.bootstrap_records
        self.quorum_log.kraft_version = known.kraft_version
        self.quorum_log.voters_to_write = known.to_write
        return known.voters

    def start(self) -> None:
        """Begin to take part; a quorum of one leads when this returns."""
        self._driver.is_eager = len(self.raft.voters) == 1
        try:
            self._driver.step(self.raft.start)
        finally:
            self._driver.is_eager = False
        self._maker.start()

    def write_now(self, records: list[Any]) -> None:
        """Write, commit and fold before returning; only in a quorum of one, and only while the node starts."""
        assert not self._fold.writes
        self._driver.is_eager = True
        failures: list[BaseException] = []
        try:
            self.write(records, lambda error: failures.append(error) if error is not None else None)
        finally:
            self._driver.is_eager = False
        if failures:
            raise failures[0]
        assert self._fold.folded_offset == self.next_offset, "a quorum of one commits at once"

    # Writing

    def write(self, records: list[Any], on_done: Done) -> None:
        """Append `records` as one batch; `on_done(None)` when they are committed and in the image.

        `on_done(RequestError(NOT_CONTROLLER))` on a node that does not lead, or that lost the lead meanwhile: then
        the records may or may not have been committed. With no records, `on_done` is called when everything before is
        committed and folded.
        """
        if self.log.failure is not None:
            on_done(self.log.failure)
            return
        if not self.is_leader:
            on_done(_not_controller())
            return
        if not records:
            if self._fold.folded_offset >= self.next_offset:
                on_done(None)
            else:
                self._fold.writes.append(Write(self.next_offset, self.next_offset, [], on_done))
            return
        now_ms = self._runtime.now_ms()
        batch = bytearray(encoded(records, now_ms))
        base_offset = self.next_offset
        write = Write(base_offset, base_offset + len(records), records, on_done, len(batch), now_ms)
        self._fold.writes.append(write)
        try:
            self.raft.append(batch, self._runtime.monotonic())
        except StrandlineError as error:
            if self._fold.writes and self._fold.writes[-1] is write:
                self._fold.writes.pop()
                if self.on_failed is not None:
                    self.on_failed([record for each in self._fold.writes for record in each.records])
                on_done(_not_controller() if isinstance(error, NotLeader) else error)
            return
        self._driver.perform()

    def make_snapshot(self) -> None:
        """Begin to write the image down as it is now, though it is not due yet."""
        self._maker.begin()

    def resign(self) -> None:
        """Hand the lead to another voter, before a stop."""
        self._driver.step_quietly(self.raft.resign)

    # Requests of other members

    def on_request(self, request: Message) -> Message:
        """Vote, BeginQuorumEpoch or EndQuorumEpoch. What must be on disk is, when this returns the answer."""
        return self._driver.step(self.raft.on_request, request)

    def on_fetch(self, fetch: ReplicaFetch) -> ReplicaFetchAnswer:
        return self._driver.step(self.raft.on_fetch, fetch)

    def answer_fetch(self, fetch: ReplicaFetch) -> ReplicaFetchAnswer:
        """The answer to a fetch that has been waiting."""
        self._driver.check_running()
        return self.raft.answer_fetch(fetch)

    def on_fetch_snapshot(self, key: ReplicaKey, leader_epoch: int, cluster_id: str | None) -> ErrorCode:
        return self._driver.step(self.raft.on_fetch_snapshot, key, leader_epoch, cluster_id)

    def _on_appended(self) -> None:
        self._lateness.look()
        self._news.announce()

    # What the core says

    def _on_effect(self, effect: Effect) -> None:
        match effect:
            case HighWatermark(offset):
                self._fold.commit(offset, at_once=self._driver.is_eager)
                self._news.announce()
            case LeaderKnown():
                self._on_leader_known(effect)
            case Leading(epoch):
                self._led = epoch, self.raft.high_watermark
                self._on_folded()
            case NoLongerLeading():
                self._on_lead_lost()
            case Truncated(end_offset):
                log.info("the metadata log was cut to %d, as the leader has it", end_offset)
            case SnapshotChunk() | InstallSnapshot():
                self._take_snapshot(effect)
            case Inconsistent(reason):
                self._on_inconsistent(reason)
            case WrongCluster(peer):
                self._on_wrong_cluster(peer)

    def _on_leader_known(self, effect: LeaderKnown) -> None:
        if effect.leader_id >= 0:
            self._has_known_leader = True
            log.info("node %d leads the metadata quorum in epoch %d", effect.leader_id, effect.epoch)
        self._committed_by_leader = None
        self._news.announce()

    def _on_lead_lost(self) -> None:
        was_told, self.is_leader, self._led = self.is_leader, False, None
        self._idle.end()
        self._fold.fail_writes(_not_controller())
        if was_told and self.on_not_leading is not None:
            self.on_not_leading()
        self._news.announce()

    def _on_folded(self) -> None:
        """The image has moved, or what it waits for has."""
        if self._led is not None and not self.is_leader and self._fold.folded_offset >= self._led[1]:
            self.is_leader = True
            self._idle.begin(lambda: self.next_offset)
            if self.on_leading is not None:
                self.on_leading(self._led[0])
        self._look_whether_caught_up()
        self._maker.maybe_begin()

    def _on_answered(self, request: Message, response: Message) -> None:
        told = fetched_partition(response) if isinstance(response, FetchResponse) else None
        if told is None or told.error_code:
            return
        self._lateness.on_told(told.high_watermark)
        if not self.has_caught_up and told.current_leader.leader_epoch == self.raft.epoch:
            self._committed_by_leader = told.high_watermark
            self._look_whether_caught_up()

    def _look_whether_caught_up(self) -> None:
        """A new leader knows what is committed once a record of its own epoch is; until then it may say too little."""
        end_offset = self.raft.high_watermark if self.is_leader else self._committed_by_leader
        if self.has_caught_up or end_offset is None or self._fold.folded_offset < end_offset:
            return
        if self.quorum_log.epoch_before(end_offset) == self.raft.epoch:
            self.has_caught_up = True
            if self.on_caught_up is not None:
                self.on_caught_up()

    def _on_voters(self, record: VotersRecord, offset: int) -> None:
        """A committed record says who votes."""
        self.quorum_log.kraft_version = max(1, self.quorum_log.kraft_version)
        self.quorum_log.voters_to_write = None
        voters = VoterSet.of_record(record)
        if voters != self.raft.voters:
            self.raft.learn_voters(voters, offset)

    # Snapshots that the leader sends

    def _take_snapshot(self, effect: SnapshotChunk | InstallSnapshot) -> None:
        if self._install is None or self._install.snapshot_id != effect.snapshot_id:
            if isinstance(effect, InstallSnapshot):
                # The core said so with the last chunk, which could not be written. It knows that by now.
                return
            if self._install is not None:
                self._install.abandon()
            self._install = SnapshotInstall(self._runtime, self.snapshots, effect.snapshot_id)
        try:
            if isinstance(effect, SnapshotChunk):
                self._install.take(effect.position, effect.records)
            else:
                self._maker.abandon()
                self._install.finish(self._on_snapshot_loaded)
        except OSError as error:
            self._install.abandon()
            self._on_snapshot_failed(self._install, error)

    def _on_snapshot_failed(self, install: SnapshotInstall, error: BaseException) -> None:
        """The log is as it was. The core asks again, after a while: the disk may be full, or the bytes were damaged."""
        self._install = None
        end_offset = install.snapshot_id.end_offset
        log.warning("the snapshot of offset %d cannot be taken: %s", end_offset, error, extra=fields(reason=str(error)))
        self._driver.step_quietly(self.raft.on_snapshot_failed, install.snapshot_id)

    def _on_snapshot_loaded(self, install: SnapshotInstall, error: BaseException | None) -> None:
        if install is not self._install or not self._driver.is_running:
            return
        if error is not None:
            self._on_snapshot_failed(install, error)
            return
        self._install = None
        loaded, snapshot_id = install.loaded, install.snapshot_id
        try:
            self.quorum_log.restart_at(snapshot_id)
        except OSError as failure:
            self._driver.fail(failure)
            return
        except StrandlineError:
            return  # The log has said so itself.
        self._fold.replace(loaded.image, snapshot_id.end_offset, loaded.last_timestamp_ms)
        if loaded.voters is not None:
            self._on_voters(loaded.voters, snapshot_id.end_offset - 1)
        log.info("loaded the snapshot of offset %d from the leader", snapshot_id.end_offset)
        self._driver.step_quietly(self.raft.on_snapshot_installed, snapshot_id)
        if self.on_image_replaced is not None:
            self.on_image_replaced()

    # Failures

    def _on_inconsistent(self, reason: str) -> None:
        disk_error, self.quorum_log.disk_error = self.quorum_log.disk_error, None
        if disk_error is None:
            log.error("the metadata quorum is inconsistent: %s", reason, extra=fields(reason=reason))
        else:
            log.warning("the metadata log cannot follow: %s", disk_error, extra=fields(reason=disk_error))

    def _on_wrong_cluster(self, peer: Peer) -> None:
        sentence = (
            f"{self._directory.path} belongs to cluster {self.settings.cluster_id}, and the controller at "
            f"{peer.host}:{peer.port} to another one: correct the addresses of the controllers, or use the directory "
            "that was formatted for that cluster"
        )
        log.error("%s", sentence)
        is_stranger_here = self._strangers.add(peer, len(self.raft.voters) - 1 or len(self.settings.bootstrap_servers))
        if is_stranger_here and not self._has_known_leader and self.on_stop is not None:
            self.on_stop(sentence)

    def _on_unreadable(self, error: StrandlineError) -> None:
        """A committed record that cannot be understood: what comes after it means nothing without it."""
        self.log.fail(error)

    def _on_log_failed(self, error: StrandlineError) -> None:
        log.error("the metadata log failed: %s", error, extra=fields(reason=str(error)))
        self._idle.end()
        was_told, self.is_leader, self._led = self.is_leader, False, None
        if self.on_failed is not None:
            self.on_failed([])
        self._fold.on_log_failed(error)
        if was_told and self.on_not_leading is not None:
            self.on_not_leading()
        self._news.announce()

    def close(self) -> None:
        self._driver.close()
        self._idle.end()
        self._maker.close()
        if self._install is not None:
            self._install.abandon()
        self.log.close()


def _not_controller() -> RequestError:
    return RequestError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")
