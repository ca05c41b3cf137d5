"""What a shell may offer while a command is typed: what the cluster has by name, and names of settings.

A person waits for it with a finger on the key, so the cluster gets half a second, and every failure is silence.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import typer

from strandline.cli.common.failures import CommandFailed

if TYPE_CHECKING:
    from strandline.cli.common.client import Cluster

PATIENCE_S = 0.5
BOOTSTRAP_DEFAULT = "127.0.0.1:9092"


def _cluster(ctx: typer.Context) -> Cluster:
    """Connect to the cluster that the options of the command line name so far."""
    from strandline.cli.common.client import connect
    from strandline.cli.common.command_config import choose_file

    given: dict[str, Any] = ctx.params
    choose_file(given)
    bootstrap = given.get("bootstrap") or os.environ.get("STRANDLINE_BOOTSTRAP") or BOOTSTRAP_DEFAULT
    return connect(bootstrap, list(given.get("properties") or []), PATIENCE_S)


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    try:
        cluster = _cluster(ctx)
        with cluster.errors("cannot list topics"):
            names = cluster.admin().list_topics(timeout=PATIENCE_S).topics
    except CommandFailed:
        return []
    return sorted(name for name in names if name.startswith(incomplete) and _wanted(name, incomplete))


def group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    from strandline.cli.group.reading import read_groups

    try:
        groups = read_groups(_cluster(ctx), with_members=False)
    except CommandFailed:
        return []
    return [group.group_id for group in groups if group.group_id.startswith(incomplete)]


def transactional_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    from strandline.cli.txn.reading import read_transactions, require_spoken

    try:
        cluster = _cluster(ctx)
        require_spoken(cluster)
        known = read_transactions(cluster).transactions
    except CommandFailed:
        return []
    return [each.transactional_id for each in known if each.transactional_id.startswith(incomplete)]


def _wanted(name: str, incomplete: str) -> bool:
    return not name.startswith("__") or incomplete.startswith("_")


def topic_settings(incomplete: str) -> list[str]:
    """Names of topic settings, with the `=` that follows them."""
    from strandline.cli.config.known_settings import topic_setting_names

    return [f"{name}=" for name in topic_setting_names() if name.startswith(incomplete)]


def topic_setting_names(incomplete: str) -> list[str]:
    from strandline.cli.config.known_settings import topic_setting_names

    return [name for name in topic_setting_names() if name.startswith(incomplete)]


def setting_names(incomplete: str) -> list[str]:
    from strandline.cli.config.known_settings import setting_names

    return [name for name in setting_names() if name.startswith(incomplete)]


def settings(incomplete: str) -> list[str]:
    return [f"{name}=" for name in setting_names(incomplete)]
