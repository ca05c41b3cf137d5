"""From plain words to ACLs and back: the options that name principals, resources and operations (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from strandline.cli.common import completion
from strandline.cli.common.failures import UsageFailed, did_you_mean
from strandline.cli.common.output import Output
from strandline.security.acl.access_rule import Acl, name_of
from strandline.security.acl.kinds import (
    CLUSTER_NAME,
    SUPPORTED,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

Names = list[str] | None

Users = Annotated[
    Names, typer.Option("--user", "-u", metavar="NAME", help="The user; '*' is every client. May be repeated.")
]
Principals = Annotated[
    Names, typer.Option("--principal", metavar="TYPE:NAME", help="As --user, for a principal of another type.")
]
Read = Annotated[
    Names,
    typer.Option(
        "--read",
        metavar="TOPIC",
        help="Read this topic; 'orders.*' is every topic that begins with 'orders.'. May be repeated.",
        autocompletion=completion.topic_names,
    ),
]
Write = Annotated[
    Names,
    typer.Option("--write", metavar="TOPIC", help="Write this topic. Likewise.", autocompletion=completion.topic_names),
]
Topics = Annotated[
    Names,
    typer.Option(
        "--topic", "-t", metavar="TOPIC", help="The topic of --operation.", autocompletion=completion.topic_names
    ),
]
Groups = Annotated[
    Names,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        help="Read as this group, or the group of --operation.",
        autocompletion=completion.group_names,
    ),
]
TransactionalIds = Annotated[
    Names,
    typer.Option(
        "--transactional-id", metavar="ID", help="Write with this transactional id, or the id of --operation."
    ),
]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Operations = Annotated[
    Names,
    typer.Option(
        "--operation",
        "-o",
        metavar="OPERATION",
        help="Kafka's name, as describe, create, delete, alter, alter-configs or all. May be repeated.",
    ),
]
Prefix = Annotated[bool, typer.Option("--prefix", help="The names are prefixes: 'orders.' is all that begin so.")]
Host = Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="Only from this IP address.")]
Plan = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]
Deny = Annotated[bool, typer.Option("--deny", help="Deny it. A denial wins over everything that is granted.")]


@dataclass(frozen=True)
class AclOptions:
    """Operations on resources, as the options name them, without a principal."""

    read: Sequence[str] = ()
    write: Sequence[str] = ()
    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    cluster: bool = False
    operations: Sequence[str] = ()
    is_prefix: bool = False

    def pairs(self) -> list[tuple[int, int, str, Operation]]:
        """Return resource type, pattern type, name and operation of each, once."""
        found = [(ResourceType.TOPIC, name, Operation.READ) for name in self.read]
        found += [(ResourceType.TOPIC, name, Operation.WRITE) for name in self.write]
        operations = [parse_operation(text) for text in self.operations]
        found += [(ResourceType.TOPIC, name, each) for name in self.topics for each in operations]
        # A consumer reads as its group, and a transactional producer writes with its id: the usual right of each.
        for resource_type, names, usual in (
            (ResourceType.GROUP, self.groups, Operation.READ),
            (ResourceType.TRANSACTIONAL_ID, self.transactional_ids, Operation.WRITE),
        ):
            found += [(resource_type, name, each) for name in names for each in operations or (usual,)]
        if self.cluster:
            found += [(ResourceType.CLUSTER, CLUSTER_NAME, each) for each in operations]
        if (self.topics or self.cluster) and not operations:
            option = "--topic" if self.topics else "--cluster"
            raise UsageFailed(
                f"{option} needs an operation", hint="say --operation describe, or --read TOPIC and --write TOPIC"
            )
        if operations and not (self.topics or self.groups or self.transactional_ids or self.cluster):
            raise UsageFailed(
                "the operation of what?", hint="say --topic NAME, --group NAME, --transactional-id ID or --cluster"
            )
        for resource_type, _, operation in found:
            _check_supported(resource_type, operation)
        return list(dict.fromkeys((kind, *pattern_of(kind, name, self.is_prefix), each) for kind, name, each in found))

    def acls(self, principals: Iterable[str], *, host: str | None, denies: bool) -> list[Acl]:
        permission = Permission.DENY if denies else Permission.ALLOW
        return [
            Acl(kind, pattern, name, principal, host or WILDCARD, operation, permission)
            for principal in principals
            for kind, pattern, name, operation in self.pairs()
        ]


def tell_outcome(output: Output, acl: Acl, outcome: str) -> None:
    """Print what became of an ACL."""
    if output.as_json:
        output.json_line(acl_json(acl) | {"outcome": outcome})
    else:
        output.line(f"{outcome}: {words_of(acl)}")


def principals_of(users: Names, principals: Names) -> list[str]:
    """Return the principals of --user and --principal."""
    for principal in principals or ():
        kind, _, name = principal.partition(":")
        if not kind or not name:
            raise UsageFailed(f"{principal!r} is no principal", hint="say for example --principal User:alice")
    for user in users or ():
        if not user:
            raise UsageFailed("a user has a name", hint="say for example --user alice")
    return list(dict.fromkeys([*(f"User:{name}" for name in users or ()), *(principals or ())]))


def require_principals(users: Names, principals: Names) -> list[str]:
    found = principals_of(users, principals)
    if not found:
        raise UsageFailed("which user?", hint="say --user NAME; --user '*' is every client")
    return found


def pattern_of(resource_type: int, name: str, is_prefix: bool) -> tuple[int, str]:
    """Return pattern type and name: `orders.*` and `--prefix` are prefixes, `*` alone is every name."""
    if not name:
        raise UsageFailed("a resource has a name", hint="'*' is every resource of its kind")
    if resource_type == ResourceType.CLUSTER:
        return PatternType.LITERAL, name
    if name != WILDCARD and (is_prefix or name.endswith(WILDCARD)):
        return PatternType.PREFIXED, name.removesuffix(WILDCARD)
    return PatternType.LITERAL, name


def parse_operation(text: str) -> Operation:
    """Return the operation of `describe-configs`, `DescribeConfigs` or `DESCRIBE_CONFIGS`."""
    names = {each.name.replace("_", "").lower(): each for each in Operation if each >= Operation.ALL}
    found = names.get(text.replace("-", "").replace("_", "").lower())
    if found is None:
        meant = did_you_mean(text.lower(), names)
        words = ", ".join(sorted(each.name.lower().replace("_", "-") for each in names.values()))
        raise UsageFailed(f"there is no operation {text!r}", hint=f"{meant}?" if meant else f"one of {words}")
    return found


def _check_supported(resource_type: ResourceType, operation: Operation) -> None:
    if operation == Operation.ALL or SUPPORTED[resource_type] >> operation & 1:
        return
    known = [each.name.lower().replace("_", "-") for each in Operation if SUPPORTED[resource_type] >> each & 1]
    kind = resource_type.name.lower().replace("_", " ")
    raise UsageFailed(f"a {kind} has no operation {operation.name}", hint=f"it has {', '.join(known)} and all")


# Back to words.


def words_of(acl: Acl) -> str:
    """Return one line about an ACL: `allow User:billing READ on topic 'orders'`."""
    verb = "allow" if acl.permission == Permission.ALLOW else "deny"
    return f"{verb} {str(acl).partition(' ')[2]}"


def acl_json(acl: Acl) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "permission": name_of(Permission, acl.permission),
        "operation": name_of(Operation, acl.operation),
        "resource_type": name_of(ResourceType, acl.resource_type),
        "pattern_type": name_of(PatternType, acl.pattern_type),
        "name": acl.name,
        "host": acl.host,
    }


def command_of(acls: Sequence[Acl]) -> str:
    """Return the `strandline acl grant` that creates these ACLs, which have one principal, host and permission."""
    first = acls[0]
    kind, _, name = first.principal.partition(":")
    words = ["--user", name] if kind == "User" else ["--principal", first.principal]
    for acl in acls:
        words += _resource_options(acl)
    if first.operation not in _SHORT.get(first.resource_type, {}):
        words += ["--operation", name_of(Operation, first.operation).lower().replace("_", "-")]
    if first.host != WILDCARD:
        words += ["--host", first.host]
    if first.permission == Permission.DENY:
        words.append("--deny")
    return shlex.join(["strandline", "acl", "grant", *words])


_SHORT: dict[int, dict[int, str]] = {
    ResourceType.TOPIC: {Operation.READ: "--read", Operation.WRITE: "--write"},
    ResourceType.GROUP: {Operation.READ: "--group"},
    ResourceType.TRANSACTIONAL_ID: {Operation.WRITE: "--transactional-id"},
}
_LONG: dict[int, str] = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
}


def has_short_words(acl: Acl) -> bool:
    """Return whether `grant` has words for the ACL that need no --operation."""
    return acl.operation in _SHORT.get(acl.resource_type, {})


def _resource_options(acl: Acl) -> list[str]:
    if acl.resource_type == ResourceType.CLUSTER:
        return ["--cluster"]
    option = _SHORT.get(acl.resource_type, {}).get(acl.operation) or _LONG[acl.resource_type]
    return [option, acl.name + (WILDCARD if acl.pattern_type == PatternType.PREFIXED else "")]
