"""Every finding about a cluster, by sections, for `doctor` and the console. It defines no command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from strandline.cli.cluster.judging import quorum_troubles
from strandline.cli.common.client import Cluster, admin_api, kafka_api
from strandline.cli.common.durability import Survival, survival
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.plain_words import count
from strandline.cli.doctor.cluster import (
    address_findings,
    broker_setting_findings,
    clock_findings,
    log_dir_findings,
    metadata_of,
    partition_findings,
    protocol_findings,
)
from strandline.cli.doctor.estate import estate_findings
from strandline.cli.doctor.findings import Finding, note, ok, problem, warning
from strandline.cli.doctor.queues import queue_findings
from strandline.cli.doctor.storage import storage_findings

_TOPICS_PER_REQUEST = 100
_NAMES_SHOWN = 3


def look_at_cluster(cluster: Cluster, tell: Callable[[str, Iterable[Finding]], None], *, grouped: bool) -> Any:
    """Tell each section of findings; return the metadata of the cluster, None if the check was cut short."""
    try:
        tell("the protocol", protocol_findings(cluster))
        admin = cluster.admin()
        metadata = metadata_of(cluster, admin)
        tell("the brokers", _broker_findings(cluster, admin, metadata))
        configs: dict[str, dict[str, str | None]] = {}
        survivals = topic_findings(cluster, admin, metadata, grouped=grouped, configs=configs)
        tell("what topics survive (acknowledged with acks=all)", survivals)
        tell("the six rules of a well-run estate (docs/advise.md)", estate_findings(cluster, metadata, configs))
    except CommandFailed as failure:
        # A check that cannot be made is a finding, too: the others were printed already.
        tell("the check was cut short", [problem("cluster", failure.message, failure.hint)])
        return None
    return metadata


def _broker_findings(cluster: Cluster, admin: Any, metadata: Any) -> Iterator[Finding]:
    yield from quorum_troubles(cluster)
    yield from address_findings(cluster, metadata)
    yield from partition_findings(metadata)
    yield from log_dir_findings(cluster, metadata)
    brokers = sorted(metadata.brokers.values(), key=lambda broker: int(broker.id))
    yield from storage_findings(cluster, [(broker.host, broker.port) for broker in brokers])
    yield from broker_setting_findings(cluster, admin, metadata)
    yield from clock_findings(cluster, admin, metadata)
    yield from queue_findings(cluster)


def topic_findings(
    cluster: Cluster, admin: Any, metadata: Any, *, grouped: bool, configs: dict[str, dict[str, str | None]]
) -> Iterator[Finding]:
    """Yield what each topic survives; for a person, one finding for all topics of the same terms.

    The settings of topics are kept in `configs`, because other findings need them, too.
    """
    names = sorted(name for name in metadata.topics if not name.startswith("__"))
    if not names:
        yield note("topics", "no topics yet")
        return
    groups: dict[tuple[str, str], list[tuple[str, Survival]]] = {}
    for name, settings in _configs_of(cluster, admin, names):
        if settings is None:
            yield note("topics", "the cluster does not offer DescribeConfigs: what topics survive cannot be said")
            return
        replicas = min((len(p.replicas) for p in metadata.topics[name].partitions.values()), default=0)
        configs[name] = settings
        found = survival(name, replicas, settings, brokers=len(metadata.brokers))
        group = (str(found), found.flaw) if grouped else (name, "")
        groups.setdefault(group, []).append((name, found))
    for members in groups.values():
        found = members[0][1]
        words = f"{_listed([name for name, _ in members])}: {found}"
        advice = found.advice if len(members) == 1 else found.advice.replace(f" {members[0][0]} ", " NAME ")
        if found.flaw:
            yield warning("topic", f"{words}. {_sentence(found.flaw)}", advice)
        else:
            yield ok("topic", words)


def _configs_of(cluster: Cluster, admin: Any, names: list[str]) -> Iterator[tuple[str, dict[str, str | None] | None]]:
    api, kafka = admin_api(), kafka_api()
    for begin in range(0, len(names), _TOPICS_PER_REQUEST):
        resources = [
            api.ConfigResource(api.ResourceType.TOPIC, name) for name in names[begin : begin + _TOPICS_PER_REQUEST]
        ]
        with cluster.errors("cannot read the settings of topics"):
            for resource, future in admin.describe_configs(resources, request_timeout=cluster.timeout_s).items():
                try:
                    yield resource.name, {key: entry.value for key, entry in future.result().items()}
                except kafka.KafkaException as error:
                    name = error.args[0].name()
                    if name in ("_UNSUPPORTED_FEATURE", "UNSUPPORTED_VERSION"):
                        yield resource.name, None
                    elif name != "UNKNOWN_TOPIC_OR_PART":  # Deleted meanwhile.
                        raise


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {count(len(names) - _NAMES_SHOWN, 'more topic')}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
