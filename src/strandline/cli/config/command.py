"""`strandline config get | set | unset`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.failures import CommandFailed, NotFound, UsageFailed, did_you_mean
from strandline.cli.common.key_values import key_values
from strandline.cli.common.options import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    DryRun,
    Timeout,
    Yes,
)
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import setting_value
from strandline.cli.config.access import SOURCES, ConfigValue, Target, read_entries
from strandline.cli.config.apply import apply_changes

OfTopic = Annotated[
    str | None,
    typer.Option("--topic", "-t", metavar="NAME", help="Of this topic.", autocompletion=completion.topic_names),
]
OfBroker = Annotated[int | None, typer.Option("--broker", metavar="ID", min=0, help="Of this broker.")]
OfBrokers = Annotated[bool, typer.Option("--all-brokers", help="Of all brokers together.")]
OfGroup = Annotated[
    str | None,
    typer.Option(
        "--group", "-g", metavar="NAME", help="Of this consumer group.", autocompletion=completion.group_names
    ),
]


def get(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Only these settings.", autocompletion=completion.setting_names),
    ] = None,
    topic: OfTopic = None,
    broker: OfBroker = None,
    all_brokers: OfBrokers = False,
    group: OfGroup = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Settings at their default, too.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show settings in force and where each comes from: those that were set, those named, or --all.

    Without --topic, --broker, --all-brokers or --group it is the broker, where the cluster has only one.
    """
    target = _target(topic, broker, all_brokers, group)
    cluster = connect(bootstrap, properties, timeout)
    admin = cluster.admin()
    target = target or only_broker(cluster, admin)
    entries = read_entries(cluster, admin, target)
    if entries is None:
        raise CommandFailed("this cluster does not offer DescribeConfigs")
    for name in names or []:
        if name not in entries:
            meant = did_you_mean(name, entries)
            raise NotFound(
                f"there is no setting {name!r} of {target}", hint=f"{meant}?" if meant else "see all with --all"
            )
    shown = [entry for entry in entries.values() if (entry.name in names if names else everything or entry.is_set)]
    output = Output(as_json=as_json)
    if as_json:
        for entry in shown:
            output.json_line(target.as_json() | entry_json(entry))
    elif shown:
        rows = [[e.name, _shown_value(e), setting_value(e.name, e.value), e.source_words] for e in shown]
        output.table(["setting", "value", "meaning", "set by"], rows)
    else:
        output.talk(f"{target}: nothing was set; see the defaults with --all")


def set_(
    settings: Annotated[
        list[str], typer.Argument(metavar="NAME=VALUE", autocompletion=completion.settings, help="What to set.")
    ],
    topic: OfTopic = None,
    broker: OfBroker = None,
    all_brokers: OfBrokers = False,
    group: OfGroup = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Set settings of a topic, a broker, all brokers or a group. What costs records is shown first, and asked for."""
    changed = key_values(settings, option="setting")
    _change(
        bootstrap, properties, timeout, _named(topic, broker, all_brokers, group), changed, [], as_json, dry_run, yes
    )


def unset(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME", help="What to unset.", autocompletion=completion.setting_names)
    ],
    topic: OfTopic = None,
    broker: OfBroker = None,
    all_brokers: OfBrokers = False,
    group: OfGroup = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Take settings back, so that the default holds again. A change that costs records is shown, and asked for."""
    target = _named(topic, broker, all_brokers, group)
    _change(bootstrap, properties, timeout, target, {}, names, as_json, dry_run, yes)


def _change(
    bootstrap: str,
    properties: list[str] | None,
    timeout: float,
    target: Target,
    changed: dict[str, str],
    unset_names: list[str],
    as_json: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    apply_changes(cluster, cluster.admin(), target, changed, unset_names, output, dry_run=dry_run, yes=yes)


def _target(topic: str | None, broker: int | None, all_brokers: bool, group: str | None) -> Target | None:
    chosen = []
    if topic is not None:
        chosen.append(Target("topic", topic))
    if broker is not None:
        chosen.append(Target("broker", str(broker)))
    if all_brokers:
        chosen.append(Target("brokers"))
    if group is not None:
        chosen.append(Target("group", group))
    if len(chosen) > 1:
        raise UsageFailed("choose one of --topic, --broker, --all-brokers and --group")
    return chosen[0] if chosen else None


def _named(topic: str | None, broker: int | None, all_brokers: bool, group: str | None) -> Target:
    target = _target(topic, broker, all_brokers, group)
    if target is None:
        raise UsageFailed(
            "whose setting?",
            hint="say --topic NAME, --broker ID, --all-brokers (the default for every one) or --group NAME",
        )
    return target


def only_broker(cluster: Cluster, admin: Any) -> Target:
    with cluster.errors("cannot list brokers"):
        brokers = sorted(admin.list_topics(timeout=cluster.timeout_s).brokers)
    if len(brokers) != 1:
        ids = ", ".join(str(number) for number in brokers)
        raise UsageFailed(f"the cluster has brokers {ids}", hint="choose one with --broker ID, or say --topic NAME")
    return Target("broker", str(brokers[0]))


def entry_json(entry: ConfigValue) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source_name,
        "read_only": entry.read_only,
        "sensitive": entry.sensitive,
        "synonyms": [
            {"name": name, "value": value, "source": SOURCES.get(source, ("UNKNOWN_CONFIG", ""))[0]}
            for name, value, source in entry.synonyms
        ],
    }


def _shown_value(entry: ConfigValue) -> str:
    return "(hidden)" if entry.sensitive else "" if entry.value is None else entry.value
