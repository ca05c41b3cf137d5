"""`strandline security init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.options import AsJson
from strandline.cli.common.output import Output
from strandline.errors import InvalidConfig
from strandline.local.security_kit import SecurityKit


def init(
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where the files are written.")],
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME", help="A host or address of a node. May be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make an authority, certificates, an administrator with a password, and settings for nodes and clients.

    Certificates of nodes are also for localhost. Nothing that exists is changed.
    """
    kit = SecurityKit(directory)
    try:
        kit.make(hosts or ())
    except InvalidConfig as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise CommandFailed(f"{directory} cannot be written: {(error.strerror or str(error)).lower()}") from None
    output = Output(as_json=as_json)
    if as_json:
        files = sorted(each.name for each in kit.directory.iterdir())
        output.json_line({"directory": str(kit.directory), "files": files})
        return
    at = kit.directory
    output.line(f"""\
made {at}: keep ca.key and the passwords in it private

A node:

  strandline format --cluster-id new --config {at}/server.properties --data DATA --add-scram @{at}/admin.scram
  strandline serve --config {at}/server.properties --data DATA

Its administrator, also for Kafka's own tools:

  strandline topic list --command-config {at}/admin.properties

Other clients: librdkafka.properties, spark.properties, and admin.pem for the listener of certificates.
Create users with `strandline user create`, and say what they may do with `strandline acl grant`.""")
