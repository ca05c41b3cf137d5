"""The group table as it stands in `docs/clients.md`: `python -m tests.clients.groups.matrix` prints it."""

from __future__ import annotations

from tests.clients.groups.stories import ROWS
from tests.clients.groups.variants import VARIANTS


def matrix() -> str:
    """One line for each story, a mark for each client with its protocol or assignor, and the reasons below."""
    reasons: dict[str, list[str]] = {}
    for row in ROWS.values():
        for variant in VARIANTS.values():
            reason = row.reason_against(variant.name, variant.client)
            if reason is not None and variant.name not in reasons.setdefault(reason, []):
                reasons[reason].append(variant.name)
    notes = {reason: f"[{number}]" for number, reason in enumerate(reasons, 1)}
    lines = ["| story | " + " | ".join(VARIANTS) + " | what holds |", "|---" * (len(VARIANTS) + 2) + "|"]
    for name, row in ROWS.items():
        marks = []
        for variant in VARIANTS.values():
            reason = row.reason_against(variant.name, variant.client)
            marks.append("yes" if reason is None else notes[reason])
        promise = (row.story.__doc__ or "").strip().splitlines()[0]
        lines.append(f"| {name} | {' | '.join(marks)} | {promise} |")
    lines.append("")
    lines += [f"- {note} {', '.join(reasons[reason])}: {reason}" for reason, note in notes.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(matrix(), end="")
