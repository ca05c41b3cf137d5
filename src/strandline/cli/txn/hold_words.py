"""Transactions and what they hold back, in sentences and as plain data, for `txn` and the console."""

from __future__ import annotations

import time

from strandline.cli.group.state import places_json
from strandline.cli.txn.state import NEEDS_HELP, Hold, Holder, HoldVerdict, TransactionState, elsewhere
from strandline.lag.verdict import span


def transaction_object(transaction: TransactionState) -> dict[str, object]:
    """As every verb prints it with --json."""
    return {
        "transactional_id": transaction.transactional_id,
        "state": transaction.state,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "coordinator": transaction.coordinator,
        "timeout_ms": transaction.timeout_ms,
        "start_ms": transaction.start_ms if transaction.is_open else None,
        "age_ms": transaction.age_ms,
        "client": transaction.client_id or None,
        "host": transaction.client_host.removeprefix("/") or None,
        "partitions": places_json(transaction.partitions),
        "waiting": [
            {"topic": each.place[0], "partition": each.place[1], "leader": each.leader, "error": each.error or None}
            for each in transaction.waiting
        ],
        "ends": transaction.ends or None,
    }


def holder_lines(hold: Hold, holder: Holder) -> list[str]:
    producer, transaction = holder.producer, holder.transaction
    who = f"producer {producer.producer_id}, epoch {producer.producer_epoch}, from offset {producer.start_offset:,}"
    if transaction is None or holder.verdict is HoldVerdict.HANGING:
        wrote = f"{who}; it last wrote {ago_words(producer.last_timestamp_ms)}"
        lines = [f"a transaction without a name: {wrote}" if transaction is None else wrote]
        return lines + [f"  {line}" for line in _help_lines(hold, holder)]
    age = "" if transaction.age_ms is None else f", open for {span(transaction.age_ms / 1000)}"
    facts = [f"client       {transaction.client}"] if transaction.client else []
    facts.append(f"coordinator  node {transaction.coordinator}")
    others = elsewhere(transaction, hold.place)
    if others != "nothing":
        facts.append(f"also on      {others}")
    facts.append(f"ends         {transaction.ends}")
    return [f"{transaction.transactional_id}: {who}{age}", *(f"  {line}" for line in facts)]


def _help_lines(hold: Hold, holder: Holder) -> list[str]:
    if holder.verdict is HoldVerdict.UNKNOWN:
        return ["unknown: a broker that may coordinate it could not be asked"]
    transaction = holder.transaction
    if transaction is None:
        why = "no coordinator has a transactional id with this producer"
    else:
        doing = (
            f"is {transaction.state}" if not transaction.is_open else "has a transaction open without this partition"
        )
        why = f"its id {transaction.transactional_id!r} {doing} (node {transaction.coordinator})"
    return [f"hanging: {why}, so nothing will end it", f"next: {abort_command(hold, holder)}"]


def abort_command(hold: Hold, holder: Holder) -> str:
    """What ends it."""
    if holder.verdict is HoldVerdict.OVERDUE and holder.transaction is not None:
        return f"strandline txn abort {holder.transaction.transactional_id}"
    return f"strandline txn abort --topic-partition {hold.name} --start-offset {holder.producer.start_offset}"


def hold_object(hold: Hold) -> dict[str, object]:
    return {
        "topic": hold.topic,
        "partition": hold.partition,
        "leader": hold.leader,
        "high_watermark": hold.high_watermark,
        "last_stable_offset": hold.last_stable_offset,
        "held_back": hold.held_back,
        "since_ms": hold.since_ms,
        "transactions": [
            {
                "verdict": str(holder.verdict),
                "producer_id": holder.producer.producer_id,
                "producer_epoch": holder.producer.producer_epoch,
                "coordinator_epoch": holder.producer.coordinator_epoch,
                "start_offset": holder.producer.start_offset,
                "last_timestamp_ms": holder.producer.last_timestamp_ms,
                "transaction": None if holder.transaction is None else transaction_object(holder.transaction),
                "abort": abort_command(hold, holder) if holder.verdict in NEEDS_HELP else None,
            }
            for holder in hold.holders
        ],
    }


def ago_words(at_ms: int) -> str:
    return f"{span(max(0, int(time.time() * 1000) - at_ms) / 1000)} ago" if at_ms >= 0 else "at a time that is not told"
