"""`strandline connect restart`, `pause`, `resume`, `stop` and `delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT
from strandline.cli.common.options import AsJson, Timeout, Yes
from strandline.cli.common.output import Output
from strandline.cli.common.plans import confirm
from strandline.cli.connect.access import URL_DEFAULT, CaFile, ConnectorName, TokenFile, WorkerUrl
from strandline.cli.connect.worker_api import FAILED, ConnectApi, restart_units, set_state


def restart(
    name: ConnectorName,
    tasks: Annotated[bool, typer.Option("--tasks", help="Restart its tasks, too.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Restart only what has failed.")] = False,
    url: WorkerUrl = URL_DEFAULT,
    ca: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Restart a connector and its tasks that have failed; all tasks with --tasks, nothing else with --failed."""
    api, output = ConnectApi(url, timeout, ca=ca, token_file=token_file), Output(as_json=as_json)
    restarted = restart_units(api, name, tasks=tasks, failed=failed)
    if as_json:
        output.json_line({"connector": name, "restarted": restarted})
    elif restarted:
        output.line(f"{name} restarts: {', '.join(restarted)}")
    else:
        output.line(f"{name} has nothing to restart")
    output.flush()


def pause(
    name: ConnectorName,
    url: WorkerUrl = URL_DEFAULT,
    ca: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Pause a connector: its tasks stay where they are, and do nothing."""
    _set(ConnectApi(url, timeout, ca=ca, token_file=token_file), name, "pause", "PAUSED", as_json, timeout)


def resume(
    name: ConnectorName,
    url: WorkerUrl = URL_DEFAULT,
    ca: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Have a connector go on that was paused or stopped."""
    _set(ConnectApi(url, timeout, ca=ca, token_file=token_file), name, "resume", "RUNNING", as_json, timeout)


def stop(
    name: ConnectorName,
    url: WorkerUrl = URL_DEFAULT,
    ca: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Stop a connector: its tasks end, its config and positions stay."""
    _set(ConnectApi(url, timeout, ca=ca, token_file=token_file), name, "stop", "STOPPED", as_json, timeout)


def delete(
    name: ConnectorName,
    yes: Yes = False,
    url: WorkerUrl = URL_DEFAULT,
    ca: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Delete a connector. Its positions stay: another one of this name goes on there."""
    api, output = ConnectApi(url, timeout, ca=ca, token_file=token_file), Output(as_json=as_json)
    (found,) = api.connectors([name]).values()
    plan = [f"the connector {name} ({found['info']['config'].get('connector.class', 'unknown')}) is deleted"]
    plan += ["its positions stay, and a connector of the same name goes on there"]
    confirm(output, plan, yes=yes, question="Delete it?", undone="nothing was deleted")
    api.ask("DELETE", "connectors", name)
    if as_json:
        output.json_line({"connector": name, "deleted": True})
    else:
        output.line(f"{name} is deleted")
    output.flush()


def _set(api: ConnectApi, name: str, verb: str, wanted: str, as_json: bool, timeout_s: float) -> None:
    output = Output(as_json=as_json)
    told = set_state(api, name, verb, wanted, timeout_s)
    failed = [each["id"] for each in told["tasks"] if each["state"] == FAILED]
    if as_json:
        output.json_line({"connector": name, "state": told["connector"]["state"], "failed_tasks": failed})
    else:
        output.line(f"{name} is {told['connector']['state']}")
        if failed:
            output.talk(f"these tasks have failed before: {', '.join(map(str, failed))}")
    output.flush()
