"""`strandline contract plan|apply|check|diff|alerts`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import CommandFailed, ExitCode, UsageFailed
from strandline.cli.common.options import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    MaybeRegistryUrl,
    Timeout,
    Yes,
)
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.contract.alerts import alert_rules
from strandline.cli.contract.contract_files import KINDS, document_of, read_contract
from strandline.cli.contract.kinds import Access, ContractStep
from strandline.cli.contract.own_rights import check_own_rights
from strandline.cli.contract.planning import PlanPrinter, access_to, make_plan, wait_applied
from strandline.cli.contract.readers_check import find_breakages

Files = Annotated[list[str], typer.Argument(metavar="FILE|DIR", help="Contracts in YAML; a directory is all below it.")]
Applier = Annotated[
    str | None,
    typer.Option("--principal", metavar="TYPE:NAME", help="Who this client is, where a certificate says so."),
]
AllowDestroy = Annotated[
    bool, typer.Option("--allow-destroy", help="Also take away and break what the plan names. --yes alone does not.")
]


def plan(
    files: Files,
    registry: MaybeRegistryUrl = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show the steps that would bring the cluster to what the contracts say, and change nothing.

    The cluster is asked whether it would accept each step. A step that cannot be done makes the exit code 1.
    """
    contract = read_contract(files)
    access = access_to(connect(bootstrap, properties, timeout), registry)
    steps = make_plan(access, contract)
    output = Output(as_json=as_json)
    PlanPrinter(output).show(steps, find_breakages(access, steps), access.notes)
    output.flush()
    _fail_refused(steps)


def apply(
    files: Files,
    yes: Yes = False,
    allow_destroy: AllowDestroy = False,
    principal: Applier = None,
    registry: MaybeRegistryUrl = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Bring the cluster to what the contracts say: shows the plan, asks, makes its steps, and looks whether they hold.

    It can be run again at any time, also after it was killed: it does what is left. Steps that take something away or
    break a reader need a yes of their own, or --allow-destroy. A plan that takes rights from the applier is refused.
    """
    contract = read_contract(files)
    access = access_to(connect(bootstrap, properties, timeout), registry)
    output = Output(as_json=as_json)
    steps = make_plan(access, contract)
    breakages = find_breakages(access, steps)
    if not as_json:
        PlanPrinter(output).show(steps, breakages, access.notes)
        output.flush()
    if not steps:
        return
    _fail_refused(steps)
    check_own_rights(access, steps, principal)
    _confirm(steps, [each.text for each in breakages], yes=yes, allow_destroy=allow_destroy)
    _make(output, access, steps)
    wait_applied(access, contract)
    if not as_json:
        output.line(f"applied {count(len(steps), 'step')}")


def check(
    files: Files,
    principal: Applier = None,
    registry: MaybeRegistryUrl = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Say whether the contracts could be applied without breaking a reader that is connected now; for CI.

    Exit code 5 if a step cannot be done, takes rights from the applier, or breaks a reader: deletes what a group has
    not read, adds partitions under a group that reads by key, takes rights that a connected group needs, deletes a
    topic that is read, or registers a schema whose records a reader with the last version cannot read.
    """
    contract = read_contract(files)
    access = access_to(connect(bootstrap, properties, timeout), registry)
    output = Output(as_json=as_json)
    steps = make_plan(access, contract)
    breakages = find_breakages(access, steps)
    PlanPrinter(output).show(steps, breakages, access.notes)
    output.flush()
    try:
        _fail_refused(steps)
        check_own_rights(access, steps, principal)
    except UsageFailed:
        raise
    except CommandFailed as failure:
        raise CommandFailed(failure.message, hint=failure.hint, code=ExitCode.UNHEALTHY) from None
    if breakages:
        raise CommandFailed(
            f"{count(len(breakages), 'reader')} would break",
            hint="let them catch up or stop them first, or change the contract",
            code=ExitCode.UNHEALTHY,
        )


def diff(
    files: Files,
    registry: MaybeRegistryUrl = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show how the cluster differs from the contracts (drift), and what is in no contract. Exit code 5 for drift."""
    contract = read_contract(files)
    access = access_to(connect(bootstrap, properties, timeout), registry)
    output = Output(as_json=as_json)
    steps = make_plan(access, contract)
    unmanaged = [name for kind in KINDS for name in kind.unmanaged(access, contract.of(kind))]
    PlanPrinter(output).differences(steps, unmanaged)
    output.flush()
    if steps:
        raise CommandFailed(
            f"the cluster differs from the contract in {count(len(steps), 'thing')}",
            hint="`strandline contract apply` brings it back; `strandline contract export` writes what is there",
            code=ExitCode.UNHEALTHY,
        )
    if not as_json:
        output.line("no drift: the cluster is as the contract says")


def alerts(files: Files) -> None:
    """Print rules for Prometheus: an alert for each lag objective of the contracts."""
    contract = read_contract(files)
    topics = [item.value for item in contract.items.get("topics", [])]
    rules = alert_rules(topics)
    output = Output()
    if not rules["groups"]:
        output.talk("no topic of these contracts has a lag objective (lag: {GROUP: 30s})")
    output.write(document_of(rules).encode())


def _fail_refused(steps: Sequence[ContractStep]) -> None:
    refused = [step for step in steps if step.refusal]
    if refused:
        raise CommandFailed(
            f"{count(len(refused), 'step')} cannot be done: {refused[0].name}: {refused[0].refusal}",
            hint="nothing was changed; correct the contract",
        )


def _confirm(steps: Sequence[ContractStep], breaks: Sequence[str], *, yes: bool, allow_destroy: bool) -> None:
    """Ask for the plan, and once more for what it takes away or breaks."""
    losses = [f"{step.action} {step.name} takes away: {loss}" for step in steps for loss in step.destroys]
    losses += breaks
    at_terminal = sys.stdin.isatty()
    if losses and not allow_destroy and (yes or not at_terminal):
        more = f"; and {len(losses) - 1:,} more" if len(losses) > 1 else ""
        raise UsageFailed(
            f"nothing was changed: {losses[0]}{more}",
            hint="read the plan, and say --allow-destroy to make such steps, too",
        )
    if yes:
        return
    if not at_terminal:
        raise UsageFailed("nothing was changed", hint="read the plan, and say --yes to apply it")
    if not typer.confirm(f"Apply {count(len(steps), 'step')}?", err=True):
        raise CommandFailed("nothing was changed")
    if losses and not allow_destroy:
        for words in losses:
            print(words, file=sys.stderr)
        if not typer.confirm("Do that, too?", err=True):
            raise CommandFailed("nothing was changed")


def _make(output: Output, access: Access, steps: Sequence[ContractStep]) -> None:
    for number, step in enumerate(steps):
        try:
            step.run()
        except CommandFailed as failure:
            raise CommandFailed(
                f"{step.action} {step.name}: {failure.message}; {count(number, 'step')} of {len(steps)} done before",
                hint=failure.hint or "run it again: it does what is left",
                code=failure.code,
            ) from None
        if output.as_json:
            output.json_line({**step.as_json(), "done": True})
        else:
            output.line(f"done: {step.action} {step.name}")
        output.flush()
