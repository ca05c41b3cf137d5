"""What `doctor` and `cluster health` say of the object store of tiered topics, by what each broker reports (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from strandline.cli.common.plain_words import count, size
from strandline.cli.doctor.findings import Finding, ok, problem, warning
from strandline.codec.messages.describe_storage_response import DescribeStorageResponse, TierStatus
from strandline.lag.verdict import span

LAG_INTERVALS: Final = 10
"""A segment that waits for so many looks is late; none is copied twice in one."""
LAG_S_MIN: Final = 300.0
CHECKPOINT_INTERVALS: Final = 3
DAMAGES_SHOWN: Final = 3

_URL: Final = "strandline.remote.store.url"
_CREDENTIALS: Final = "set them in strandline.remote.store.options or the environment of the broker, and start it again"
ADVICE: Final = {
    "StoreUnavailable": "look at the network from broker to store: `curl -sI ENDPOINT`; the broker goes on by itself",
    "StoreUnsure": "look at the network from broker to store: `curl -sI ENDPOINT`; the broker goes on by itself",
    "StoreDenied:rights": "grant reading, writing, listing and deleting to the credentials of the broker, for example "
    "`aws s3api put-bucket-policy`; it goes on by itself",
    "StoreDenied:expired": f"renew the credentials: {_CREDENTIALS}",
    "StoreDenied:credentials": f"correct the credentials: {_CREDENTIALS}",
    "StoreWrongClock": "set the clock of the broker's machine: `timedatectl set-ntp true`; it goes on by itself",
    "StoreFull": "make room or raise the quota of the bucket, or shorten retention: `strandline topic alter NAME "
    "--config retention.ms=MS`; until then disks fill",
    "BucketMissing": f"create the bucket: `aws s3 mb s3://BUCKET`; or correct {_URL} and start the broker again",
    "StoreMisconfigured": f"correct {_URL} and strandline.remote.store.options, and start the broker again",
    "StoreRefused": f"name another store in {_URL}, and start the broker again",
    "StoreOfAnotherCluster": f"name another bucket or prefix in {_URL}, and start the broker again; to read it beside "
    "its cluster, set strandline.remote.store.read.only=true",
    "ObjectMissing": "`strandline storage check` says which objects are missing",
    "ObjectDamaged": "`strandline storage check --deep` says which objects are damaged",
}


def tier_findings(answers: Sequence[DescribeStorageResponse]) -> Iterator[Finding]:
    """Yield what is wrong with the store, each with the command that mends it."""
    tiers = [(answer.node_id, tier) for answer in answers for tier in answer.tiers]
    found = [finding for node_id, tier in tiers for finding in _of_node(node_id, tier)]
    yield from found
    if tiers and not found:
        behind = max((tier.checkpoint_age_ms for _, tier in tiers), default=-1)
        rpo = "" if behind < 0 else f"; its last checkpoints are at most {span(behind / 1000)} behind"
        yield ok("object-store", f"{count(len(tiers), 'broker')} can use it{rpo}")


def _of_node(node_id: int, tier: TierStatus) -> Iterator[Finding]:
    if tier.problem:
        state = "" if tier.is_open else "; what is only there cannot be read"
        yield problem(
            "object-store",
            f"broker {node_id} cannot use the object store{state}: {tier.message}",
            ADVICE.get(tier.problem, "see the log of the broker"),
        )
    for text in tier.damages[:DAMAGES_SHOWN]:
        yield problem(
            "object-damaged",
            f"broker {node_id}: {text}",
            "`strandline storage check --deep` names all; restore them from a version or a backup of the bucket",
        )
    if len(tier.damages) > DAMAGES_SHOWN:
        more = count(len(tier.damages) - DAMAGES_SHOWN, "more object")
        yield problem("object-damaged", f"broker {node_id}: {more}", "`strandline storage check --deep`")
    if tier.is_read_only:
        return
    late_s = max(LAG_S_MIN, LAG_INTERVALS * tier.task_interval_ms / 1000)
    if tier.lag_segments and tier.lag_ms / 1000 > late_s:
        yield warning(
            "copy-lag",
            f"broker {node_id} has {count(tier.lag_segments, 'segment')} ({size(tier.lag_bytes)}) that the store "
            f"lacks, the oldest for {span(tier.lag_ms / 1000)}",
            "if nothing else is said of the store, raise remote.log.manager.copier.thread.pool.size or "
            "remote.log.manager.copy.max.bytes.per.second: `strandline config set --all-brokers NAME=VALUE`",
        )
    if tier.checkpoint_message or tier.checkpoint_age_ms > CHECKPOINT_INTERVALS * max(
        tier.checkpoint_interval_ms, 1000
    ):
        why = f": {tier.checkpoint_message}" if tier.checkpoint_message else ""
        yield warning(
            "checkpoint",
            f"the last checkpoint of broker {node_id} in the object store is {span(tier.checkpoint_age_ms / 1000)} "
            f"behind, and {span(tier.checkpoint_interval_ms / 1000)} is set{why}",
            "`strandline storage restore` could not know newer segments; mend what is said of the store",
        )
