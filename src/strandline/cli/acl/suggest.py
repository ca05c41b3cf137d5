"""`strandline acl suggest`: the ACLs that clients need, from the denials in a log."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.acl.rules import acl_json, command_of
from strandline.cli.acl.suggestions import may_be_suggested, suggested
from strandline.cli.common.failures import NotFound
from strandline.cli.common.options import AsJson
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.security.acl.denial_log import Denial, read_denial


def suggest(
    log: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The log of a node, as text or JSON. Default: stdin.")
    ] = None,
    prefixes: Annotated[
        bool, typer.Option("--prefixes", help="One rule for names that begin alike, as orders.eu and orders.us.")
    ] = False,
    hosts: Annotated[bool, typer.Option("--hosts", help="Only from the addresses that clients had.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the ACLs that clients need, as commands, from what `authorizer.mode=report` logged.

    Reads the log of Kafka's authorizer, too.
    """
    output = Output(as_json=as_json)
    denials = Counter(_denials(_lines(log)))
    usable = {denial: times for denial, times in denials.items() if may_be_suggested(denial)}
    for acls in suggested(usable, by_prefix=prefixes, by_host=hosts):
        if as_json:
            for acl, times in acls.items():
                output.json_line(acl_json(acl) | {"denials": times})
        else:
            output.line(command_of(list(acls)))
    for left in sorted(denials.keys() - usable.keys()):
        kind = left.resource_type.name.lower().replace("_", " ")
        output.talk(f"not suggested: {left.principal!r} {left.operation.name} on {kind} {left.name!r}")
    clients = len({denial.principal for denial in denials})
    output.talk(f"{count(denials.total(), 'denial')} of {count(clients, 'principal')}")


def _lines(log: Path | None) -> Iterator[str]:
    if log is None or str(log) == "-":
        yield from sys.stdin
        return
    try:
        with log.open(encoding="utf-8", errors="replace") as file:
            yield from file
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise NotFound(f"cannot read {log}: {reason}", hint="name the log of a node, or pipe it in") from None


def _denials(lines: Iterable[str]) -> Iterator[Denial]:
    for line in lines:
        denial = read_denial(line)
        if denial is not None:
            yield denial
