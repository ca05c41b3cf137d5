"""Security: which users there are, what they may do and why, and their quotas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from strandline.cli.acl.access import read_acls
from strandline.cli.acl.deciding import authorizer_of, read_config
from strandline.cli.common.plain_words import count
from strandline.cli.quota.access import open_quotas, read_quotas
from strandline.cli.quota.words import quota_words
from strandline.cli.user.credentials import read_users
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, PageModule, PageQuery, PageTable
from strandline.console.failures import PageFailed
from strandline.console.tables import TableHead
from strandline.errors import RequestError
from strandline.security.acl.access_rule import Acl, AclFilter, name_of
from strandline.security.acl.kinds import (
    CLUSTER_NAME,
    SUPPORTED,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from strandline.security.principal import parse_principal

SECURITY_S: Final = 10.0
NAME_MAX: Final = 250
KINDS: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.CLUSTER,
}
_OPTIONS: Final = {"topic": "--topic", "group": "--group", "transactional id": "--transactional-id"}
OPERATIONS: Final = {each.name.lower().replace("_", "-"): each for each in Operation if each > Operation.ALL}

USERS: Final = (
    TableHead("user", "User", "name"),
    TableHead("mechanisms", "Logs in with", "list"),
    TableHead("acls", "ACLs", "number", "That name the user; rules for every client are not counted"),
)
ACLS: Final = (
    TableHead("principal", "Principal", "name"),
    TableHead("permission", "May", "verdict"),
    TableHead("operation", "Operation"),
    TableHead("on", "On"),
    TableHead("name", "Name"),
    TableHead("host", "From", is_wide=True),
)
QUOTAS: Final = (
    TableHead("entity", "Whose", "name"),
    TableHead("quota", "Quota"),
    TableHead("value", "At most"),
)


async def security(context: PageContext) -> Mapping[str, Any]:
    """Answer who may do what, and why."""
    reading, shared = context.reading, context.reading.shared

    async def known(key: str, work: Any) -> Any:
        return await reading.know(("security", key), lambda: shared.in_thread(work), SECURITY_S)

    users = await reading.part("Users", known("users", lambda: read_users(shared.cluster)), None)
    acls = await reading.part("ACLs", known("acls", lambda: read_acls(shared.cluster, AclFilter())), None)
    quotas = await reading.part("Quotas", known("quotas", lambda: _quotas(context)), None)
    asked = _asked(context)
    return {
        "verdict": verdict(users, acls),
        "asked": asked,
        "fields": [
            {"name": "user", "label": "User", "value": asked["user"], "kind": "text"},
            {"name": "operation", "label": "May do", "value": asked["operation"], "choices": sorted(OPERATIONS)},
            {"name": "kind", "label": "With", "value": asked["kind"], "choices": list(KINDS)},
            {"name": "name", "label": "Name", "value": asked["name"], "kind": "text"},
        ],
        "decision": await reading.part("The explanation", _decision(context, asked), None) if asked["user"] else None,
        "users": context.table(
            USERS,
            [_user(name, mechanisms, acls or []) for name, mechanisms in (users or {}).items()],
            caption="Users",
            name="users",
            searched=("user",),
            sort="user",
            empty="There is no user with SCRAM." if users is not None else "Users cannot be read.",
        ),
        "acls": context.table(
            ACLS,
            [_acl(each) for each in acls or []],
            caption="ACLs",
            name="acls",
            searched=("principal", "operation", "on", "name", "permission"),
            sort="principal",
            empty="There are no ACLs." if acls is not None else "ACLs cannot be read.",
        ),
        "quotas": context.table(
            QUOTAS,
            quotas or [],
            caption="Quotas",
            name="quotas",
            searched=("entity", "quota"),
            sort="entity",
            empty="There are no quotas." if quotas is not None else "Quotas cannot be read.",
        ),
    }


def verdict(users: Mapping[str, Any] | None, acls: list[Acl] | None) -> dict[str, str]:
    """Return the answer in one sentence, and its level."""
    if acls is None:
        return {"level": "unknown", "text": "It is not known who may do what: the notes say why."}
    people = count(len(users), "user") if users is not None else "users that are not told"
    refused = sum(each.permission == Permission.DENY for each in acls)
    more = f", {refused:,} of which deny" if refused else ""
    return {"level": "ok", "text": f"{people[:1].upper()}{people[1:]}, and {count(len(acls), 'ACL')}{more}."}


def _user(name: str, mechanisms: Mapping[str, int], acls: list[Acl]) -> dict[str, Any]:
    return {
        "user": name,
        "mechanisms": sorted(mechanisms),
        "acls": sum(each.principal == f"User:{name}" for each in acls),
    }


def _acl(acl: Acl) -> dict[str, Any]:
    is_prefix = acl.pattern_type == PatternType.PREFIXED
    return {
        "principal": acl.principal,
        "permission": "ok" if acl.permission == Permission.ALLOW else "denied",
        "operation": name_of(Operation, acl.operation),
        "on": name_of(ResourceType, acl.resource_type).lower().replace("_", " "),
        "name": acl.name + (WILDCARD if is_prefix else ""),
        "host": "anywhere" if acl.host == WILDCARD else acl.host,
    }


def _quotas(context: PageContext) -> list[dict[str, str]]:
    with open_quotas(context.reading.cluster) as conversation:
        found = read_quotas(conversation, None, exactly=False)
    return [
        {"entity": str(entity), "quota": key, "value": quota_words(key, value)}
        for entity, quotas in found.items()
        for key, value in sorted(quotas.items())
    ]


# May alice read orders, and why?


def _asked(context: PageContext) -> dict[str, str]:
    given = {name: context.query.get(name, "").strip()[:NAME_MAX] for name in ("user", "name")}
    return {
        **given,
        "operation": context.choice("operation", ["read", *(each for each in sorted(OPERATIONS) if each != "read")]),
        "kind": context.choice("kind", list(KINDS)),
    }


async def _decision(context: PageContext, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return what is decided about a user, in a sentence, with the rule and the command that says the same."""
    kind, operation = KINDS[asked["kind"]], OPERATIONS[asked["operation"]]
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else asked["name"]
    if not name:
        raise PageFailed(400, f"Which {asked['kind']}?", "fill in its name")
    if not SUPPORTED[kind] >> operation & 1:
        raise PageFailed(400, f"A {asked['kind']} has no operation {asked['operation']}")
    principal = asked["user"] if ":" in asked["user"] else f"User:{asked['user']}"
    try:
        owner = parse_principal(principal)
    except RequestError as error:
        raise PageFailed(400, f"User: {error}") from None

    def decide() -> tuple[bool, str, bool]:
        cluster = context.reading.cluster
        config = read_config(cluster)
        found = read_acls(cluster, AclFilter(kind, PatternType.MATCH, name))
        decision = authorizer_of(found, config).explain(owner, WILDCARD, operation, kind, name)
        return decision.allowed, decision.rule, config.is_known

    is_allowed, rule, is_known = await context.reading.shared.in_thread(decide)
    what = "the cluster" if kind is ResourceType.CLUSTER else f"{asked['kind']} {name}"
    option = ["--cluster"] if kind is ResourceType.CLUSTER else [_OPTIONS[asked["kind"]], name]
    who = ["--principal", principal] if ":" in asked["user"] else ["--user", asked["user"]]
    may = "may" if is_allowed else "may not"
    return {
        "allowed": is_allowed,
        "level": "ok" if is_allowed else "problem",
        "text": f"{asked['user']} {may} {asked['operation']} {what}: {rule}.",
        "rule": rule,
        "note": "" if is_known else "The brokers do not say who their super users are; those may do everything.",
        "command": ["strandline", "acl", "explain", *who, "--operation", asked["operation"], *option],
    }


PAGE: Final = ConsolePage(
    name="security",
    path="/security",
    title="Security",
    question="Which users are there, what may they do, and why?",
    model=security,
    template="security.html",
    tables=(
        PageTable("users", USERS),
        PageTable("acls", ACLS),
        PageTable("quotas", QUOTAS),
    ),
    queries=(
        PageQuery("user", "May this user do that, and why?"),
        PageQuery("operation", "An operation, such as read"),
        PageQuery("kind", "topic, group, transactional id or cluster"),
        PageQuery("name", "The name of the resource"),
    ),
    group="Access",
)
MODULE: Final = PageModule(pages=(PAGE,))
