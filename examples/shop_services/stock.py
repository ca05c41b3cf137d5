"""Stock: reserves articles for orders, and takes them back if an order is not paid."""

from typing import Any

import psycopg
from service import prepare, serve

from strandline import outbox

TABLES = (
    "CREATE TABLE IF NOT EXISTS articles (name text PRIMARY KEY, available int NOT NULL)",
    "CREATE TABLE IF NOT EXISTS reservations (order_id int PRIMARY KEY, article text NOT NULL, quantity int NOT NULL,"
    " is_held boolean NOT NULL DEFAULT true)",
)


def reserve(connection: psycopg.Connection[Any], event: dict[str, Any]) -> None:
    """Reserve what an order asks for, or refuse."""
    order, article, quantity = event["order"], event["article"], event["quantity"]
    taken = connection.execute(
        "UPDATE articles SET available = available - %s WHERE name = %s AND available >= %s",
        [quantity, article, quantity],
    )
    if taken.rowcount:
        connection.execute("INSERT INTO reservations VALUES (%s, %s, %s)", [order, article, quantity])
    kind = "StockReserved" if taken.rowcount else "StockRefused"
    outbox.add(connection, "stock", order, event, event_type=kind)


def release(connection: psycopg.Connection[Any], event: dict[str, Any]) -> None:
    """Take back what an order had that is not paid."""
    row = connection.execute(
        "UPDATE reservations SET is_held = false WHERE order_id = %s RETURNING article, quantity", [event["order"]]
    ).fetchone()
    assert row is not None
    connection.execute("UPDATE articles SET available = available + %s WHERE name = %s", [row[1], row[0]])


if __name__ == "__main__":
    import sys

    prepare(sys.argv[1], *TABLES)
    serve("stock", ["orders", "payments"], {"OrderPlaced": reserve, "PaymentRefused": release})
