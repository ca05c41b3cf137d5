"""Transactions: which are open, and what keeps readers of committed records waiting. Actions abort them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from strandline.cli.common.plain_words import count
from strandline.cli.group.state import partitions_words
from strandline.cli.txn.aborting import (
    abort_hanging,
    abort_known,
    abort_lines,
    chosen_holder,
    hanging_lines,
    look_at,
    require_hanging,
    require_ongoing,
)
from strandline.cli.txn.hold_words import hold_object, holder_lines
from strandline.cli.txn.holds import PartitionsOfCluster, read_holds
from strandline.cli.txn.reading import TransactionsFound, read_transaction, read_transactions, require_spoken
from strandline.cli.txn.state import NEEDS_HELP, OPEN, Hold, Holder, HoldVerdict, TransactionState
from strandline.console.context import PageContext
from strandline.console.declarations import (
    ActionDone,
    ActionField,
    ConsoleAction,
    ConsolePage,
    PageModule,
    PageTable,
    Values,
)
from strandline.console.tables import TableHead

TRANSACTIONS_S: Final = 3.0
HOLDERS_SHOWN: Final = 10
HOLDS_SHOWN: Final = 50

HEADS: Final = (
    TableHead("transactional_id", "Transactional id", "name"),
    TableHead("state", "State"),
    TableHead("age_s", "Open for", "span"),
    TableHead("ends", "What ends it"),
    TableHead("on", "Partitions", is_wide=True),
    TableHead("client", "Client", is_wide=True),
    TableHead("producer_id", "Producer", "number", is_wide=True),
    TableHead("coordinator", "Coordinator", "number", "The node that coordinates it", is_wide=True),
)


async def transactions(context: PageContext) -> Mapping[str, Any]:
    """Answer which transactions are open, and what they hold back."""
    found, holds = await _read(context)
    opened = [each for each in found.transactions if each.is_open]
    return {
        "verdict": verdict(opened, holds),
        "holds": [_hold(each) for each in holds[:HOLDS_SHOWN]],
        "holds_left_out": max(0, len(holds) - HOLDS_SHOWN),
        "table": context.table(
            HEADS,
            [_row(each) for each in opened],
            caption="Open transactions",
            searched=("transactional_id", "state", "on", "client"),
            sort="-age_s",
            empty="No transaction is open.",
        ),
    }


async def _read(context: PageContext) -> tuple[TransactionsFound, list[Hold]]:
    shared = context.reading.shared
    told: list[str] = []

    def work() -> tuple[TransactionsFound, list[Hold]]:
        require_spoken(shared.cluster)
        found = read_transactions(shared.cluster, states=OPEN, tell=told.append)
        holds = read_holds(
            shared.cluster, lambda there: sorted(there.leaders), with_times=True, held_only=True, tell=told.append
        )
        return found, sorted((each for each in holds if each.held_back), key=lambda each: -each.held_back)

    answer = await context.reading.know("transactions", lambda: shared.in_thread(work), TRANSACTIONS_S)
    for each in told:
        context.reading.note(each)
    return answer


def verdict(opened: Sequence[TransactionState], holds: Sequence[Hold]) -> dict[str, str]:
    """Return the answer in one sentence, and its level."""
    stuck = [holder for hold in holds for holder in hold.holders if holder.verdict in NEEDS_HELP]
    held = sum(each.held_back for each in holds)
    waiting = f"{count(held, 'record')} in {count(len(holds), 'partition')}"
    if stuck:
        ends = "itself" if len(stuck) == 1 else "themselves"
        return {
            "level": "problem",
            "text": f"{count(len(stuck), 'transaction')} will not end by {ends}: readers of committed records wait for "
            f"{waiting}.",
        }
    if holds:
        text = f"Readers of committed records wait for {waiting}, and each of these transactions will end by itself."
        return {"level": "ok", "text": text}
    is_open = f"{count(len(opened), 'transaction')} open, and none" if opened else "No transaction is open, and none"
    return {"level": "ok", "text": f"{is_open} holds readers back."}


def _row(each: TransactionState) -> dict[str, Any]:
    return {
        "transactional_id": each.transactional_id,
        "state": each.state,
        "age_s": None if each.age_ms is None else each.age_ms // 1000,
        "ends": each.ends,
        "on": partitions_words(each.partitions),
        "client": each.client or None,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "coordinator": each.coordinator,
        "timeout_ms": each.timeout_ms,
    }


def _hold(hold: Hold) -> dict[str, Any]:
    return {
        **hold_object(hold),
        "name": hold.name,
        "holders": [_holder(hold, each) for each in hold.holders[:HOLDERS_SHOWN]],
        "holders_left_out": max(0, len(hold.holders) - HOLDERS_SHOWN),
    }


def _holder(hold: Hold, holder: Holder) -> dict[str, Any]:
    """Return a transaction that pins the last stable offset, and the action that ends it."""
    headline, *lines = holder_lines(hold, holder)
    action: tuple[str, dict[str, Any]] | None = None
    if holder.verdict is HoldVerdict.HANGING:
        action = "txn-abort-hanging", {"partition": hold.name, "start_offset": holder.producer.start_offset}
    elif holder.transaction is not None and holder.verdict is not HoldVerdict.ENDING:
        action = "txn-abort", {"transactional_id": holder.transaction.transactional_id}
    return {
        "verdict": str(holder.verdict),
        "headline": headline,
        "lines": [each.strip() for each in lines if not each.strip().startswith("next:")],
        "action": None if action is None else {"name": action[0], "fields": action[1]},
    }


# Actions


def _ongoing(context: PageContext, values: Values) -> TransactionState:
    require_spoken(context.reading.cluster)
    found = read_transaction(context.reading.cluster, values["transactional_id"])
    require_ongoing(found)
    return found


async def plan_abort(context: PageContext, values: Values) -> Sequence[str]:
    return abort_lines(await context.reading.shared.in_thread(lambda: _ongoing(context, values)))


async def abort(context: PageContext, values: Values) -> ActionDone:
    await context.reading.shared.in_thread(lambda: abort_known(context.reading.cluster, _ongoing(context, values)))
    return ActionDone(f"The transaction of {values['transactional_id']} was aborted.", context.path("transactions"))


def _hanging(context: PageContext, values: Values) -> tuple[PartitionsOfCluster, tuple[str, int], Holder]:
    cluster, name = context.reading.cluster, values["partition"]
    require_spoken(cluster)
    there = PartitionsOfCluster(cluster)
    place = there.one(name)
    holder = chosen_holder(look_at(cluster, there, place), name, int(values["start_offset"]), None)
    require_hanging(holder, name)
    return there, place, holder


async def plan_abort_hanging(context: PageContext, values: Values) -> Sequence[str]:
    _, _, holder = await context.reading.shared.in_thread(lambda: _hanging(context, values))
    return hanging_lines(holder, values["partition"])


async def abort_on_partition(context: PageContext, values: Values) -> ActionDone:
    await context.reading.shared.in_thread(lambda: abort_hanging(context.reading.cluster, *_hanging(context, values)))
    return ActionDone(f"The transaction that hung on {values['partition']} was aborted.", context.path("transactions"))


def abort_command(values: Values) -> Sequence[str]:
    return ["txn", "abort", values["transactional_id"], "--yes"]


def abort_hanging_command(values: Values) -> Sequence[str]:
    words = ["txn", "abort", "--topic-partition", values["partition"]]
    return [*words, "--start-offset", values["start_offset"], "--yes"]


ABORT: Final = ConsoleAction(
    name="txn-abort",
    title="Abort the transaction of {transactional_id}",
    button="Abort",
    run=abort,
    command=abort_command,
    plan=plan_abort,
    consequence="What {transactional_id} wrote in its open transaction is never seen by readers of committed records.",
    fields=(ActionField("transactional_id", "Transactional id", is_fixed=True),),
    is_dangerous=True,
    typed="transactional_id",
    under="transactions",
)
ABORT_HANGING: Final = ConsoleAction(
    name="txn-abort-hanging",
    title="Abort what hangs on {partition}",
    button="Abort",
    run=abort_on_partition,
    command=abort_hanging_command,
    plan=plan_abort_hanging,
    consequence="What the producer wrote to {partition} is never seen by readers of committed records.",
    fields=(
        ActionField("partition", "Partition", is_fixed=True),
        ActionField("start_offset", "From offset", "number", number_max=2**63 - 1, is_fixed=True),
    ),
    is_dangerous=True,
    typed="partition",
    under="transactions",
)
PAGE: Final = ConsolePage(
    name="transactions",
    path="/transactions",
    title="Transactions",
    question="Which transactions are open, what do they hold back, and what will end them?",
    model=transactions,
    template="transactions.html",
    tables=(PageTable("table", HEADS),),
    group="Readers",
)
MODULE: Final = PageModule(pages=(PAGE,), actions=(ABORT, ABORT_HANGING))
