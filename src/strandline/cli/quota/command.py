"""`strandline quota set | list | delete`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import CommandFailed, UsageFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, DryRun, Timeout, Yes
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.plans import confirm
from strandline.cli.quota.access import Quotas, change_quotas, open_quotas, read_quotas, wait_until_known
from strandline.cli.quota.words import OPTIONS, QuotaEntity, entity_of, parse_quota, quota_words
from strandline.config.quota_keys import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

User = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="The user; its quota is shared by all its clients.")
]
DefaultUser = Annotated[bool, typer.Option("--default-user", help="Every user that has no quota of its own.")]
ClientIdName = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="The client id.")]
DefaultClient = Annotated[bool, typer.Option("--default-client-id", help="Every client id without its own.")]
Address = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="The address.")]
DefaultAddress = Annotated[bool, typer.Option("--default-ip", help="Every address that has no quota of its own.")]


def set_(
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientIdName = None,
    default_client: DefaultClient = False,
    ip: Address = None,
    default_ip: DefaultAddress = False,
    produce: Annotated[
        str | None, typer.Option("--produce", metavar="RATE", help="Bytes a second to each broker, as 10MB/s.")
    ] = None,
    fetch: Annotated[
        str | None, typer.Option("--fetch", metavar="RATE", help="Bytes a second from each broker, as 20MB/s.")
    ] = None,
    requests: Annotated[
        str | None, typer.Option("--requests", metavar="SHARE", help="Share of a broker's time, as 50%.")
    ] = None,
    changes: Annotated[
        str | None,
        typer.Option("--changes", metavar="RATE", help="Partitions created or deleted a second, as 20/s."),
    ] = None,
    connections: Annotated[
        str | None,
        typer.Option("--connections", metavar="RATE", help="New connections a second of an address, as 10/s."),
    ] = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Set quotas of a user, a client id, both, or an address. Clients that run obey at once; quotas not named stay."""
    entity = _required(entity_of(user, default_user, client_id, default_client, ip, default_ip))
    given = {
        PRODUCER_BYTE_RATE: produce,
        CONSUMER_BYTE_RATE: fetch,
        REQUEST_PERCENTAGE: requests,
        CONTROLLER_MUTATION_RATE: changes,
        CONNECTION_CREATION_RATE: connections,
    }
    wanted = {key: parse_quota(key, text) for key, text in given.items() if text is not None}
    if not wanted:
        raise UsageFailed("nothing to set", hint="say for example --produce 10MB/s")
    cluster, output = connect(bootstrap, properties, timeout), Output(as_json=as_json)
    with open_quotas(cluster) as conversation:
        before = read_quotas(conversation, entity, exactly=True).get(entity, {})
        after = before | wanted
        change_quotas(conversation, entity, dict(wanted), dry_run=dry_run)
        if not dry_run:
            wait_until_known(conversation, entity, after, cluster.timeout_s)
    _tell(output, entity, before, after, dry_run=dry_run)
    output.flush()


def delete(
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientIdName = None,
    default_client: DefaultClient = False,
    ip: Address = None,
    default_ip: DefaultAddress = False,
    produce: Annotated[bool, typer.Option("--produce", help="Only that of bytes produced.")] = False,
    fetch: Annotated[bool, typer.Option("--fetch", help="Only that of bytes fetched.")] = False,
    requests: Annotated[bool, typer.Option("--requests", help="Only that of request time.")] = False,
    changes: Annotated[bool, typer.Option("--changes", help="Only that of changes of topics.")] = False,
    connections: Annotated[bool, typer.Option("--connections", help="Only that of new connections.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Delete quotas of a user, a client id, both, or an address: all, or those named. Shows them, and asks."""
    entity = _required(entity_of(user, default_user, client_id, default_client, ip, default_ip))
    flags = {
        PRODUCER_BYTE_RATE: produce,
        CONSUMER_BYTE_RATE: fetch,
        REQUEST_PERCENTAGE: requests,
        CONTROLLER_MUTATION_RATE: changes,
        CONNECTION_CREATION_RATE: connections,
    }
    named = {key for key, is_named in flags.items() if is_named}
    cluster, output = connect(bootstrap, properties, timeout), Output(as_json=as_json)
    with open_quotas(cluster) as conversation:
        before = read_quotas(conversation, entity, exactly=True).get(entity, {})
        chosen = {key: value for key, value in before.items() if not named or key in named}
        if not chosen:
            what = f" with {', '.join(OPTIONS[key] for key in sorted(named))}" if named else ""
            raise CommandFailed(f"{entity} has no quota{what}", hint="`strandline quota list` shows all")
        if not dry_run:
            plan = [f"delete {count(len(chosen), 'quota')} of {entity}; less specific ones hold then"]
            plan += [f"  {OPTIONS.get(key, key)} {quota_words(key, value)}" for key, value in sorted(chosen.items())]
            confirm(output, plan, yes=yes, question="Delete?", undone="nothing was deleted")
        after = {key: value for key, value in before.items() if key not in chosen}
        change_quotas(conversation, entity, dict.fromkeys(chosen), dry_run=dry_run)
        if not dry_run:
            wait_until_known(conversation, entity, after, cluster.timeout_s)
    _tell(output, entity, before, after, dry_run=dry_run)
    output.flush()


def list_quotas(
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientIdName = None,
    default_client: DefaultClient = False,
    ip: Address = None,
    default_ip: DefaultAddress = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """List quotas: of all, or of a user, client id or address, alone and together with others."""
    entity = entity_of(user, default_user, client_id, default_client, ip, default_ip)
    cluster, output = connect(bootstrap, properties, timeout), Output(as_json=as_json)
    with open_quotas(cluster) as conversation:
        found = read_quotas(conversation, entity, exactly=False)
    entities = sorted(found, key=str)
    if as_json:
        for each in entities:
            output.json_line({**each.as_json(), "quotas": found[each]})
    elif not found:
        output.talk("there are no quotas" if entity is None else f"{entity} has no quota")
    else:
        rows: list[list[object]] = [
            [str(each), OPTIONS.get(key, key).removeprefix("--"), quota_words(key, value)]
            for each in entities
            for key, value in sorted(found[each].items())
        ]
        output.table(["of", "quota", "limit"], rows)
    output.flush()


def _required(entity: QuotaEntity | None) -> QuotaEntity:
    if entity is None:
        hint = "say --user NAME, --client-id ID, --ip ADDRESS, or a default as --default-user"
        raise UsageFailed("the quota belongs to no one", hint=hint)
    return entity


def _tell(output: Output, entity: QuotaEntity, before: Quotas, after: Quotas, *, dry_run: bool) -> None:
    if output.as_json:
        told: dict[str, Any] = {**entity.as_json(), "before": before, "after": after, "dry_run": dry_run}
        output.json_line(told)
        return
    verb = "could have" if dry_run else "has"
    for key in sorted({*before, *after}):
        was, now = before.get(key), after.get(key)
        if was != now:
            words = "no limit" if now is None else quota_words(key, now)
            past = "no limit" if was is None else quota_words(key, was)
            output.line(f"{entity} {verb} {OPTIONS.get(key, key).removeprefix('--')}: {words} (before: {past})")
    if before == after:
        output.talk(f"{entity} has these quotas already")
