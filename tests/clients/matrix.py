"""The scenario table as it stands in `docs/clients.md`: `python -m tests.clients.matrix` prints it."""

from __future__ import annotations

from functools import partial

from tests.clients.scenarios import CLIENTS, SCENARIOS, Row


def matrix() -> str:
    """One line for each row, a mark for each client, and the reasons below."""
    reasons = sorted({(client, reason) for row in SCENARIOS.values() for client, reason in row.cannot.items()})
    notes = {each: f"[{number}]" for number, each in enumerate(reasons, 1)}
    lines = ["| scenario | " + " | ".join(CLIENTS) + " | what holds |", "|---" * (len(CLIENTS) + 2) + "|"]
    for name, row in SCENARIOS.items():
        marks = [notes[(client, row.cannot[client])] if client in row.cannot else "yes" for client in CLIENTS]
        lines.append(f"| {name} | {' | '.join(marks)} | {_promise(row)} |")
    lines.append("")
    lines += [f"- {note} {client} {reason}" for (client, reason), note in notes.items()]
    return "\n".join(lines) + "\n"


def _promise(row: Row) -> str:
    function = row.scenario.func if isinstance(row.scenario, partial) else row.scenario
    return (function.__doc__ or "").strip().splitlines()[0]


if __name__ == "__main__":
    print(matrix(), end="")
