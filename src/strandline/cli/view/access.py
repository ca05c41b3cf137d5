"""What the commands of views share: options, a desk that fails in sentences, and moments."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.common.client import connect
from strandline.cli.common.failures import CommandFailed, NotFound, UsageFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT
from strandline.cli.common.positions import TimePosition, parse_position
from strandline.cli.common.progress import Progress

if TYPE_CHECKING:
    from strandline.views.as_of import AsOf, Freshness, Reach
    from strandline.views.view_session import ViewSession

VIEWS_DEFAULT = ".strandline/views"

Directory = Annotated[
    str,
    typer.Option("--views", envvar="STRANDLINE_VIEWS", metavar="DIR", help="Where snapshots of views are kept."),
]
AsOfOffset = Annotated[
    str | None,
    typer.Option("--as-of-offset", metavar="0:N,1:M", help="As it was with the records below these offsets."),
]
AsOfTime = Annotated[
    str | None,
    typer.Option("--as-of-time", metavar="T", help="As it was then: 2026-03-01T12:00:00Z, @milliseconds, 10m-ago."),
]


@contextmanager
def desk_at(bootstrap: str | None, directory: str, timeout_s: float) -> Iterator[ViewSession]:
    """Views of a cluster; what they raise ends the command with a sentence.

    With no cluster named it is the one that `pipeline run` uses here: if its node does not run, it does for the time.
    """
    with plain_failures(), ExitStack() as ended:
        if bootstrap is None:
            from strandline.pipelines.run.local_node import find_ground, has_node, running_node

            bootstrap = ended.enter_context(find_ground(None)).wait_ready() if has_node() else running_node()
        bootstrap = connect(bootstrap or BOOTSTRAP_DEFAULT, None, timeout_s).servers
        from strandline.views.view_session import ViewSession

        yield ended.enter_context(ViewSession(bootstrap, directory=directory, timeout_s=timeout_s))


@contextmanager
def reading(desk: ViewSession) -> Iterator[None]:
    """Shows, if it takes long, how much of the log was read; over before an answer is printed."""
    with Progress("reading the log", total=None, unit="records") as progress:
        desk.on_read = progress.advance
        try:
            yield
        finally:
            desk.on_read = None


@contextmanager
def plain_failures() -> Iterator[None]:
    from strandline.client.failures import ClientFailed
    from strandline.errors import WorldError
    from strandline.views.failures import DefinitionRefused, ViewUnknown

    try:
        yield
    except ViewUnknown as error:
        raise NotFound(str(error)) from error
    except DefinitionRefused as error:
        raise UsageFailed(str(error)) from error
    except (WorldError, ClientFailed) as error:
        raise CommandFailed(str(error)) from error
    except ModuleNotFoundError as error:
        if error.name not in ("duckdb", "pyarrow", "numpy"):
            raise
        raise CommandFailed(f"views need {error.name}, which is not there: pip install 'strandline[spark]'") from error
    except PermissionError as error:
        raise CommandFailed(f"{error.filename} cannot be written: say --views DIR with one that can") from error


def moment(as_of_offset: str | None, as_of_time: str | None) -> AsOf | None:
    from strandline.views.as_of import AtTime, parse_offsets

    if as_of_offset is not None and as_of_time is not None:
        raise UsageFailed("--as-of-offset and --as-of-time say the same in two ways: say one of them")
    if as_of_offset is not None:
        return parse_offsets(as_of_offset)
    if as_of_time is None:
        return None
    try:
        position = parse_position(as_of_time, now_ms=time.time_ns() // 1_000_000)
    except ValueError:
        position = None
    if not isinstance(position, TimePosition):
        raise UsageFailed(
            f"--as-of-time {as_of_time!r} is no time: say 2026-03-01T12:00:00Z, @milliseconds, or 10m-ago"
        )
    return AtTime(position.timestamp_ms)


def freshness_words(freshness: Freshness, reach: Reach, asked: AsOf | None) -> str:
    from strandline.views.as_of import offsets_words

    if asked is None:
        return f"{freshness.words}; {reach.words}"
    return (
        f"as of offsets {offsets_words(freshness.offsets)}, {freshness.records_behind:,} records before the end; "
        f"{reach.words}"
    )
