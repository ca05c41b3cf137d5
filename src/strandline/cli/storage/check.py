"""`strandline storage check`: whether the object store has what the metadata names, and nothing else."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.conversation import own_client
from strandline.cli.common.failures import CommandFailed, ExitCode
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout, Yes
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count, size
from strandline.cli.common.plans import confirm
from strandline.cli.common.progress import Progress
from strandline.cli.storage.access import (
    StoreAddress,
    StoreOptions,
    StoreUrl,
    check_owner,
    cluster_id_of,
    listed_objects,
    read_metadata,
    store_address,
    topics_by_id,
    with_store,
)
from strandline.cli.storage.deep_reading import damage_of
from strandline.cli.storage.object_check import ObjectCheck, repair_objects
from strandline.cli.storage.repair import repair
from strandline.tiers.metadata_fold import MetadataFold
from strandline.tiers.objects import key_of
from strandline.tiers.store.interface import ObjectStore, StoredObject
from strandline.tiers.store_check import (
    CheckedStore,
    StoreFinding,
    StoreProblem,
    compare,
    lost,
    segments_to_read,
    still_true,
)
from strandline.tiers.wal.commit_check import CommitFinding

if TYPE_CHECKING:
    from strandline.client.cluster_client import ClusterClient
    from strandline.runtime.runtime import LoopRuntime

READS_TOGETHER: Final = 4
GRACE_S: Final = 3600
CLOCK_S_MAX: Final = 300
STORE_S: Final = 30.0


def check(
    deep: Annotated[bool, typer.Option("--deep", help="Read every object and compare checksums.")] = False,
    repair_: Annotated[
        bool, typer.Option("--repair", help="Delete orphans, and finish what was begun and never ended.")
    ] = False,
    grace: Annotated[
        int,
        typer.Option("--grace", metavar="SECONDS", min=0, help="What is younger is left alone; it may be under way."),
    ] = GRACE_S,
    store: StoreUrl = None,
    store_options: StoreOptions = None,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Compare the metadata of tiered and object topics with the objects in the store, and say what a repair would do.

    Reads only, unless --repair is said. The exit code is 5 if something is wrong and was not repaired.
    """
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    address = store_address(cluster, cluster.admin(), store, store_options)
    with own_client(cluster, "cannot check the object store") as client:
        checking = _Checking(cluster, client, address, grace_s=grace, deep=deep, is_repair=repair_)
        findings = with_store(address, checking.run)
        _show(output, checking, findings)
        repairable = [each for each in findings if each.can_repair]
        if repair_ and repairable:
            confirm(output, _plan(repairable), yes=yes, question="Repair?", undone="nothing was repaired")
            done = with_store(address, lambda opened, _: _repair(checking, opened, repairable))
            output.talk(f"repaired {count(done, 'finding')}")
            findings = [each for each in findings if not each.can_repair]
    output.flush()
    if findings:
        raise CommandFailed(
            f"{count(len(findings), 'finding')} in {address.url}",
            hint="see the words beside each"
            if not repairable or repair_
            else "`strandline storage check --repair` does what it can",
            code=ExitCode.UNHEALTHY,
        )


@dataclass
class _Checking:
    """One check, and what it saw."""

    cluster: Cluster
    client: ClusterClient
    address: StoreAddress
    grace_s: int
    deep: bool
    is_repair: bool
    cluster_id: str = ""
    segments: int = 0
    size_bytes: int = 0
    objects: int = 0
    unmerged_bytes: int = 0
    """Of object topics, in objects that no segment replaces yet."""

    async def run(self, store: ObjectStore, runtime: LoopRuntime) -> list[StoreFinding]:
        cluster_id = self.cluster_id = cluster_id_of(self.client)
        await check_owner(store, runtime, cluster_id)
        now_ms = await _store_now_ms(store) if self.is_repair else time.time_ns() // 1_000_000
        listed = await listed_objects(store, f"{cluster_id}/seg")
        self.objects = len(listed)
        metadata = read_metadata(self.client, cluster_id)
        fold = metadata.fold
        for other in _other_clusters(fold) - {cluster_id}:
            listed |= await listed_objects(store, f"{other}/seg")
        checked = CheckedStore(
            fold,
            cluster_id,
            listed,
            topics_by_id(self.client),
            now_ms,
            self.grace_s * 1000,
            is_metadata_whole=metadata.is_whole,
        )
        found = compare(checked)
        readable = list(segments_to_read(fold))
        self.segments, self.size_bytes = len(readable), sum(segment.size_bytes for _, segment in readable)
        if found:
            # Meanwhile nodes went on: what is no longer so is no finding.
            newer = read_metadata(self.client, cluster_id).fold
            listed = await _seen_again(store, found)
            found = [each for each in found if still_true(each, newer, listed)]
        if self.deep:
            known_bad = {each.segment.id for each in found if each.segment is not None}
            sound = [(place, segment) for place, segment in readable if segment.id not in known_bad]
            found += await self._read(store, sound, checked)
        of_objects = ObjectCheck(self.client, store, cluster_id, now_ms, self.grace_s * 1000)
        found += await of_objects.run(deep=self.deep)
        self.objects += of_objects.objects
        self.unmerged_bytes = of_objects.size_bytes
        return found

    async def _read(self, store: ObjectStore, readable: list[Any], checked: CheckedStore) -> list[StoreFinding]:
        found: list[StoreFinding] = []
        total = sum(segment.size_bytes for _, segment in readable)
        with Progress("reading", total=total or None, unit="bytes", is_bytes=True) as progress:
            for at in range(0, len(readable), READS_TOGETHER):
                some = readable[at : at + READS_TOGETHER]
                bases = [key_of(self.cluster_id, place, segment) for place, segment in some]
                damages = await asyncio.gather(
                    *(damage_of(store, base, segment) for base, (_, segment) in zip(bases, some, strict=True))
                )
                for base, (place, segment), damage in zip(bases, some, damages, strict=True):
                    progress.advance(segment.size_bytes)
                    if damage:
                        name = f"segment {segment.start_offset} to {segment.end_offset} of {checked.name_of(place)}"
                        text = f"{name} is damaged: {damage}"
                        found.append(lost(StoreProblem.DAMAGED, place, segment, [f"{base}.log"], text))
        if found:
            newer = read_metadata(self.client, self.cluster_id).fold
            found = [each for each in found if still_true(each, newer, {})]
        return found


