"""`strandline topic create`."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, admin_api, connect, kafka_api
from strandline.cli.common.failures import CommandFailed, NotFound, Unreachable, did_you_mean, from_kafka_error
from strandline.cli.common.key_values import key_values
from strandline.cli.common.options import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    DryRun,
    Timeout,
)
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.topic.topics import described_all, offset_ranges, topic_id

_POLL_S = 0.05


def create(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="The new topics.")],
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", metavar="N", min=-1, help="-1: the broker's default.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", "-r", metavar="N", min=-1, help="-1: the broker's default.")
    ] = -1,
    configs: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            "-c",
            metavar="KEY=VALUE",
            help="A topic setting. May be repeated.",
            autocompletion=completion.topic_settings,
        ),
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="A topic that is there is fine.")] = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Create topics and wait until they can be used."""
    settings = key_values(configs, option="--config")
    cluster = connect(bootstrap, properties, timeout)
    admin, output = cluster.admin(), Output(as_json=as_json)
    new = [
        admin_api().NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=settings)
        for name in dict.fromkeys(names)
    ]
    with cluster.errors("cannot create topics"):
        answers = admin.create_topics(new, operation_timeout=timeout, request_timeout=timeout, validate_only=dry_run)
    made, existing, failures = _outcomes(answers, cluster, settings, if_not_exists=if_not_exists)
    if dry_run:
        for name in answers:
            if name in made or name in existing:
                _tell_checked(output, name, existed=name in existing)
    else:
        topics = wait_usable(cluster, admin, made) | described_all(cluster, admin, existing)
        for name in answers:
            if name in topics:
                _tell_made(output, name, topics[name], existed=name in existing)
    output.flush()
    if failures:
        raise failures[0] if len(failures) == 1 else CommandFailed("; ".join(failure.message for failure in failures))


def _outcomes(
    answers: dict[str, Any], cluster: Cluster, settings: dict[str, str], *, if_not_exists: bool
) -> tuple[list[str], list[str], list[CommandFailed]]:
    """Which topics were made, which were there already, and why the others could not be made."""
    made, existing, failures = [], [], []
    for name, future in answers.items():
        try:
            future.result()
            made.append(name)
        except kafka_api().KafkaException as error:
            if error.args[0].name() == "TOPIC_ALREADY_EXISTS" and if_not_exists:
                existing.append(name)
            else:
                failures.append(_refusal(error.args[0], cluster, name, settings))
    return made, existing, failures


def _tell_checked(output: Output, name: str, *, existed: bool) -> None:
    if output.as_json:
        output.json_line({"topic": name, "valid": True, "existed": existed})
    else:
        output.line(f"{name} is there already" if existed else f"{name} could be created; nothing was changed")


def _tell_made(output: Output, name: str, topic: Any, *, existed: bool) -> None:
    partitions = len(topic.partitions)
    replicas = min((len(each.replicas) for each in topic.partitions), default=0)
    if output.as_json:
        made = {"topic": name, "topic_id": topic_id(topic), "partitions": partitions, "replication_factor": replicas}
        output.json_line(made | {"created": not existed})
    elif existed:
        output.line(f"{name} is there already, with {count(partitions, 'partition')}")
    else:
        output.line(f"created {name} with {count(partitions, 'partition')}, {count(replicas, 'replica')} each")


def _refusal(error: Any, cluster: Cluster, name: str, settings: dict[str, str]) -> CommandFailed:
    failure = from_kafka_error(error, bootstrap=cluster.bootstrap, doing=f"cannot create topic {name!r}")
    if error.name() == "TOPIC_ALREADY_EXISTS":
        failure.hint = f"see `strandline topic describe {name}`, or say --if-not-exists"
    elif error.name() == "INVALID_CONFIG":
        failure.hint = advice_on_settings(list(settings)) or failure.hint
    return failure


def advice_on_settings(names: list[str]) -> str:
    """Which name was probably meant, when one of them is unknown to us."""
    from strandline.cli.config.known_settings import topic_setting_names

    known = topic_setting_names()
    for name in names:
        if name not in known and (meant := did_you_mean(name, known)):
            return f"{meant} by {name!r}? `strandline config explain NAME` tells more"
    return ""


def wait_usable(cluster: Cluster, admin: Any, names: list[str]) -> dict[str, Any]:
    """Return the new topics, once every partition of them answers.

    Brokers learn of them after the controller has answered, and for a moment they name a leader that does not lead yet.
    """
    deadline = time.monotonic() + cluster.timeout_s
    while (topics := _usable(cluster, admin, names)) is None:
        if time.monotonic() > deadline:
            what = f"topic {names[0]!r} was" if len(names) == 1 else f"{len(names):,} topics were"
            raise Unreachable(f"{what} created, but cannot be used after {cluster.timeout_s:g} s")
        time.sleep(_POLL_S)
    return topics


def _usable(cluster: Cluster, admin: Any, names: list[str]) -> dict[str, Any] | None:
    try:
        topics = described_all(cluster, admin, names)
        ranges = offset_ranges(cluster, admin, topics.values())
    except NotFound:
        return None
    return topics if all(end is not None for _, end in ranges.values()) else None
