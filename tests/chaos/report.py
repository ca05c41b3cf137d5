"""What a run came to: printed for people, written as JSON beside the bench's results, kept in full if it failed."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.clusters import Cluster
from bench.environment import environment
from bench.measure import percentile
from rich.console import Console
from rich.table import Table
from tests.chaos.ground import HOME
from tests.chaos.nemesis import Nemesis
from tests.chaos.rounds import Round

from strandline.testing.history import save

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"
_STALL = re.compile(r"loop stalls above \d+ ms: (\d+)")
COMPLAINTS_SHOWN = 5


@dataclass
class Outcome:
    system: str
    seed: int
    session_ms: int
    rounds: list[Round] = field(default_factory=list)
    failure: str = ""
    """Why the run ended before its time, if it did."""
    stalls: int = 0
    complaints: Counter[str] = field(default_factory=Counter)
    """What the nodes logged as errors, numbers left out."""
    missing: list[str] = field(default_factory=list)
    kept: Path | None = None

    def look_at_logs(self, cluster: Cluster) -> None:
        for node in cluster.nodes:
            self.stalls += sum(int(count) for count in _STALL.findall(node.log_text()))
            self.complaints.update(re.sub(r"[0-9][0-9.,:-]*", "N", line)[:160] for line in node.complaints())

    def is_clean(self, nemesis: Nemesis) -> bool:
        return (
            not self.failure
            and bool(self.rounds)
            and not nemesis.unexpected_exits
            and all(each.is_clean for each in self.rounds)
        )

    def as_json(self, nemesis: Nemesis, arguments: list[str]) -> dict[str, Any]:
        faults = [fault for each in self.rounds for fault in each.faults]
        seconds = sum(each.seconds for each in self.rounds)
        return {
            "environment": {**environment([]), "command": f"python -m tests.chaos {' '.join(arguments)}".strip()},
            "system": self.system,
            "seed": self.seed,
            "session_ms": self.session_ms,
            "clean": self.is_clean(nemesis),
            "failure": self.failure,
            "minutes": round(seconds / 60, 1),
            "rounds": len(self.rounds),
            "faults": len(faults),
            "faults_by_kind": dict(Counter(fault.kind for fault in faults)),
            "seconds_per_fault": round(seconds / max(1, len(faults)), 1),
            "faults_on_leaders": sum(fault.hit_a_leader for fault in faults),
            "faults_aimed_at_leaders": sum(fault.role != "any" for fault in faults),
            "faults_on_the_controller": sum(fault.controlled for fault in faults),
            "leader_changes": nemesis.leader_changes,
            "controller_changes": nemesis.controller_changes,
            "acknowledged": sum(each.acknowledged for each in self.rounds),
            "unknown": sum(each.sends["info"] for each in self.rounds),
            "records_read": sum(each.report.reads for each in self.rounds),
            "commits": sum(each.commits["ok"] for each in self.rounds),
            "commits_refused": sum(each.commits["fail"] for each in self.rounds),
            **{
                f"transactions_{word}": sum(each.transactions[outcome] for each in self.rounds)
                for outcome, word in (("ok", "committed"), ("fail", "aborted"), ("info", "unknown"))
            },
            "workers": dict(sum((each.workers for each in self.rounds), Counter())),
            "longest_stall_s": round(max((each.longest_stall_s for each in self.rounds), default=0.0), 1),
            "stalls": [stall for each in self.rounds for stall in each.stalls],
            "worker_complaints": [words for each in self.rounds for words in each.worker_complaints],
            "hanging_clients": [words for each in self.rounds for words in each.hanging_clients],
            "anomalies": dict(sum((each.report.counts for each in self.rounds), Counter())),
            "producers_given_up": [error for each in self.rounds for error in each.fatal_errors],
            "cleaned_wrong": [words for each in self.rounds for words in each.cleaned_wrong],
            "table_passes": sum(each.table_passes for each in self.rounds),
            "groups_behind": [group for each in self.rounds for group in each.groups_behind],
            "unexpected_exits": nemesis.unexpected_exits,
            "unavailable_s": self.unavailability(),
            "remarks": [f"{fault.kind}: {fault.remark}" for fault in faults if fault.remark],
            "loop_stalls": self.stalls,
            "logged_errors": dict(self.complaints.most_common(20)),
            "not_done": self.missing,
        }

    def unavailability(self) -> dict[str, dict[str, float]]:
        """Seconds without an acknowledgement on some partition, by kind of fault."""
        by_kind: dict[str, list[float]] = {"all": []}
        for each in self.rounds:
            for fault, silence_s in zip(each.faults, each.silences_s, strict=True):
                by_kind.setdefault(fault.kind, []).append(silence_s)
                by_kind["all"].append(silence_s)
        return {
            kind: {
                "count": len(found),
                "p50": round(percentile(found, 50), 2),
                "p99": round(percentile(found, 99), 2),
                "max": round(max(found), 2),
            }
            for kind, found in by_kind.items()
            if found
        }


def show(outcome: Outcome, result: dict[str, Any], console: Console) -> None:
    table = Table(title=f"Chaos: {outcome.system}, seed {outcome.seed}", header_style="bold")
    table.add_column("fault")
    for heading in ("times", "p50 s", "p99 s", "longest s"):
        table.add_column(heading, justify="right")
    for kind, spans in sorted(result["unavailable_s"].items(), key=lambda item: (item[0] == "all", item[0])):
        table.add_row(
            kind, f"{spans['count']:.0f}", f"{spans['p50']:.1f}", f"{spans['p99']:.1f}", f"{spans['max']:.1f}"
        )
    console.print(table)
    console.print(
        "(seconds in which some partition acknowledged nothing; a fault that is held counts as long as it is)"
    )
    for name in (
        "minutes",
        "faults",
        "seconds_per_fault",
        "faults_on_leaders",
        "faults_aimed_at_leaders",
        "faults_on_the_controller",
        "leader_changes",
        "controller_changes",
        "acknowledged",
        "unknown",
        "records_read",
        "commits",
        "commits_refused",
        "transactions_committed",
        "transactions_aborted",
        "transactions_unknown",
        "longest_stall_s",
        "loop_stalls",
    ):
        console.print(f"{name.replace('_', ' '):26} {result[name]:,}", highlight=False)
    wrong = (
        *result["unexpected_exits"],
        *result["producers_given_up"],
        *result["groups_behind"],
        *result["stalls"],
        *result["worker_complaints"],
        *result["hanging_clients"],
    )
    for each in (*outcome.missing, *result["remarks"], *wrong):
        console.print(f"- {each}", style="yellow", markup=False)
    for line, count in outcome.complaints.most_common(COMPLAINTS_SHOWN):
        console.print(f"- logged {count} times: {line}", style="dim", markup=False)
    for each in outcome.rounds:
        if not each.is_clean:
            console.print(f"{each.topic}: {each.report}", style="red", markup=False)
    if outcome.failure:
        console.print(f"The run broke: {outcome.failure}", style="red", markup=False)
    if outcome.kept is not None:
        console.print(f"kept: {outcome.kept}")
    verdict = "No anomalies." if result["clean"] else "NOT CLEAN."
    console.print(verdict, style="bold green" if result["clean"] else "bold red", markup=False)


def write(outcome: Outcome, result: dict[str, Any]) -> Path:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H%M")
    commit = re.sub(r"[^A-Za-z0-9]+", "-", result["environment"]["commit"])
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"chaos-{now}-{commit}-{outcome.system}.json"
    root = RESULTS.parent.parent
    path.write_text((json.dumps(result, indent=1) + "\n").replace(f"{root}/", ""))
    return path


def keep(outcome: Outcome, cluster: Cluster, nemesis: Nemesis) -> None:
    """Copies what is needed to understand a failure out of the directory that is about to be removed."""
    directory = HOME / f"kept-{datetime.now(UTC).strftime('%Y-%m-%dT%H%M%S')}"
    for node in cluster.nodes:
        (directory / f"node-{node.node_id}").mkdir(parents=True)
        for path in (*node.log_files, node.config):
            if path.exists():
                shutil.copyfile(path, directory / f"node-{node.node_id}" / path.name)
    (directory / "faults.json").write_text(json.dumps([fault.as_json() for fault in nemesis.done], indent=1))
    for each in outcome.rounds:
        if not each.is_clean:
            with (directory / f"{each.topic}.jsonl").open("w") as file:
                save(each.ops, file)
    outcome.kept = directory
