"""`strandline schema check`: would a subject take a schema, and does what a topic holds still decode?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import ExitCode, UsageFailed
from strandline.cli.common.options import (
    BOOTSTRAP_DEFAULT,
    REGISTRY_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    Partitions,
    RegistryUrl,
    Timeout,
)
from strandline.cli.common.output import Output
from strandline.cli.schema.access import Normalize, References, SchemaTypeName, schema_body
from strandline.cli.schema.registry_api import SchemaApi


def check(
    subject: Annotated[
        str | None, typer.Argument(metavar="SUBJECT", help="The subject, for example orders-value.")
    ] = None,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="The schema: .avsc, .json or .proto; - reads it from stdin.")
    ] = None,
    against_data: Annotated[
        str | None,
        typer.Option(
            "--against-data",
            metavar="TOPIC",
            help="Decode every record of this topic; with a FILE also say whether it reads them.",
            autocompletion=completion.topic_names,
        ),
    ] = None,
    keys: Annotated[bool, typer.Option("--keys", help="With --against-data: decode keys, too.")] = False,
    partitions: Partitions = None,
    kind: SchemaTypeName = None,
    references: References = None,
    normalize: Normalize = False,
    registry: RegistryUrl = REGISTRY_DEFAULT,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Say whether a subject would take a schema, and if not, why. Exit code 5 if not.

    With --against-data it reads a topic from its first record to its end, and says whether every record decodes: how
    many there are of each schema, and the first offset of each partition that does not. Exit code 5 if one does not.
    """
    api, output = SchemaApi(registry, timeout), Output(as_json=as_json)
    if (subject is None) != (file is None) or (file is None and against_data is None):
        raise UsageFailed("say SUBJECT and FILE, or --against-data TOPIC", hint="`strandline schema check --help`")
    if against_data is None and (keys or partitions):
        raise UsageFailed("--keys and --partition go with --against-data")
    body = None if file is None else schema_body(file, kind, references)
    is_good = True
    if subject is not None and body is not None:
        is_good = _check_subject(api, output, subject, body, normalize=normalize)
        output.flush()
    if against_data is not None:
        from strandline.cli.schema.data_check import check_data

        cluster = connect(bootstrap, properties, timeout)
        is_good &= check_data(cluster, api, output, against_data, partitions, body, with_keys=keys)
    output.flush()
    if not is_good:
        raise typer.Exit(ExitCode.UNHEALTHY)


def _check_subject(api: SchemaApi, output: Output, subject: str, body: dict[str, Any], *, normalize: bool) -> bool:
    path = ("compatibility", "subjects", subject, "versions")
    found: dict[str, Any] = api.ask("POST", *path, body=body, verbose=True, normalize=normalize)
    if output.as_json:
        output.json_line({"subject": subject, **found})
    elif found["is_compatible"]:
        output.line(f"{subject} takes this schema")
    else:
        output.line(f"{subject} does not take this schema:")
        for message in found.get("messages", ()):
            output.line(f"  {message}")
    is_compatible: bool = found["is_compatible"]
    return is_compatible
