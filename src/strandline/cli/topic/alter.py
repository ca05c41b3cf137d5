"""`strandline topic alter`: more partitions, other settings, another kind of storage."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, admin_api, connect
from strandline.cli.common.failures import CommandFailed, UsageFailed
from strandline.cli.common.key_values import key_values
from strandline.cli.common.options import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    DryRun,
    Timeout,
    TopicName,
    Yes,
)
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.config.access import Target
from strandline.cli.config.apply import apply_changes
from strandline.cli.topic.storage_kind import StorageKind, change_storage
from strandline.cli.topic.topics import described


def alter(
    name: TopicName,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", metavar="N", min=1, help="So many in total; they can only become more."),
    ] = None,
    configs: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            "-c",
            metavar="KEY=VALUE",
            help="A setting to set. May be repeated.",
            autocompletion=completion.topic_settings,
        ),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            "--unset",
            metavar="KEY",
            help="A setting to give back to the brokers' default. May be repeated.",
            autocompletion=completion.topic_setting_names,
        ),
    ] = None,
    storage: Annotated[
        StorageKind | None,
        typer.Option(
            "--storage", help="Older segments in the object store, or all on the brokers' disks. Keeps all records."
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Change a topic: add partitions, set and unset settings, make it tiered or local.

    A change that costs records is shown, and asked for. If --storage local is interrupted, run it again: it goes on.
    """
    changed = key_values(configs, option="--config")
    if partitions is None and not changed and not unset and storage is None:
        raise UsageFailed(
            "nothing to change", hint="say --partitions N, --config KEY=VALUE, --unset KEY or --storage KIND"
        )
    if storage is not None and (unset or partitions is not None):
        raise UsageFailed("--storage goes with --config alone", hint="change the rest with a command of its own")
    cluster = connect(bootstrap, properties, timeout)
    admin, output = cluster.admin(), Output(as_json=as_json)
    before = len(described(cluster, admin, name).partitions)
    if partitions is not None and partitions < before:
        raise CommandFailed(
            f"topic {name!r} has {count(before, 'partition')}, which cannot become {partitions}",
            hint="partitions can only be added; for fewer, copy into a new topic: "
            f"strandline consume {name} --json | strandline produce NEW --from-json --repartition",
        )
    if storage is not None:
        change_storage(cluster, admin, name, storage, changed, output, dry_run=dry_run, yes=yes)
        output.flush()
        return
    # Settings first: they may need a yes, and without it nothing at all should have changed.
    if changed or unset:
        apply_changes(cluster, admin, Target("topic", name), changed, unset or [], output, dry_run=dry_run, yes=yes)
    if partitions is not None:
        _add_partitions(cluster, admin, name, before, partitions, output, dry_run)
    output.flush()


def _add_partitions(
    cluster: Cluster, admin: Any, name: str, before: int, total: int, output: Output, dry_run: bool
) -> None:
    done = "could have" if dry_run else "has"
    if total == before:
        output.talk(f"{name} has {count(total, 'partition')} already")
    else:
        with cluster.errors(f"cannot add partitions to {name!r}"):
            new = admin_api().NewPartitions(name, total)
            options = {"operation_timeout": cluster.timeout_s, "request_timeout": cluster.timeout_s}
            admin.create_partitions([new], validate_only=dry_run, **options)[name].result()
        output.talk("from now on a key may go to another partition than before: order holds within each only")
    if output.as_json:
        output.json_line({"topic": name, "partitions": total, "partitions_before": before, "dry_run": dry_run})
    elif total != before:
        output.line(f"{name} {done} {count(total, 'partition')} (before: {before:,})")
