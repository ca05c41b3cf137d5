"""Options that several commands share, declared once so that they read the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.common import completion

BOOTSTRAP_DEFAULT = completion.BOOTSTRAP_DEFAULT
PORT_DEFAULT = 9092


def with_ports(servers: str | None) -> str | None:
    return servers and ",".join(_with_port(each.strip()) for each in servers.split(","))


def _with_port(server: str) -> str:
    host = server.rpartition("://")[2]
    has_port = "]:" in host if host.startswith("[") else ":" in host
    return server if has_port or not host else f"{server}:{PORT_DEFAULT}"


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "--bootstrap-server",
        "-b",
        callback=with_ports,
        envvar="STRANDLINE_BOOTSTRAP",
        metavar="HOST[:PORT][,...]",
        help="The cluster to talk to.",
    ),
]
GroundBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "--bootstrap-server",
        "-b",
        callback=with_ports,
        envvar="STRANDLINE_BOOTSTRAP",
        metavar="HOST[:PORT][,...]",
        help="The cluster to work on. Default: a node of its own, with its data in .strandline/node.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait for answers.")]
ClientProperties = Annotated[
    list[str] | None,
    typer.Option("-X", metavar="KEY=VALUE", help="A librdkafka client property, for example security.protocol=ssl."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Let the cluster check it and change nothing.")]
TopicName = Annotated[str, typer.Argument(metavar="NAME", help="The topic.", autocompletion=completion.topic_names)]
TopicNames = Annotated[
    list[str], typer.Argument(metavar="NAME", help="The topics.", autocompletion=completion.topic_names)
]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", metavar="N", min=0, help="Only this partition. May be repeated."),
]

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", autocompletion=completion.group_names)]
GroupNames = Annotated[
    list[str], typer.Argument(metavar="GROUP", help="The groups.", autocompletion=completion.group_names)
]
REGISTRY_DEFAULT = "http://127.0.0.1:8081"
RegistryUrl = Annotated[
    str, typer.Option("--registry", metavar="URL", envvar="STRANDLINE_REGISTRY", help="The schema registry.")
]
MaybeRegistryUrl = Annotated[
    str | None,
    typer.Option(
        "--registry",
        metavar="URL",
        envvar="STRANDLINE_REGISTRY",
        help=f"The schema registry. Default: {REGISTRY_DEFAULT}, if one answers there.",
    ),
]
