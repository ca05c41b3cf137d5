"""`topic alter --storage`: a live topic becomes tiered, or local again with all its records.

The way back has three steps: every replica brings back what only the store has (`strandline.remote.recall`), this
command waits for all of them, then the tier ends. The brokers go on with the first step if this command is killed, and
the same command goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import not_spoken, own_client
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count, size
from strandline.cli.common.plans import confirm
from strandline.cli.common.progress import Progress
from strandline.cli.config.access import ConfigValue, Target, read_entries, value_of, write_entries
from strandline.cli.topic.storage_reading import Storage, read_storage
from strandline.cli.topic.topics import described
from strandline.client.cluster_client import EARLIEST, READ_UNCOMMITTED, ClusterClient
from strandline.ids import TopicPartition

TIERED: Final = "remote.storage.enable"
RECALL: Final = "strandline.remote.recall"
DELETE_ON_DISABLE: Final = "remote.log.delete.on.disable"
ORIGIN: Final = "strandline.remote.origin"
LOOK_S: Final = 0.5


class StorageKind(StrEnum):
    LOCAL = "local"
    TIERED = "tiered"


class _Left(NamedTuple):
    """What is still to be brought back."""

    offsets: int
    replicas: int
    silent: dict[int, str]
    """Brokers with a replica that cannot be asked, each with the reason."""


def change_storage(
    cluster: Cluster,
    admin: Any,
    name: str,
    wanted: StorageKind,
    settings: Mapping[str, str],
    output: Output,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """Do it, with a plan and progress. `settings` are set along with it."""
    topic = described(cluster, admin, name)
    entries = read_entries(cluster, admin, Target("topic", name))
    if entries is None or TIERED not in entries:
        raise CommandFailed(f"this cluster does not tell whether {name} is tiered, so nothing was changed")
    is_tiered = value_of(entries, TIERED) == "true"
    if wanted is StorageKind.TIERED:
        _become_tiered(cluster, admin, name, settings, entries, output, is_tiered=is_tiered, dry_run=dry_run)
    elif not is_tiered:
        output.talk(f"{name} is local already")
        _report(output, name, wanted, changed=False, dry_run=dry_run)
    else:
        _become_local(cluster, admin, topic, settings, output, dry_run=dry_run, yes=yes)


def _become_tiered(
    cluster: Cluster,
    admin: Any,
    name: str,
    settings: Mapping[str, str],
    entries: Mapping[str, ConfigValue],
    output: Output,
    *,
    is_tiered: bool,
    dry_run: bool,
) -> None:
    # What an attempt to become local has left would keep every segment on the disks, or let the store be emptied.
    left = [key for key in (RECALL, DELETE_ON_DISABLE) if value_of(entries, key) == "true" and key not in settings]
    if is_tiered and not settings and not left:
        output.talk(f"{name} is tiered already")
        _report(output, name, StorageKind.TIERED, changed=False, dry_run=dry_run)
        return
    target = Target("topic", name)
    write_entries(cluster, admin, target, {TIERED: "true", **settings}, left, dry_run=dry_run)
    _report(output, name, StorageKind.TIERED, changed=True, dry_run=dry_run)


def _become_local(
    cluster: Cluster,
    admin: Any,
    topic: Any,
    settings: Mapping[str, str],
    output: Output,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    name, target = topic.name, Target("topic", topic.name)
    with own_client(cluster, f"cannot bring {name} back") as client:
        left = _left(client, cluster, topic)
        _check_room(cluster, client, topic)
        plan = [
            f"{name}: {count(left.replicas, 'replica')} bring back {count(left.offsets, 'offset')} that only the "
            "object store has; offsets stay as they are",
            f"{name}: when every replica has all, its segments in the object store are deleted",
        ]
        if dry_run:
            for line in plan:
                output.talk(line)
            _report(output, name, StorageKind.LOCAL, changed=True, dry_run=True)
            return
        confirm(output, plan, yes=yes, question="Do it?", undone="nothing was changed")
        write_entries(cluster, admin, target, {RECALL: "true", **settings}, [])
        _wait(client, cluster, admin, name, left, output)
        write_entries(cluster, admin, target, {TIERED: "false", DELETE_ON_DISABLE: "true"}, [RECALL, ORIGIN])
    _report(output, name, StorageKind.LOCAL, changed=True, dry_run=False)


def _wait(client: ClusterClient, cluster: Cluster, admin: Any, name: str, first: _Left, output: Output) -> None:
    """Return when every replica has all records."""
    told: dict[int, str] = {}
    left = first
    with Progress(f"bringing {name} back", total=first.offsets or None, unit="offsets") as progress:
        while left.offsets or left.silent:
            if left.silent and left.silent != told:
                told = left.silent
                for broker_id, why in told.items():
                    output.talk(f"broker {broker_id} has a replica and does not answer: {why}; waiting for it")
            progress.reached(max(0, first.offsets - left.offsets))
            time.sleep(LOOK_S)
            # Replicas may move meanwhile.
            left = _left(client, cluster, described(cluster, admin, name))
            _check_still_tiered(cluster, admin, name)


def _check_still_tiered(cluster: Cluster, admin: Any, name: str) -> None:
    entries = read_entries(cluster, admin, Target("topic", name)) or {}
    if value_of(entries, TIERED) != "true" or value_of(entries, RECALL) != "true":
        raise CommandFailed(
            f"the settings of {name} were changed by another command meanwhile, so this was given up",
            hint=f"look at them with `strandline config get --topic {name}`, and run the command again",
        )


def _left(client: ClusterClient, cluster: Cluster, topic: Any) -> _Left:
    places = [TopicPartition(topic.name, each.id) for each in topic.partitions]
    # First: a start that moves on in between only lessens what is needed.
    starts = client.list_offsets(dict.fromkeys(places, EARLIEST), isolation_level=READ_UNCOMMITTED)
    storage: Storage = read_storage(cluster, [topic], with_segments=False)
    if not storage.is_known:
        raise not_spoken("brokers cannot be asked how far they are")
    offsets = replicas = 0
    found = 0
    for replica in storage.replicas:
        part = replica.part
        if part.error_code:
            storage.silent.setdefault(replica.node.node_id, part.error_message or "its log is offline")
            continue
        found += 1
        missing = part.log_start_offset - starts[TopicPartition(part.topic, part.partition)]
        if missing > 0:
            offsets += missing
            replicas += 1
    expected = sum(len(each.replicas) for each in topic.partitions)
    if found < expected and not storage.silent:
        storage.silent[-1] = f"{count(expected - found, 'replica')} are not open yet"
    return _Left(offsets, replicas, storage.silent)


def _check_room(cluster: Cluster, client: ClusterClient, topic: Any) -> None:
    """Raise if a broker has less room than what comes back to it."""
    from strandline.cli.storage.access import cluster_id_of, read_metadata

    fold = read_metadata(client, cluster_id_of(client)).fold
    sizes = {
        (fold.names[key].topic, key[1]): [(each.end_offset, each.size_bytes) for each in state.readable()]
        for key, state in fold.states.items()
    }
    needed: dict[int, int] = {}
    room: dict[int, int] = {}
    for replica in read_storage(cluster, [topic], with_segments=False).replicas:
        part, node = replica.part, replica.node
        segments = sizes.get((part.topic, part.partition), [])
        coming = sum(size_bytes for end_offset, size_bytes in segments if end_offset < part.log_start_offset)
        needed[node.node_id] = needed.get(node.node_id, 0) + coming
        room[node.node_id] = node.usable_bytes
    for broker_id, size_bytes in needed.items():
        if 0 <= room[broker_id] < size_bytes:
            raise CommandFailed(
                f"broker {broker_id} has room for {size(room[broker_id])}, and {size(size_bytes)} of {topic.name} "
                "would come back to it; nothing was changed",
                hint="add room, move replicas with `strandline cluster reassign`, or shorten retention.ms first",
            )


def _report(output: Output, name: str, kind: StorageKind, *, changed: bool, dry_run: bool) -> None:
    if output.as_json:
        output.json_line({"topic": name, "storage": str(kind), "changed": changed, "dry_run": dry_run})
    elif changed:
        output.line(f"{name} {'could be' if dry_run else 'is'} {kind}{' now' if not dry_run else ''}")
