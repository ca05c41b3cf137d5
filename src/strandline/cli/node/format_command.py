"""`strandline format`: make a directory the data directory of a node of a cluster."""

from __future__ import annotations

import os
import random
import secrets
import time
import uuid
from pathlib import Path
from typing import Annotated

import typer

from strandline.broker.formatting import (
    Formatted,
    format_directory,
    parse_add_scram,
    parse_initial_controllers,
    standalone,
)
from strandline.cli.common.failures import CommandFailed, UsageFailed
from strandline.cli.common.key_values import key_values
from strandline.cli.common.options import AsJson
from strandline.cli.common.output import Output
from strandline.codec.messages.user_scram_credential_record import UserScramCredentialRecord
from strandline.config.node_config import BrokerConfig
from strandline.errors import CorruptLog, InvalidConfig
from strandline.log.disk import RealDisk
from strandline.quorum.controller.new_topics import random_uuid as random_id
from strandline.quorum.raft.state_files import parse_uuid, uuid_text
from strandline.security.sasl.scram import SALT_BYTES

NEW = "new"


def random_uuid() -> None:
    """Print a random id for a cluster or a directory, as `format` takes them."""
    Output().line(uuid_text(_new_uuid()))


def format_(
    cluster_id: Annotated[
        str,
        typer.Option("--cluster-id", "-t", metavar="ID", help="The cluster, the same for every node; `new` makes one."),
    ],
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", exists=True, dir_okay=False, help="Its server.properties."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The directory, in place of log.dirs.")
    ] = None,
    is_standalone: Annotated[
        bool, typer.Option("--standalone", help="This node is the first controller, alone for now.")
    ] = False,
    initial_controllers: Annotated[
        str | None,
        typer.Option("--initial-controllers", metavar="ID@HOST:PORT:DIRECTORY_ID,...", help="The first controllers."),
    ] = None,
    add_scram: Annotated[
        list[str] | None,
        typer.Option(
            "--add-scram",
            "-S",
            metavar="MECHANISM=[name=...,password=...]",
            help="A first user of the cluster, so that nodes can log in. May be repeated.",
        ),
    ] = None,
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", help="A directory that is formatted for this node already is fine.")
    ] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option("-X", metavar="KEY=VALUE", help="A broker property; wins over the file. May be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Format the data directory of a node, for a cluster whose nodes are started one by one.

    Who votes on the metadata stands in controller.quorum.voters of every node, or is said here. A broker that joins
    needs neither. A single node needs no format: an empty directory becomes a cluster of one.
    """
    given = key_values(overrides, option="-X") | ({"log.dirs": str(data)} if data is not None else {})
    if config is None and not given:
        raise UsageFailed("say which node: --config FILE, or --data DIR and -X")
    if is_standalone and initial_controllers is not None:
        raise UsageFailed("--standalone and --initial-controllers exclude each other")
    try:
        content = config.read_text() if config is not None else ""
        settings = BrokerConfig.load(content, given, os.environ, file_name=str(config or "server.properties"))
        controllers = []
        if is_standalone:
            controllers = standalone(settings, _new_uuid())
        elif initial_controllers is not None:
            controllers = parse_initial_controllers(initial_controllers)
        formatted = format_directory(
            settings,
            _cluster_id(cluster_id),
            controllers,
            disk=RealDisk(),
            now_ms=int(time.time() * 1000),
            new_uuid=_new_uuid,
            ignore_formatted=ignore_formatted,
            credentials=[_credential(each) for each in add_scram or ()],
        )
    except (InvalidConfig, CorruptLog) as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise CommandFailed(f"cannot format: {error}") from None
    _tell(Output(as_json=as_json), formatted)


def _credential(text: str) -> UserScramCredentialRecord:
    """Return the user of a text, or of the file whose name follows @, because arguments are seen in `ps`."""
    text = Path(text[1:]).read_text() if text.startswith("@") else text
    return parse_add_scram(text, lambda: secrets.token_bytes(SALT_BYTES))


def _new_uuid() -> uuid.UUID:
    return random_id(random.SystemRandom())


def _cluster_id(raw: str) -> str:
    if raw == NEW:
        return uuid_text(_new_uuid())
    try:
        parse_uuid(raw)
    except CorruptLog:
        raise UsageFailed(
            f"--cluster-id {raw!r} is no cluster id",
            hint="22 letters of base64, or `new`, which makes one and tells it",
        ) from None
    return raw


def _tell(output: Output, formatted: Formatted) -> None:
    meta = formatted.meta
    if output.as_json:
        output.json_line(
            {
                "data": str(formatted.path),
                "cluster_id": meta.cluster_id,
                "node_id": meta.node_id,
                "directory_id": uuid_text(meta.directory_id),
                "formatted": not formatted.was_formatted,
            }
        )
        return
    done = "was formatted already" if formatted.was_formatted else "is formatted"
    output.line(f"{formatted.path} {done} for node {meta.node_id} of cluster {meta.cluster_id}")