def _other_clusters(fold: MetadataFold) -> set[str]:
    segments = (segment for state in fold.states.values() for segment in state.by_id.values())
    return {segment.source.cluster_id for segment in segments if segment.source is not None}


async def _seen_again(store: ObjectStore, findings: list[StoreFinding]) -> dict[str, StoredObject]:
    found: dict[str, StoredObject] = {}
    for key in {key for finding in findings for key in finding.keys}:
        each = await store.head(key, deadline_s=STORE_S)
        if each is not None:
            found[key] = each
    return found


async def _store_now_ms(store: ObjectStore) -> int:
    """Return the time of the store, by which the age of objects counts. Raise if this machine's is another."""
    key = f"probe/{secrets.token_hex(8)}/clock"
    await store.put(key, b"clock", deadline_s=STORE_S)
    try:
        found = await store.head(key, deadline_s=STORE_S)
    finally:
        await store.delete([key], deadline_s=STORE_S)
    own_ms = time.time_ns() // 1_000_000
    store_ms = 0 if found is None else found.modified_ms
    if abs(own_ms - store_ms) > CLOCK_S_MAX * 1000:
        raise CommandFailed(
            f"the clock of this machine is {(own_ms - store_ms) // 1000} seconds from that of {store.name}, so the age "
            "of objects is unknown and nothing was deleted",
            hint="set the clock, or run the command on another machine",
        )
    return store_ms


async def _repair(checking: _Checking, store: ObjectStore, findings: list[StoreFinding]) -> int:
    cluster, client, cluster_id = checking.cluster, checking.client, checking.cluster_id
    of_commits = [each for each in findings if isinstance(each, CommitFinding)]
    others = [each for each in findings if not isinstance(each, CommitFinding)]
    done = await repair(cluster, client, store, others, cluster_id) if others else 0
    return done + (await repair_objects(cluster, client, store, of_commits, cluster_id) if of_commits else 0)


def _plan(findings: list[StoreFinding]) -> list[str]:
    return [f"{each.repair}: {each.text}" for each in findings]


def _show(output: Output, checking: _Checking, findings: list[StoreFinding]) -> None:
    for each in findings:
        if output.as_json:
            output.json_line(_row(each))
        else:
            output.hanging(f"{each.problem}: ", "    ", f"{each.text}; repair: {each.repair}")
    if checking.unmerged_bytes:
        unmerged = f" and {size(checking.unmerged_bytes)} of object topics that are not merged yet"
    else:
        unmerged = ""
    segments = f"{count(checking.segments, 'segment')} ({size(checking.size_bytes)})"
    seen = f"{segments}{unmerged}, {count(checking.objects, 'object')}"
    output.talk(f"checked {seen} in {checking.address.url}{': all is well' if not findings else ''}")


def _row(finding: StoreFinding) -> dict[str, object]:
    ranges = finding.ranges if isinstance(finding, CommitFinding) else ()
    segment, place = finding.segment, finding.place
    row: dict[str, object] = {
        "problem": str(finding.problem),
        "topic": None if place is None else place.topic,
        "topic_id": None if place is None else str(place.topic_id),
        "partition": None if place is None else place.partition,
        "from": None if segment is None else segment.start_offset,
        "to": None if segment is None else segment.end_offset + 1,
        "ranges": [
            {"topic": each.topic, "partition": each.partition, "from": each.start_offset, "to": each.end_offset}
            for each in ranges
        ],
        "objects": list(finding.keys),
        "what": finding.text,
        "repair": finding.repair,
        "can_repair": finding.can_repair,
    }
    if len(ranges) == 1:
        (one,) = ranges
        row |= {"topic": one.topic, "topic_id": str(one.topic_id), "partition": one.partition}
        row |= {"from": one.start_offset, "to": one.end_offset}
    return row
