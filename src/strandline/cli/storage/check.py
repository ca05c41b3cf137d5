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
    read_metadata,
    store_address,
    topics_by_id,
    with_store,
)
from strandline.cli.storage.deep_reading import damage_of
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
    """Compare the metadata of tiered topics with the objects in the store, and say what a repair would do.

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
            done = with_store(
                address, lambda opened, runtime: repair(cluster, client, opened, repairable, checking.cluster_id)
            )
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

    async def run(self, store: ObjectStore, runtime: LoopRuntime) -> list[StoreFinding]:
        cluster_id = self.cluster_id = cluster_id_of(self.client)
        await check_owner(store, runtime, cluster_id)
        now_ms = await _store_now_ms(store) if self.is_repair else time.time_ns() // 1_000_000
        listed = await _listed(store, f"{cluster_id}/seg")
        self.objects = len(listed)
        metadata = read_metadata(self.client, cluster_id)
        fold = metadata.fold
        for other in _other_clusters(fold) - {cluster_id}:
            listed |= await _listed(store, f"{other}/seg")
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


async def _listed(store: ObjectStore, prefix: str) -> dict[str, StoredObject]:
    found: dict[str, StoredObject] = {}
    with Progress("listing objects", total=None, unit="objects") as progress:
        async for each in store.list(prefix):
            found[each.key] = each
            progress.reached(len(found))
    return found


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


def _plan(findings: list[StoreFinding]) -> list[str]:
    return [f"{each.repair}: {each.text}" for each in findings]


def _show(output: Output, checking: _Checking, findings: list[StoreFinding]) -> None:
    for each in findings:
        if output.as_json:
            segment, place = each.segment, each.place
            output.json_line(
                {
                    "problem": str(each.problem),
                    "topic": None if place is None else place.topic,
                    "topic_id": None if place is None else str(place.topic_id),
                    "partition": None if place is None else place.partition,
                    "from": None if segment is None else segment.start_offset,
                    "to": None if segment is None else segment.end_offset + 1,
                    "objects": list(each.keys),
                    "what": each.text,
                    "repair": each.repair,
                    "can_repair": each.can_repair,
                }
            )
        else:
            output.hanging(f"{each.problem}: ", "    ", f"{each.text}; repair: {each.repair}")
    seen = f"{count(checking.segments, 'segment')} ({size(checking.size_bytes)}), {count(checking.objects, 'object')}"
    output.talk(f"checked {seen} in {checking.address.url}{': all is well' if not findings else ''}")
