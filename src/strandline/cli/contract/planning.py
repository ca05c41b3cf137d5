"""Plans: the steps of all kinds in their order, and how they are shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from strandline.cli.common.client import Cluster
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.output import Output, colours_wanted
from strandline.cli.common.plain_words import count
from strandline.cli.contract.contract_files import KINDS, Contract
from strandline.cli.contract.kinds import Access, Action, ContractStep
from strandline.cli.contract.readers_check import Breakage

_SIGNS = {Action.CREATE: ("+", "32"), Action.CHANGE: ("~", "33"), Action.DELETE: ("-", "31")}
_LINES = {"+": "32", "-": "31"}
_POLL_S = 0.2
_RED, _CYAN = "31", "36"


def access_to(cluster: Cluster, registry_url: str | None) -> Access:
    return Access(cluster, cluster.admin(), registry_url=registry_url)


def make_plan(access: Access, contract: Contract) -> list[ContractStep]:
    """Return the steps from the cluster to the contract, in the order in which they must be done."""
    steps = [step for kind in KINDS for step in kind.steps(access, contract.of(kind))]
    return sorted(steps, key=lambda step: (step.turn, step.name))


def wait_applied(access: Access, contract: Contract) -> None:
    """Wait until the cluster shows what was applied: brokers follow the controller, which may be another node."""
    until = time.monotonic() + access.cluster.timeout_s
    while left := make_plan(replace(access, notes=[]), contract):
        if time.monotonic() > until:
            raise CommandFailed(
                f"the steps were made, and the cluster still differs: {left[0].action} {left[0].name}",
                hint="another client may have changed it meanwhile: run `strandline contract plan` again",
            )
        time.sleep(_POLL_S)


class PlanPrinter:
    """Prints steps for a person, or as JSON."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._colours = output.is_terminal and colours_wanted(sys.stdout)

    def show(self, steps: Sequence[ContractStep], breakages: Sequence[Breakage], notes: Sequence[str]) -> None:
        if self._output.as_json:
            for step in steps:
                self._output.json_line(step.as_json())
            for breakage in breakages:
                self._output.json_line(breakage.as_json())
            for note in notes:
                self._output.json_line({"note": note})
            return
        for step in steps:
            self._step(step)
        for breakage in breakages:
            self._output.hanging(self._coloured("breaks   ", _RED), " " * 9, breakage.text)
        for note in notes:
            self._output.hanging("note     ", " " * 9, note)
        self._output.line(self._summary(steps, breakages))

    def _step(self, step: ContractStep) -> None:
        sign, colour = _SIGNS[step.action]
        self._output.line(self._coloured(f"{sign} {step.action} {step.name}", colour))
        for detail in step.details:
            self._output.hanging("      ", " " * 8, str(detail))
        for loss in step.destroys:
            self._output.hanging(self._coloured("    ! takes away: ", _RED), " " * 8, loss)
        if step.refusal:
            self._output.hanging(self._coloured("    x cannot be done: ", _RED), " " * 8, step.refusal)
        self._output.line("")

    def _summary(self, steps: Sequence[ContractStep], breakages: Sequence[Breakage]) -> str:
        if not steps:
            return "nothing to do: the cluster is as the contract says"
        parts = [count(len(steps), "step")]
        destructive = sum(bool(step.destroys) for step in steps)
        if destructive:
            parts.append(f"{destructive} of them {'takes' if destructive == 1 else 'take'} something away")
        if breakages:
            parts.append(f"{count(len(breakages), 'reader')} would break")
        return ", ".join(parts)

    def differences(self, steps: Sequence[ContractStep], unmanaged: Sequence[str]) -> None:
        """Print how the cluster differs: what it has with -, what the contract says with +."""
        if self._output.as_json:
            for step in steps:
                self._output.json_line(step.as_json())
            for name in unmanaged:
                self._output.json_line({"unmanaged": name})
            return
        for step in steps:
            missing = {Action.CREATE: "is missing", Action.DELETE: "should not be there"}.get(step.action, "differs")
            self._output.line(f"{step.name} {missing}")
            for detail in step.details:
                if detail.before is None and detail.after is None:
                    sign, colour = _SIGNS[step.action]
                    # A line of a schema has its own sign.
                    text = detail.name if detail.name[:1] in "+-" else f"{sign} {detail.name}"
                    self._output.line(self._coloured(f"  {text}", _LINES.get(text[0], colour)))
                    continue
                if detail.before is not None:
                    self._output.line(self._coloured(f"  - {detail.name}: {detail.before}", _RED))
                if detail.after is not None:
                    self._output.line(self._coloured(f"  + {detail.name}: {detail.after}", "32"))
        for name in unmanaged:
            self._output.line(self._coloured(f"in no contract: {name}", _CYAN))

    def _coloured(self, text: str, colour: str) -> str:
        return f"\033[{colour}m{text}\033[0m" if self._colours else text
