"""What the commands of `sqlite` share: their topic, and their failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from strandline.cli.common import completion
from strandline.cli.common.client import Cluster
from strandline.cli.common.failures import CommandFailed, NotFound, Unreachable
from strandline.sqlite.failures import MomentGone, ShippingFailed, TopicAbsent, TopicUnavailable
from strandline.sqlite.topic import ShippedTopic

DatabaseTopic = Annotated[
    str,
    typer.Option(
        "--topic",
        metavar="TOPIC",
        help="The topic of the database; it has one partition.",
        autocompletion=completion.topic_names,
    ),
]


def shipped_topic(cluster: Cluster, name: str) -> ShippedTopic:
    """Return the topic of a database as this cluster has it."""
    return ShippedTopic(cluster.settings(), name, cluster.timeout_s)


@contextmanager
def shipping_errors() -> Iterator[None]:
    """Turn failures of shipping into those of a command."""
    try:
        yield
    except (TopicAbsent, MomentGone) as error:
        raise NotFound(str(error), hint="`strandline sqlite status --topic TOPIC` shows what a topic holds") from None
    except TopicUnavailable as error:
        raise Unreachable(str(error), hint="`strandline doctor` says whether the cluster is well") from None
    except ShippingFailed as error:
        raise CommandFailed(str(error)) from None
