"""`strandline schema delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT
from strandline.cli.common.options import REGISTRY_DEFAULT, AsJson, RegistryUrl, Timeout, Yes
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.plans import confirm
from strandline.cli.schema.access import SubjectName
from strandline.cli.schema.registry_api import SchemaApi


def delete(
    subject: SubjectName,
    version: Annotated[str | None, typer.Option("--version", metavar="N", help="Only this version.")] = None,
    permanent: Annotated[
        bool, typer.Option("--permanent", help="For good. Records that were written with it can not be read then.")
    ] = False,
    yes: Yes = False,
    registry: RegistryUrl = REGISTRY_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Delete a subject, or a version of it. Shows what, and asks.

    A deleted version takes no part in compatibility, and its id can still be read. With --permanent it is gone; only
    what was deleted before can go for good.
    """
    api, output = SchemaApi(registry, timeout), Output(as_json=as_json)
    if version is None:
        numbers = api.ask("GET", "subjects", subject, "versions", deleted=permanent)
    else:
        numbers = [api.ask("GET", "subjects", subject, "versions", version, deleted=permanent)["version"]]
    what = f"{count(len(numbers), 'version')} of {subject}: {', '.join(str(each) for each in numbers)}"
    plan = [f"delete {what}{', for good: their ids can not be read any more' if permanent else ''}"]
    confirm(output, plan, yes=yes, question="Delete?", undone="nothing was deleted")
    path = ("subjects", subject) if version is None else ("subjects", subject, "versions", version)
    gone = api.ask("DELETE", *path, permanent=permanent)
    gone = gone if isinstance(gone, list) else [gone]
    if as_json:
        output.json_line({"subject": subject, "versions": gone, "permanent": permanent})
    else:
        output.line(f"deleted {count(len(gone), 'version')} of {subject}{' for good' if permanent else ''}")
    output.flush()
