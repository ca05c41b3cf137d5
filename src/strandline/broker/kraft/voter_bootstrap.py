"""Which nodes vote, as far as a node knows before its first request.

In this order: the newest snapshot, the first control records of the log, the snapshot that `strandline format` wrote,
`controller.quorum.voters`. Without any of them a controller is a quorum of one, unless it was told of bootstrap
servers: then it is an observer, as every broker without the controller role is.

Known gap: voters are static. A VotersRecord that changes them counts when it is committed, not when it is appended.
"""

from __future__ import annotations

import dataclasses
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from strandline.broker.kraft.metadata_snapshots import MetadataSnapshots
from strandline.codec.columns import decode_batch
from strandline.codec.messages.voters_record import VotersRecord
from strandline.log.partition_log import PartitionLog
from strandline.quorum.image.snapshot_format import BOOTSTRAP, SnapshotReader, decode_control_record
from strandline.quorum.raft.voters import Voter, VoterSet

if TYPE_CHECKING:
    from strandline.broker.kraft.quorum_settings import QuorumSettings

FIRST_BATCHES: Final = 32
"""Where the first leader's word on who votes is looked for; a few may have tried and failed before it."""


@dataclasses.dataclass(slots=True)
class VoterBootstrap:
    voters: VoterSet
    kraft_version: int = 0
    """1 where voters stand in records, with their directories."""
    to_write: VoterSet | None = None
    """Not in the log yet: the first leader writes them there."""
    bootstrap_records: list[Any] = dataclasses.field(default_factory=list)


def voters_known(
    settings: QuorumSettings, log: PartitionLog, snapshots: MetadataSnapshots, in_snapshot: VotersRecord | None
) -> VoterBootstrap:
    known = VoterBootstrap(VoterSet())
    in_bootstrap: VotersRecord | None = None
    if snapshots.has_bootstrap:
        reader = SnapshotReader(snapshots.read_whole(BOOTSTRAP))
        known.bootstrap_records = [record for batch in reader.batches() for record in batch]
        in_bootstrap, known.kraft_version = reader.voters, reader.kraft_version
    in_log = in_snapshot or _in_log(log)
    if in_log is not None:
        known.voters, known.kraft_version = VoterSet.of_record(in_log), 1
    elif in_bootstrap is not None:
        known.voters = known.to_write = VoterSet.of_record(in_bootstrap)
    elif settings.static_voters:
        known.voters = VoterSet(
            Voter(node_id, host, port, listener_name=settings.listener_name)
            for node_id, host, port in settings.static_voters
        )
    elif settings.is_controller and not settings.bootstrap_servers:
        host, port = settings.listener_address or ("", 0)
        known.voters = VoterSet([Voter(settings.node_id, host, port, listener_name=settings.listener_name)])
    return known


def _in_log(log: PartitionLog) -> VotersRecord | None:
    found: VotersRecord | None = None
    if log.log_start_offset == 0:
        for batch in islice(log.batches(), FIRST_BATCHES):
            columns = decode_batch(batch)
            for record in columns if columns.is_control else ():
                control = decode_control_record(record)
                if isinstance(control, VotersRecord):
                    found = control
    return found
