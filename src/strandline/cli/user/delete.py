"""`strandline user delete`: take users, or one of their mechanisms, away."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout, Yes
from strandline.cli.common.output import Output
from strandline.cli.common.plans import confirm
from strandline.cli.user.create import JustSay, chosen_mechanisms
from strandline.cli.user.credentials import delete_credential, known_user, read_users


def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="The users.")],
    mechanisms: Annotated[
        list[str] | None,
        typer.Option("--mechanism", metavar="MECHANISM", help="Only this mechanism. May be repeated."),
    ] = None,
    yes: Yes = False,
    dry_run: JustSay = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Delete users, so that they can no longer log in. Shows what would go, and asks. Open connections stay."""
    only = chosen_mechanisms(mechanisms)
    cluster, output = connect(bootstrap, properties, timeout), Output(as_json=as_json)
    users = read_users(cluster)
    # All names are looked up before anything is deleted.
    going = {name: [each for each in known_user(users, name) if not only or each in only] for name in names}
    for name, chosen in going.items():
        if not chosen:
            raise CommandFailed(f"{name} has none of {', '.join(only)}", hint="see `strandline user list`")
    plan = [f"delete {name}: {', '.join(chosen)}" for name, chosen in going.items()]
    if dry_run:
        for line in plan:
            output.talk(line)
    else:
        confirm(output, plan, yes=yes, question="Delete?", undone="nothing was deleted")
    for name, chosen in going.items():
        for mechanism in chosen if not dry_run else ():
            delete_credential(cluster, name, mechanism)
        if as_json:
            output.json_line({"user": name, "mechanisms": chosen, "deleted": not dry_run})
        elif not dry_run:
            output.line(f"deleted {name}: {', '.join(chosen)}")
