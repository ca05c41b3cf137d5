"""`strandline contract export`: writes contracts that describe a cluster as it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import CommandFailed, UsageFailed, topic_not_found
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, Bootstrap, ClientProperties, MaybeRegistryUrl, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.config.access import known_topics
from strandline.cli.contract.contract_files import KINDS, document_of
from strandline.cli.contract.kinds import Access
from strandline.cli.contract.planning import access_to


def export(
    to: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|DIR]", help="Where to; a directory gets a file for each topic.", show_default=False
        ),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="NAME",
            help="Only this topic; may be repeated.",
            autocompletion=completion.topic_names,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
    registry: MaybeRegistryUrl = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Write contracts that describe the cluster as it is, so that a plan of them has no steps.

    Without FILE or DIR they go to stdout. A DIR ends with / or exists. Internal topics are left out.
    """
    access = access_to(connect(bootstrap, properties, timeout), registry)
    output = Output()
    existing = known_topics(access.cluster, access.admin)
    for name in topics or ():
        if name not in existing:
            raise topic_not_found(name, existing)
    entries = _entries(access, topics or [])
    for note in access.notes:
        output.talk(f"note: {note}")
    if to is None:
        output.write(_one_document(entries).encode())
    elif to.endswith("/") or Path(to).is_dir():
        _write_directory(output, Path(to), entries, force=force)
    else:
        _write(Path(to), _one_document(entries), force=force)
        output.talk(f"wrote {to}")


Entries = dict[str, dict[str, list[dict[str, Any]]]]
"""By the name of a file, and by kind."""


def _entries(access: Access, names: list[str]) -> Entries:
    found: Entries = {}
    for kind in KINDS:
        for file, items in kind.export(access, names).items():
            if items:
                found.setdefault(file, {})[kind.field] = items
    return found


def _one_document(entries: Entries) -> str:
    merged: dict[str, list[dict[str, Any]]] = {}
    for kinds in entries.values():
        for kind, items in kinds.items():
            merged.setdefault(kind, []).extend(items)
    return document_of(merged) if merged else "# the cluster has no topics, schemas, rights or quotas\n"


def _write_directory(output: Output, directory: Path, entries: Entries, *, force: bool) -> None:
    files = {directory / f"{_file_name(name)}.yaml": document_of(kinds) for name, kinds in entries.items()}
    for path in files:
        _check_free(path, force=force)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandFailed(f"{directory} cannot be made: {error.strerror}") from None
    for path, text in files.items():
        _write(path, text, force=force)
    output.talk(f"wrote {count(len(files), 'file')} to {directory}")


def _file_name(name: str) -> str:
    """Return a name that a file can have: names of topics have nothing worse than a leading dot."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return f"_{safe}" if safe.startswith(".") else safe


def _check_free(path: Path, *, force: bool) -> None:
    if path.exists() and not force:
        raise UsageFailed(f"{path} is there already, and nothing was written", hint="say --force to write over it")


def _write(path: Path, text: str, *, force: bool) -> None:
    _check_free(path, force=force)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written: {error.strerror}") from None
