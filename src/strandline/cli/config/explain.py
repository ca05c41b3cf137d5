"""`strandline config explain`: what a setting does, from the tables in the code; with a cluster, what is in force."""

from __future__ import annotations

import re
import textwrap
from typing import Annotated, Any

import typer

from strandline.cli.common import completion
from strandline.cli.common.client import connect
from strandline.cli.common.failures import CommandFailed, ExitCode, NotFound, did_you_mean
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import setting_value
from strandline.cli.config.access import SOURCES, ConfigValue, Target, read_entries
from strandline.cli.config.command import OfBroker, OfTopic, entry_json, only_broker
from strandline.cli.config.known_settings import Explained, explanations, setting_names

# Without a cluster the explanation is still good, so the cluster is not waited for as long as elsewhere.
TIMEOUT_S = 2.0
_WIDTH = 100


def explain(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME", help="The settings.", autocompletion=completion.setting_names),
    ],
    topic: OfTopic = None,
    broker: OfBroker = None,
    offline: Annotated[bool, typer.Option("--offline", help="Ask no cluster.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
    properties: ClientProperties = None,
) -> None:
    """Say what a setting does, its default, what is allowed, whether it is honoured, and how it can be changed.

    Works without a cluster. Where one can be reached, the value in force is added, and where it comes from.
    """
    known = {name: explanations(name) for name in dict.fromkeys(names)}
    output = Output(as_json=as_json)
    in_force = {} if offline else _in_force(output, known, topic, broker, bootstrap, properties, timeout)
    for name, found in known.items():
        entry = in_force.get(name)
        if not found and entry is None:
            meant = did_you_mean(name, setting_names())
            raise NotFound(
                f"no setting is called {name!r}",
                hint=f"{meant}?" if meant else "see them with `strandline config get --all`",
            )
        if as_json:
            output.json_line(
                {"name": name, "declared": [vars(each) for each in found], "in_force": entry and entry_json(entry)}
            )
        else:
            _show(output, name, found, entry)


def _in_force(
    output: Output,
    known: dict[str, list[Explained]],
    topic: str | None,
    broker: int | None,
    bootstrap: str,
    properties: list[str] | None,
    timeout: float,
) -> dict[str, ConfigValue]:
    """Return what a cluster says of the settings; nothing when there is none, unless one was asked for by name."""
    try:
        cluster = connect(bootstrap, properties, timeout)
        admin = cluster.admin()
        if topic is not None:
            target = Target("topic", topic)
        else:
            target = Target("broker", str(broker)) if broker is not None else only_broker(cluster, admin)
        entries = read_entries(cluster, admin, target) or {}
    except CommandFailed as failure:
        asked = topic is not None or broker is not None or bootstrap != BOOTSTRAP_DEFAULT
        if asked and failure.code != ExitCode.USAGE:
            raise
        return {}
    found = {}
    for name, explained in known.items():
        entry = entries.get(name)
        if entry is None:
            # A topic's setting has another name on a broker, and there it is the default of all topics.
            other = next((each for one in explained for each in one.broker_names if each in entries), None)
            entry = None if other is None or topic is not None else entries[other]
        if entry is not None:
            found[name] = entry
    return found


def _show(output: Output, name: str, found: list[Explained], entry: ConfigValue | None) -> None:
    output.line(name)
    for each in found:
        for label, text in _rows(each):
            _paragraph(output, label, text)
    if entry is not None:
        if not found and entry.documentation:
            _paragraph(output, "does", re.sub(r"<[^>]+>", "", entry.documentation))
        meaning = setting_value(entry.name, entry.value)
        value = "nothing" if entry.value is None else f"{entry.value}{f' ({meaning})' if meaning else ''}"
        under = "" if entry.name == name else f", under the name {entry.name}"
        _paragraph(output, "in force", f"{value}, set by: {entry.source_words}{under}")
        for synonym, synonym_value, source in entry.synonyms:
            by = SOURCES.get(source, ("", "unknown"))[1]
            _paragraph(output, "", f"{synonym}={synonym_value} ({by})")
    output.line("")


def _rows(each: Explained) -> list[tuple[str, str]]:
    rows = [("of", f"{each.owner}; {each.kind}")]
    if each.doc:
        rows.append(("does", each.doc))
    meaning = setting_value(each.name, each.default)
    default = "none" if each.default is None else f"{each.default or '(empty)'}{f' ({meaning})' if meaning else ''}"
    rows.append(("default", default))
    if each.allowed:
        rows.append(("allowed", each.allowed))
    if each.broker_names:
        rows.append(("broker's", f"{', '.join(each.broker_names)}: the default of all topics"))
    rows.append(("changed", each.update))
    rows.append(("honoured", each.verdict))
    if each.survives:
        rows.append(("survives", each.survives))
    return rows


def _paragraph(output: Output, label: str, text: str) -> None:
    lines: list[Any] = textwrap.wrap(text, _WIDTH - 12) or [""]
    for number, line in enumerate(lines):
        output.line(f"  {label if number == 0 else '':8}  {line}")
