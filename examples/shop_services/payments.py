"""Payments: moves money from a customer's account to the shop's, when the articles are reserved."""

from typing import Any

import psycopg
from service import prepare, serve

from strandline import outbox

SHOP = "the shop"
TABLES = (
    "CREATE TABLE IF NOT EXISTS accounts (name text PRIMARY KEY, cents bigint NOT NULL)",
    "CREATE TABLE IF NOT EXISTS payments (order_id int, cents bigint NOT NULL)",
)


def pay(connection: psycopg.Connection[Any], event: dict[str, Any]) -> None:
    """Pay an order, or refuse if the account has too little. There is no check for a second payment: the inbox is."""
    order, customer, cents = event["order"], event["customer"], event["cents"]
    taken = connection.execute(
        "UPDATE accounts SET cents = cents - %s WHERE name = %s AND cents >= %s", [cents, customer, cents]
    )
    if taken.rowcount:
        connection.execute("UPDATE accounts SET cents = cents + %s WHERE name = %s", [cents, SHOP])
        connection.execute("INSERT INTO payments VALUES (%s, %s)", [order, cents])
    kind = "PaymentTaken" if taken.rowcount else "PaymentRefused"
    outbox.add(connection, "payments", order, {"order": order}, event_type=kind)


if __name__ == "__main__":
    import sys

    prepare(sys.argv[1], *TABLES)
    serve("payments", ["stock"], {"StockReserved": pay})
