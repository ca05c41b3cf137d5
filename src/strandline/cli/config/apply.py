"""Changing settings with a plan: what is in force, what comes, and what it costs. For `config` and `topic alter`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strandline.cli.common.client import Cluster
from strandline.cli.common.failures import CommandFailed, NotFound, did_you_mean
from strandline.cli.common.output import Output
from strandline.cli.common.plans import confirm
from strandline.cli.config.access import ConfigValue, Target, any_broker, read_entries, value_of, write_entries
from strandline.cli.config.changes import SettingChange, cost


def apply_changes(
    cluster: Cluster,
    admin: Any,
    target: Target,
    changed: Mapping[str, str],
    unset: Sequence[str],
    output: Output,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    entries = read_entries(cluster, admin, target)
    if entries is None:
        raise CommandFailed(
            "this cluster does not offer DescribeConfigs, so nothing was changed", hint="is it an old version?"
        )
    known = entries
    if target.kind == "brokers":
        # Only what was set is listed for all of them together; what could be set, any one of them knows.
        known = (read_entries(cluster, admin, any_broker(cluster)) or {}) | entries
    _check_names(target, [*changed, *unset], known)
    changes = [SettingChange(name, value_of(entries, name), value) for name, value in changed.items()]
    changes += [SettingChange(name, value_of(entries, name), None, _fallback(entries, target, name)) for name in unset]
    # Whatever the cluster refuses, it should refuse before a person is asked to confirm it.
    write_entries(cluster, admin, target, changed, unset, dry_run=True)
    plan = [f"{target}, {change}: {loss}" for change in changes if (loss := cost(change))]
    if plan and not dry_run:
        confirm(output, plan, yes=yes, question="Change it?", undone="nothing was changed")
    if not dry_run:
        write_entries(cluster, admin, target, changed, unset)
    for change in changes:
        if output.as_json:
            fields = {"name": change.name, "before": change.before, "after": change.after, "dry_run": dry_run}
            output.json_line(target.as_json() | fields | {"cost": cost(change) or None})
        else:
            would = f" (not done; {cost(change) or 'nothing is lost by it'})" if dry_run else ""
            output.line(f"{target}: {change}{would}")


def _fallback(entries: Mapping[str, ConfigValue], target: Target, name: str) -> tuple[str, str | None] | None:
    return entries[name].fallback(target) if name in entries else None


def _check_names(target: Target, names: Sequence[str], entries: Mapping[str, ConfigValue]) -> None:
    """Unknown names are caught here, because a broker says less about them, or nothing at all."""
    for name in names:
        # A setting of one listener is known only to the broker that has that listener.
        if name not in entries and not name.startswith("listener.name."):
            meant = did_you_mean(name, entries)
            raise NotFound(
                f"there is no setting {name!r} of {target}",
                hint=f"{meant}?" if meant else f"see them with `strandline config get {_option(target)} --all`",
            )
        if name in entries and entries[name].read_only:
            raise CommandFailed(
                f"{name} of {target} is read-only while the broker runs",
                hint="set it in server.properties, or with -X at the start, and restart the broker",
            )


def _option(target: Target) -> str:
    return "--all-brokers" if target.kind == "brokers" else f"--{target.kind} {target.name}"
