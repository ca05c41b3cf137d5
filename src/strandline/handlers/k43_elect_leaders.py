"""ElectLeaders (43), versions 0-2: elect the preferred replicas, or any live one where there is no leader.

Honoured: both kinds, a list of partitions or all of them; with all, the response lists only those that changed.
Answered when the elections are committed. The timeout is `broker/network/forwarding`'s.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.codec.messages.elect_leaders_request import ElectLeadersRequest
from strandline.codec.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from strandline.errors import ErrorCode, RequestError, error_code, error_message
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.refusals import refusal
from strandline.quorum.controller.elections import ELECT_PREFERRED, ELECT_UNCLEAN
from strandline.quorum.controller.submission import Outcomes

API_KEY = 43
VERSIONS = (0, 2)

ElectionOutcome = tuple[str, int, RequestError | None]


def handle(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse | None:
    asked = request.topic_partitions
    named = None if asked is None else [(each.topic, each.partitions) for each in asked]
    if request.election_type not in (ELECT_PREFERRED, ELECT_UNCLEAN):
        return _refused(context, request, f"Unknown election type {request.election_type}", ErrorCode.INVALID_REQUEST)

    def on_done(outcomes: Outcomes[ElectionOutcome | None]) -> None:
        failed = next((error for _, error in outcomes if error is not None), None)
        if failed is not None:
            # What of it reached the log is not known one by one.
            context.reply(_refused(context, request, error_message(failed), error_code(failed)))
        else:
            elections = iter([outcome for outcome, _ in outcomes if outcome is not None])
            context.reply(_all(elections) if named is None else _named(named, elections))

    try:
        decisions = context.node.controller.elections.decide(request.election_type, named)
    except RequestError as error:
        return _refused(context, request, error_message(error), error_code(error))
    context.node.controller.submit_all(decisions, on_done)
    return None


def _refused(context: RequestContext, request: ElectLeadersRequest, reason: str, code: int) -> ElectLeadersResponse:
    answer: ElectLeadersResponse = refusal(request, context.api_version, code, reason)
    return answer


def _named(named: list[tuple[str, list[int]]], elections: Iterator[ElectionOutcome]) -> ElectLeadersResponse:
    """Return the response for named partitions, each topic as often as it was named."""
    results = [
        ReplicaElectionResult(topic=topic, partition_result=[_result(*next(elections)[1:]) for _ in indexes])
        for topic, indexes in named
    ]
    return ElectLeadersResponse(replica_election_results=results)


def _all(elections: Iterator[ElectionOutcome]) -> ElectLeadersResponse:
    topics: dict[str, ReplicaElectionResult] = {}
    for topic, index, error in elections:
        topics.setdefault(topic, ReplicaElectionResult(topic=topic)).partition_result.append(_result(index, error))
    return ElectLeadersResponse(replica_election_results=list(topics.values()))


def _result(index: int, error: RequestError | None) -> PartitionResult:
    if error is None:
        return PartitionResult(partition_id=index, error_message=None)
    return PartitionResult(partition_id=index, error_code=error_code(error), error_message=error_message(error))
