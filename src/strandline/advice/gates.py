"""Five questions that are asked before anything else. The first yes routes away from a plain log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from strandline.advice.description import WorkloadProfile
from strandline.documents.units import duration_words, record_rate_words

TINY_PER_S: Final = 1.0
"""Below this rate, with one reader and no replay, a log works and is not the simplest right tool."""
BLOCKING_MS: Final = 1_000
"""A caller that waits less than this needs an answer from a process that it calls, not from a log."""


class WorkloadVerdict(StrEnum):
    """What a workload should use: a stable word for scripts."""

    LOG = "log"
    LOG_WITH_VIEW = "log-with-view"
    LOG_ONE_PARTITION = "log-one-partition"
    DATABASE = "database-fed-by-log"
    RPC = "rpc"
    ASYNC_JOB = "async-job"
    SHARE_GROUP = "share-group"
    KEYED_PARALLEL = "key-ordered-parallel-consumer"
    ROUTING_BROKER = "routing-broker"
    MANAGED_QUEUE = "managed-queue-or-job-table"
    QUEUE_SUSPECTED = "probably-a-queue"
    UNDECIDED = "undecided"

    @property
    def has_topic(self) -> bool:
        """Return whether a topic is part of the answer, so that figures and rules for one matter."""
        return self not in (WorkloadVerdict.RPC, WorkloadVerdict.ROUTING_BROKER, WorkloadVerdict.MANAGED_QUEUE)

    @property
    def is_log(self) -> bool:
        return self in (WorkloadVerdict.LOG, WorkloadVerdict.LOG_WITH_VIEW, WorkloadVerdict.LOG_ONE_PARTITION)


@dataclass(frozen=True)
class GateAnswer:
    """One question with its answer; None means that the description does not say."""

    name: str
    question: str
    answer: bool | None
    why: str
    verdict: WorkloadVerdict | None = None
    advice: str = ""


def gates(workload: WorkloadProfile) -> list[GateAnswer]:
    """Ask all five in their order."""
    return [_store(workload), _reply(workload), _queue(workload), _tiny(workload), _order(workload)]


def _store(workload: WorkloadProfile) -> GateAnswer:
    question = "is the dominant access look-up by id, update in place, ad-hoc query or a life cycle per row?"
    if workload.access is None:
        return GateAnswer("store", question, None, "how records are found is not described (access)")
    if workload.access == "stream":
        return GateAnswer("store", question, False, "records are read in order, as they come")
    words = {
        "lookup": "records are looked up by id",
        "update": "rows are updated in place",
        "query": "records are found by ad-hoc queries",
        "row-lifecycle": "each row has a life cycle of its own",
    }
    return GateAnswer(
        "store",
        question,
        True,
        words[workload.access],
        WorkloadVerdict.DATABASE,
        "keep the changes on a topic, and serve reads from a database or a view that the topic feeds",
    )


def _reply(workload: WorkloadProfile) -> GateAnswer:
    question = "does a caller block for an answer?"
    if not workload.is_described:
        return GateAnswer("reply", question, None, "whether callers wait cannot be measured; see the anti-patterns")
    if workload.reply_within_ms is None:
        return GateAnswer("reply", question, False, "no caller waits (reply_within is not given)")
    waits = f"a caller waits {duration_words(workload.reply_within_ms)} for an answer"
    if workload.keep_requests and workload.reply_within_ms > BLOCKING_MS:
        advice = "write the request with a correlation id, answer at once with that id, and keep the result in a store"
        why = f"{waits}, and requests and results must be kept and replayed"
        return GateAnswer("reply", question, True, why, WorkloadVerdict.ASYNC_JOB, advice)
    why = (
        f"{waits}. A log adds two floors of latency (there and back), has no correlation of its own, and couples the "
        "two sides again"
    )
    return GateAnswer(
        "reply",
        question,
        True,
        why,
        WorkloadVerdict.RPC,
        "call the service, and write what it decided to a topic afterwards",
    )


def _queue(workload: WorkloadProfile) -> GateAnswer:
    question = "is each task acknowledged, retried or leased by itself, by more workers than partitions?"
    if not workload.is_described:
        return GateAnswer("queue", question, None, "what each record needs cannot be measured; see the anti-patterns")
    crowded = workload.workers and workload.partitions and workload.workers > workload.partitions
    inherent = [
        *(["strict priority lanes inside one stream"] if workload.priority else []),
        *(["routing by content to certain workers"] if workload.routing else []),
    ]
    if inherent:
        advice = "a routing broker; or a topic for each lane, if lanes are few and fixed"
        why = f"{' and '.join(inherent)}: a log does not look inside records and never reorders them (inherent)"
        return GateAnswer("queue", question, True, why, WorkloadVerdict.ROUTING_BROKER, advice)
    if not workload.per_record and not crowded:
        return GateAnswer("queue", question, False, "no acknowledgement, retry or lease for each record is asked for")
    reasons = [*workload.per_record, *([f"{workload.workers:,} workers"] if workload.workers else [])]
    wanted = f"each record is handled by itself ({', '.join(reasons)})"
    if workload.order == "key":
        advice = "a consumer that processes keys in parallel and commits the lowest finished offset"
        why = f"{wanted}, and in order for each key, which a share group does not keep"
        return GateAnswer("queue", question, True, why, WorkloadVerdict.KEYED_PARALLEL, advice)
    advice = (
        "a share group (KIP-932) on the topic, where the cluster serves them: at least once, without order; poison "
        "records go to a dead-letter topic. If priority or routing by content come in: a routing broker"
    )
    return GateAnswer("queue", question, True, wanted, WorkloadVerdict.SHARE_GROUP, advice)


def _tiny(workload: WorkloadProfile) -> GateAnswer:
    question = "is it some events a minute, for one consumer, without replay?"
    rate, readers = workload.records_per_s, workload.reader_count
    if rate is None or readers is None or workload.replay is None:
        lacking = [
            *(["write"] if rate is None else []),
            *(["readers"] if readers is None else []),
            *(["replay"] if workload.replay is None else []),
        ]
        decided = (rate is not None and rate >= TINY_PER_S) or (readers or 0) > 1 or bool(workload.replay)
        why = "rate, readers or replay speak against it" if decided else f"not described: {', '.join(lacking)}"
        return GateAnswer("tiny", question, False if decided else None, why)
    if rate < TINY_PER_S and readers <= 1 and not workload.replay:
        return GateAnswer(
            "tiny",
            question,
            True,
            f"{record_rate_words(rate)}, one consumer, no replay",
            WorkloadVerdict.MANAGED_QUEUE,
            "a managed queue or a table of jobs; a log works, and is not the simplest right tool",
        )
    against = [
        *([record_rate_words(rate)] if rate >= TINY_PER_S else []),
        *([f"{readers} readers"] if readers > 1 else []),
        *(["replay"] if workload.replay else []),
    ]
    return GateAnswer("tiny", question, False, ", ".join(against))


def _order(workload: WorkloadProfile) -> GateAnswer:
    question = "must everything be in one global order?"
    if workload.order is None:
        return GateAnswer("order", question, None, "order is not described")
    if workload.order != "global":
        words = "order for each key is enough" if workload.order == "key" else "no order is asked for"
        return GateAnswer("order", question, False, words)
    return GateAnswer(
        "order",
        question,
        True,
        "one global order over everything",
        WorkloadVerdict.LOG_ONE_PARTITION,
        "one partition, without parallelism; look again whether order for each key is enough: it nearly always is",
    )
