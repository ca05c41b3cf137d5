"""`strandline log dump`: what lies in log files, readably. It only reads, so a running node may own them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from strandline.cli.common.failures import CommandFailed, NotFound
from strandline.cli.common.options import AsJson
from strandline.cli.common.output import Output
from strandline.cli.dump.files import dump_plain_file
from strandline.cli.dump.items import Item, as_json_object, as_text
from strandline.cli.dump.segment import Selection, dump_segment
from strandline.errors import StrandlineError

_SEGMENT_SUFFIXES = (".log", ".checkpoint", ".log.deleted", ".log.cleaned", ".log.swap")
_DIRECTORY_FILES = (
    "meta.properties",
    "bootstrap.checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
)


def dump(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            help="A partition directory, a data directory, or a file: .log .index .timeindex .txnindex .snapshot "
            ".checkpoint, a checkpoint, meta.properties, partition.metadata, quorum-state.",
        ),
    ],
    batches: Annotated[bool, typer.Option("--batches", help="Batches only, not their records.")] = False,
    from_offset: Annotated[int, typer.Option("--from", metavar="OFFSET", min=0, help="Records from here on.")] = 0,
    count: Annotated[
        int | None, typer.Option("--count", "-n", metavar="N", min=1, help="At most so many records.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print segments, indexes and checkpoints.

    Records of __cluster_metadata and __consumer_offsets are decoded. Of a data directory, the checkpoints and the size
    of each partition are shown. Damage is named where it lies, and the exit code is then 1.
    """
    output = Output(as_json=as_json)
    selection = Selection(records=not batches, from_offset=from_offset, count_max=count)
    damages = 0
    for file in [file for path in paths for file in _files(path)]:
        items = _partition_summary(file) if file.is_dir() else _items(file, selection)
        if not as_json:
            output.line(str(file) if file.is_dir() else f"{file}  ({file.stat().st_size:,} bytes)")
        for item in _guarded(items):
            damages += item.is_damage
            if as_json:
                output.json_line({"file": str(file), **as_json_object(item)})
            else:
                output.line(as_text(item))
    if damages:
        output.flush()
        raise CommandFailed(f"damage in {damages} place{'' if damages == 1 else 's'}; look for `damage` above")


def _files(path: Path) -> list[Path]:
    """Return the files to print for a path; a partition directory inside a data directory stands for its summary."""
    if not path.exists():
        raise NotFound(f"there is no {str(path)!r}")
    if not path.is_dir():
        return [path]
    if (path / "meta.properties").exists():
        present = [path / name for name in _DIRECTORY_FILES if (path / name).exists()]
        return present + sorted(child for child in path.iterdir() if child.is_dir() and any(child.glob("*.log")))
    files = sorted(child for child in path.iterdir() if child.is_file() and child.name != ".lock")
    if not files:
        raise NotFound(f"{str(path)!r} holds no log files")
    return files


def _items(file: Path, selection: Selection) -> Iterator[Item]:
    if file.name.endswith(_SEGMENT_SUFFIXES):
        return dump_segment(file, selection)
    return dump_plain_file(file)


def _partition_summary(directory: Path) -> Iterator[Item]:
    segments = sorted(directory.glob("*.log"))
    fields: dict[str, Any] = {
        "segments": len(segments),
        "first_offset": int(segments[0].stem),
        "size_bytes": sum(segment.stat().st_size for segment in segments),
    }
    yield Item("partition", fields)


def _guarded(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items of a file; one that cannot be read is a finding, and the others are still printed."""
    try:
        yield from items
    except (StrandlineError, OSError, ValueError) as error:
        yield Item("damage", {"reason": str(error)}, is_damage=True)
