"""What a worker counts, as text for Prometheus."""

from __future__ import annotations

from typing import Final

from strandline.connect.herder.leaks import Usage
from strandline.connect.herder.worker import ConnectWorker
from strandline.connect.source import Source

_HELP: Final = {
    "records": "Records that a source has committed, or a sink has written.",
    "bytes": "Bytes of a source's keys and values.",
    "batches": "Batches of records.",
    "commits": "Transactions of a source, or commits of a sink's offsets.",
    "failures": "Records that could not be converted, transformed or written.",
    "skipped": "Those of them that were left out.",
    "dead_letters": "Those of them that were written to the topic of dead letters.",
    "retries": "Attempts to write again what the target could not take.",
}
_USAGE: Final = {
    "threads": "Python threads of the worker.",
    "files": "Open files and sockets of the worker.",
    "memory": "Resident memory of the worker in bytes.",
}


def metrics_text(worker: ConnectWorker) -> str:
    """Return the counters of all tasks that run here."""
    lines = []
    tasks = [(each.id, each.task) for each in worker.runners() if each.task is not None]
    for name, meaning in _HELP.items():
        metric = f"strandline_connect_task_{name}_total"
        lines += [f"# HELP {metric} {meaning}", f"# TYPE {metric} counter"]
        lines += [
            f"{metric}{_labels(task_id.connector, task_id.task)} {dict(task.metrics.items())[name]}"
            for task_id, task in tasks
        ]
    metric = "strandline_connect_task_lag"
    lines += [f"# HELP {metric} Offsets that a sink is behind.", f"# TYPE {metric} gauge"]
    for task_id, task in tasks:
        behind = task.lag()
        if behind is not None:
            lines.append(f"{metric}{_labels(task_id.connector, task_id.task)} {sum(behind.values())}")
    gauges: dict[str, list[str]] = {}
    for task_id, task in tasks:
        if isinstance(task.connector, Source):
            for name, number in task.connector.gauges().items():
                metric = f"strandline_connect_source_{name}"
                gauges.setdefault(metric, []).append(f"{metric}{_labels(task_id.connector, task_id.task)} {number}")
    for metric, values in gauges.items():
        lines += [f"# TYPE {metric} gauge", *values]
    for name, number in Usage.now()._asdict().items():
        metric = f"strandline_connect_worker_{name}"
        lines += [f"# HELP {metric} {_USAGE[name]}", f"# TYPE {metric} gauge", f"{metric} {number}"]
    metric = "strandline_connect_left_behind"
    lines += [f"# HELP {metric} What runs of a connector have left in the worker.", f"# TYPE {metric} gauge"]
    for (connector, kind), number in sorted(worker.leaks.left.items()):
        lines.append(f'{metric}{{connector="{_escaped(connector)}",kind="{kind}"}} {number}')
    return "\n".join(lines) + "\n"


def _labels(connector: str, task: int) -> str:
    return f'{{connector="{_escaped(connector)}",task="{task}"}}'


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
