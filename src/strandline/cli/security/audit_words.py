"""Lines of the audit topic, in plain words."""

from __future__ import annotations

import time
from typing import Any, Final

from strandline.cli.common.plain_words import count

_OF_AUDIT: Final = {
    "started": "node {node} began to write",
    "stopped": "node {node} stopped; all before is written",
    "lost": "node {node} could not keep {lines}",
}


def in_words(line: dict[str, Any]) -> str:
    """Return the line as a person reads it. Clients choose much of it, so nothing in it can steer a terminal."""
    said = f"{_moment(line)}  {line.get('outcome', '?'):8} {sentence_of(line)}"
    times = line.get("count", 1)
    if times > 1 and line.get("type") != "audit":
        said += f" ({times} times since {_clock(line.get('first_ms', 0))})"
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in said)


def sentence_of(line: dict[str, Any]) -> str:
    """Return what happened, without its time. Clients choose much of it."""
    client = str(line.get("principal") or "an unknown client")
    if line.get("host"):
        client += f" at {line['host']}"
    kind, outcome = line.get("type"), line.get("outcome")
    resource = " ".join(filter(None, (str(line.get("resource_type", "")).lower(), str(line.get("resource", "")))))
    error = f": {line['error']}" if line.get("error") else ""
    if kind == "login":
        how = " ".join(
            filter(None, (f"with {line['mechanism']}" if line.get("mechanism") else "", f"at {line.get('listener')}"))
        )
        return f"{client} {'logged in' if outcome == 'success' else 'failed to log in'} {how}{error}"
    if kind == "denial":
        verb = "would be denied" if outcome == "reported" else "was denied"
        return f"{client} {verb} {line.get('operation')} on {resource} ({line.get('api')})"
    if kind == "audit":
        form = _OF_AUDIT.get(str(outcome), "node {node}: {outcome}")
        return form.format(node=line.get("node"), outcome=outcome, lines=count(line.get("count", 1), "line"))
    if kind == "anchor":
        told = line.get("details") or {}
        begins = "begins" if told.get("begins") else "is anchored"
        return f"the chain of {resource} partition {told.get('partition')} {begins} at offset {told.get('offset')}"
    details = ", ".join(f"{name}={value}" for name, value in (line.get("details") or {}).items())
    return f"{client}: {line.get('api')} {resource}{f' ({details})' if details else ''}{error}"


def _moment(line: dict[str, Any]) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.get("time_ms", 0) / 1000))


def _clock(at_ms: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_ms / 1000))
