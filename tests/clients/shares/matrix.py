"""The table of share consumers in `docs/queues.md`: `python -m tests.clients.shares.matrix` prints it."""

from __future__ import annotations

from tests.clients.shares.stories import ROWS
from tests.clients.shares.variants import CLIENTS


def matrix() -> str:
    """One line for each story, a mark for each client, and the reasons below."""
    reasons = list(dict.fromkeys((name, why) for row in ROWS.values() for name, why in row.cannot.items()))
    lines = ["| story | " + " | ".join(CLIENTS) + " | what holds |", "|---" * (len(CLIENTS) + 2) + "|"]
    for title, row in ROWS.items():
        marks = [
            f"[{reasons.index((name, row.cannot[name])) + 1}]" if name in row.cannot else "yes" for name in CLIENTS
        ]
        promise = (row.story.__doc__ or "").strip().splitlines()[0]
        lines.append(f"| {title} | {' | '.join(marks)} | {promise} |")
    lines.append("")
    lines += [f"- [{number}] {name}: {why}" for number, (name, why) in enumerate(reasons, 1)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(matrix(), end="")
