"""Elects leaders: which partitions, the plan in words, and the request. It defines no command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from strandline.cli.cluster.state import ClusterState, PartitionState
from strandline.cli.common.client import Cluster, kafka_api
from strandline.cli.common.failures import CommandFailed, no_answer
from strandline.cli.common.plain_words import count

_NOT_NEEDED = "ELECTION_NOT_NEEDED"


def election_lines(chosen: list[PartitionState]) -> list[str]:
    lines = [f"{count(len(chosen), 'partition')} to give back"]
    return lines + [f"  {each.name}: led by {each.leader}, to be led by {each.preferred}" for each in chosen]


def unclean_lines(state: ClusterState, chosen: list[PartitionState]) -> list[str]:
    lines = [f"{count(len(chosen), 'partition')}: acknowledged records may be LOST FOR GOOD"]
    return lines + [
        f"  {each.name}: {state.why_offline(each)}; another of {each.replicas} takes over" for each in chosen
    ]


def elect_leaders(
    cluster: Cluster, chosen: list[PartitionState], *, unclean: bool
) -> dict[tuple[str, int], str | None]:
    """Ask for elections; return by partition None, or why the cluster refused."""
    kinds = kafka_api().ElectionType
    kind = kinds.UNCLEAN if unclean else kinds.PREFERRED
    wanted = [kafka_api().TopicPartition(each.topic, each.index) for each in chosen]
    admin: Any = cluster.admin()
    with cluster.errors("cannot elect leaders"):
        try:
            # Its own timeouts cannot be given: confluent-kafka 2.16 counts its arguments wrongly then.
            answers = admin.elect_leaders(kind, wanted).result(cluster.timeout_s)
        except TimeoutError:
            raise no_answer(cluster.bootstrap, "elections took longer than --timeout") from None
    return {
        (place.topic, place.partition): None if error is None or _error_name(error) == _NOT_NEEDED else str(error)
        for place, error in answers.items()
    }


def check_elected(outcome: Iterable[tuple[tuple[str, int], str | None]]) -> None:
    """Raise CommandFailed for partitions whose election was refused."""
    failed = [f"{topic}-{index}: {error}" for (topic, index), error in outcome if error is not None]
    if failed:
        more = f"; and {len(failed) - 1:,} more" if len(failed) > 1 else ""
        raise CommandFailed(f"not elected: {failed[0]}{more}", hint="`strandline cluster health` says why")


def _error_name(error: Any) -> str:
    """librdkafka gives an exception here, or its error, by version."""
    plain = error.args[0] if isinstance(error, BaseException) else error
    return str(plain.name())
