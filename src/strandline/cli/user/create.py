"""`strandline user create | rotate`: a new user, or a new password."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.failures import CommandFailed, UsageFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.user.credentials import (
    ITERATIONS_DEFAULT,
    MECHANISM_DEFAULT,
    MECHANISMS,
    known_user,
    read_users,
    write_credential,
)
from strandline.cli.user.passwords import Generate, PasswordFile, password_for

UserName = Annotated[str, typer.Argument(metavar="NAME", help="The user.")]
Iterations = Annotated[
    int | None, typer.Option("--iterations", metavar="N", min=4096, max=16_384, help="Rounds that a guess costs.")
]
JustSay = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")]


def create(
    name: UserName,
    mechanisms: Annotated[
        list[str] | None,
        typer.Option(
            "--mechanism", metavar="MECHANISM", help="SCRAM-SHA-512 (default) or SCRAM-SHA-256. May be repeated."
        ),
    ] = None,
    iterations: Iterations = None,
    generate: Generate = False,
    password_file: PasswordFile = None,
    dry_run: JustSay = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Create a user that logs in with SCRAM. The password is asked for, read from a file, or made."""
    wanted = chosen_mechanisms(mechanisms) or [MECHANISM_DEFAULT]
    if not name:
        raise UsageFailed("the name of the user is empty")
    cluster = connect(bootstrap, properties, timeout)
    if name in read_users(cluster):
        raise CommandFailed(
            f"there is a user {name!r} already", hint=f"change the password with `strandline user rotate {name}`"
        )
    rounds = dict.fromkeys(wanted, iterations or ITERATIONS_DEFAULT)
    _write(cluster, Output(as_json=as_json), name, rounds, generate, password_file, dry_run, done="created")


def rotate(
    name: UserName,
    iterations: Iterations = None,
    generate: Generate = False,
    password_file: PasswordFile = None,
    dry_run: JustSay = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Give a user another password, for every mechanism that it has. Connections that are open stay."""
    cluster = connect(bootstrap, properties, timeout)
    present = known_user(read_users(cluster), name)
    rounds = {mechanism: iterations or before for mechanism, before in present.items()}
    _write(cluster, Output(as_json=as_json), name, rounds, generate, password_file, dry_run, done="rotated")


def chosen_mechanisms(given: list[str] | None) -> list[str]:
    """Return the mechanisms as Kafka writes them. UsageFailed for one that is none."""
    chosen = list(dict.fromkeys(each.upper() for each in given or ()))
    for each in chosen:
        if each not in MECHANISMS:
            raise UsageFailed(f"{each!r} is no mechanism of users", hint=f"expected {' or '.join(MECHANISMS)}")
    return chosen


def _write(
    cluster: Cluster,
    output: Output,
    name: str,
    rounds: dict[str, int],
    generate: bool,
    password_file: PasswordFile,
    dry_run: bool,
    *,
    done: str,
) -> None:
    if dry_run:
        if output.as_json:
            output.json_line({"user": name, "mechanisms": rounds, done: False})
        else:
            output.line(f"{name} would be {done}: {', '.join(rounds)}")
        return
    password = password_for(name, generate=generate, file=password_file)
    for mechanism, iterations in rounds.items():
        write_credential(cluster, name, mechanism, iterations, password)
    told = {"password": password} if generate else {}
    if output.as_json:
        output.json_line({"user": name, "mechanisms": rounds, done: True, **told})
        return
    output.line(f"{done} {name}: {', '.join(rounds)}")
    if generate:
        output.line(f"password: {password}")
