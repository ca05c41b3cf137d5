"""The judgement of a workload: gates first, then forces, limits, figures and rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from strandline.advice.description import WorkloadProfile
from strandline.advice.forces import MOST, Force, Limit, forces_for, limits
from strandline.advice.gates import GateAnswer, WorkloadVerdict, gates
from strandline.advice.safe_operation import Rule, rules
from strandline.advice.sizing import Figure, sizing

SCORE_ENOUGH: Final = 3


@dataclass(frozen=True)
class Judgement:
    """What a workload should use, and why."""

    workload: str
    verdict: WorkloadVerdict
    sentence: str
    deciding: tuple[str, ...]
    advice: str
    gates: tuple[GateAnswer, ...]
    forces: tuple[Force, ...]
    limits: tuple[Limit, ...]
    figures: tuple[Figure, ...]
    rules: tuple[Rule, ...]

    @property
    def score(self) -> int:
        return sum(bool(force.holds) for force in self.forces)

    def as_json(self) -> dict[str, Any]:
        return {
            "workload": self.workload,
            "verdict": str(self.verdict),
            "is_log": self.verdict.is_log,
            "sentence": self.sentence,
            "deciding": list(self.deciding),
            "advice": self.advice or None,
            "gates": [
                {"gate": gate.name, "question": gate.question, "answer": gate.answer, "why": gate.why}
                for gate in self.gates
            ],
            "score": self.score,
            "score_most": MOST,
            "forces_for": [{"force": force.name, "holds": force.holds, "why": force.why} for force in self.forces],
            "forces_against": [
                {
                    "force": limit.name,
                    "class": str(limit.limit_class),
                    "why": limit.why,
                    "moved_by": limit.moved_by,
                }
                for limit in self.limits
            ],
            "sizing": [figure_json(figure) for figure in self.figures],
            "rules": [
                {
                    "rule": rule.number,
                    "text": rule.rule,
                    "state": str(rule.state),
                    "why": rule.why,
                    "advice": rule.advice or None,
                }
                for rule in self.rules
            ],
        }


def figure_json(figure: Figure) -> dict[str, Any]:
    return {
        "figure": figure.name,
        "value": figure.value,
        "shown": figure.shown,
        "formula": figure.formula,
        "inputs": [{"name": each.name, "value": each.value, "source": each.source} for each in figure.inputs],
        "lacks": list(figure.lacks),
    }


def judge_workload(workload: WorkloadProfile) -> Judgement:
    """Judge a workload. The first gate that is answered with yes decides; without one, the forces do."""
    asked = gates(workload)
    forces = forces_for(workload)
    verdict, sentence, deciding, advice = _decide(workload, asked, forces)
    return Judgement(
        workload.name,
        verdict,
        sentence,
        tuple(deciding),
        advice,
        tuple(asked),
        tuple(forces),
        tuple(limits(workload)),
        tuple(sizing(workload)),
        tuple(rules(workload)),
    )


_GATE_SENTENCES: Final = {
    WorkloadVerdict.DATABASE: "a database, fed by the log",
    WorkloadVerdict.RPC: "a call (RPC), not a log",
    WorkloadVerdict.ASYNC_JOB: "an asynchronous job with a correlation id and a store of results",
    WorkloadVerdict.SHARE_GROUP: "a share group, unless priority or routing is needed",
    WorkloadVerdict.KEYED_PARALLEL: "a log with a consumer that processes keys in parallel",
    WorkloadVerdict.ROUTING_BROKER: "a routing broker",
    WorkloadVerdict.MANAGED_QUEUE: "a managed queue or a table of jobs",
    WorkloadVerdict.LOG_ONE_PARTITION: "a log with one partition",
}


def _decide(
    workload: WorkloadProfile, asked: list[GateAnswer], forces: list[Force]
) -> tuple[WorkloadVerdict, str, list[str], str]:
    for gate in asked:
        if gate.answer and gate.verdict is not None:
            return gate.verdict, _GATE_SENTENCES[gate.verdict], [f"{gate.name} gate: {gate.why}"], gate.advice
    holding = {force.name: force for force in forces if force.holds}
    unknown = [gate.name for gate in asked if gate.answer is None]
    open_gates = f"; not answered: {_gates_words(unknown)}" if unknown else ""
    deciding = [f"{force.name}: {force.why}" for force in holding.values()]
    both = "replay" in holding and "fan-out" in holding
    if both or len(holding) >= SCORE_ENOUGH:
        key = f", key = {workload.key}" if workload.order == "key" and workload.key else ""
        clearly = ", clearly" if both and not unknown else ""
        if workload.current_state:
            sentence = f"a log{clearly}{key}; the current state in a view or a key-value store{open_gates}"
            advice = "`strandline view create` makes a compacted topic a view"
            return WorkloadVerdict.LOG_WITH_VIEW, sentence, deciding, advice
        return WorkloadVerdict.LOG, f"a log{clearly}{key}{open_gates}", deciding, ""
    lacking = [force.name for force in forces if force.holds is None]
    if unknown or lacking:
        said = [*(f"{name} gate" for name in unknown), *lacking]
        sentence = f"undecided: {len(holding)} of {MOST} forces are known to speak for a log"
        if not workload.is_described:
            sentence = "undecided: a running topic does not show what it is for"
        return WorkloadVerdict.UNDECIDED, sentence, deciding, f"describe in a file: {', '.join(said)}"
    sentence = "probably a queue: neither replay nor fan-out, and little else, speaks for a log"
    if "replay" in holding or "fan-out" in holding:
        sentence = f"a log works, and little speaks for it: {len(holding)} of {MOST} forces"
        return WorkloadVerdict.LOG, sentence, deciding, ""
    return WorkloadVerdict.QUEUE_SUSPECTED, sentence, deciding, "look at the queue gate again; a managed queue may do"


def _gates_words(names: list[str]) -> str:
    return f"the {' and '.join(names)} gate{'' if len(names) == 1 else 's'}"
