"""`strandline connect apply FILE`: connectors of a worker become those of a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.options import AsJson, Timeout, Yes
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.plans import confirm
from strandline.cli.connect.access import URL_DEFAULT, CaFile, TokenFile, WorkerUrl
from strandline.cli.connect.connector_files import read_connector_file
from strandline.cli.connect.worker_api import ConnectApi, checked_by_worker, sentence_of

HIDDEN: Final = "[hidden]"
"""What a worker shows for a password."""


def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Connectors: JSON, YAML or properties.")],
    yes: Yes = False,
    url: WorkerUrl = URL_DEFAULT,
    ca: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Create the connectors of a file, or change their settings, after a look at what that changes.

    Other connectors stay as they are. The worker resolves values such as ${env:PASSWORD}.
    """
    found = read_connector_file(file)
    api, output = ConnectApi(url, timeout, ca=ca, token_file=token_file), Output(as_json=as_json)
    if found.worker:
        output.talk(f"the settings of the worker in {file} are not sent: a worker has its own")
    plan: list[str] = []
    changed: list[tuple[str, bool]] = []
    for name, config in found.connectors.items():
        current = api.config(name)
        lines = changes(current, config)
        if current is None or lines:
            changed.append((name, current is None))
            plan += [f"{name} is created" if current is None else f"{name} changes", *(f"  {each}" for each in lines)]
    _check(api, file, {name: found.connectors[name] for name, _ in changed})
    if changed:
        confirm(output, plan, yes=yes, question="Apply it?", undone="nothing was changed")
    for name, _ in changed:
        api.ask("PUT", "connectors", name, "config", body=found.connectors[name])
    _show(output, list(found.connectors), dict(changed))


def _check(api: ConnectApi, file: Path, configs: Mapping[str, Mapping[str, str]]) -> None:
    """Have the worker validate all before the first is changed. Raise CommandFailed."""
    wrong = [
        f"{name}: {sentence_of(each)}" for name, config in configs.items() for each in checked_by_worker(api, config)
    ]
    if wrong:
        more = f" ({count(len(wrong) - 1, 'more error')})" if len(wrong) > 1 else ""
        raise CommandFailed(
            f"{file}: {wrong[0]}{more}; nothing was changed",
            hint=f"`strandline connect validate {file} --url {api.url}`",
        )


def changes(current: Mapping[str, str] | None, wanted: Mapping[str, str]) -> list[str]:
    """Return the settings that differ, one a line. A password cannot be compared, and is set again."""
    before = current or {}
    lines = []
    for name in sorted({*before, *wanted}):
        old, new = before.get(name), wanted.get(name)
        if old == new or (name == "name" and old is None):
            continue
        if old == HIDDEN and new is not None:
            lines.append(f"{name}: set again, because the worker does not show it")
        elif new is None:
            lines.append(f"{name}: {old} is taken away")
        elif old is None:
            lines.append(f"{name}: {_shown(name, new)}")
        else:
            lines.append(f"{name}: {old} becomes {_shown(name, new)}")
    return lines


def _shown(name: str, value: str) -> str:
    """Return a value of the file for the plan. Its class is not asked, so a name tells what is secret."""
    from strandline.connect.validation.masking import is_library_secret

    is_secret = any(each in name for each in ("password", "secret", "token", "credential", "jaas"))
    is_secret = is_secret or is_library_secret(name, value)
    return HIDDEN if is_secret and "${" not in value else value


def _show(output: Output, names: list[str], is_new: Mapping[str, bool]) -> None:
    for name in names:
        done = "unchanged" if name not in is_new else "created" if is_new[name] else "changed"
        if output.as_json:
            output.json_line({"connector": name, "outcome": done})
        else:
            output.line(f"{name}: {done}")
    output.flush()
