"""`strandline txn describe`: one transactional id, its producer, and its transaction if one is open."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.completion import transactional_ids
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import duration
from strandline.cli.group.state import partitions_words
from strandline.cli.txn.hold_words import transaction_object
from strandline.cli.txn.reading import read_transaction, require_spoken
from strandline.cli.txn.state import TransactionState
from strandline.lag.verdict import span

TransactionalId = Annotated[
    str, typer.Argument(metavar="ID", help="The transactional id.", autocompletion=transactional_ids)
]


def describe(
    transactional_id: TransactionalId,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show a transactional id: producer, epoch, state, timeout, client, coordinator, partitions, what will end it."""
    cluster = connect(bootstrap, properties, timeout)
    require_spoken(cluster)
    output = Output(as_json=as_json)
    transaction = read_transaction(cluster, transactional_id)
    if as_json:
        output.json_line(transaction_object(transaction))
        return
    for name, value in lines_of(transaction):
        output.line(f"{name:12} {value}")


def lines_of(transaction: TransactionState) -> list[tuple[str, str]]:
    lines = [
        ("id", transaction.transactional_id),
        ("state", transaction.state),
        ("producer", f"{transaction.producer_id}, epoch {transaction.producer_epoch}"),
        ("client", transaction.client or "unknown: it began with another coordinator, or the cluster does not tell"),
        ("coordinator", f"node {transaction.coordinator}"),
        ("timeout", duration(transaction.timeout_ms)),
    ]
    age_ms = transaction.age_ms
    if age_ms is None:
        return [*lines, ("transaction", "none is open")]
    return [
        *lines,
        ("started", f"{moment(transaction.start_ms)}, {span(age_ms / 1000)} ago"),
        ("partitions", partitions_words(transaction.partitions)),
        ("ends", transaction.ends),
    ]


def moment(at_ms: int) -> str:
    """The time of day, with its date, where the person is."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))
