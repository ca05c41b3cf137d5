"""Orders: customers place them here, and here their state ends as paid or refused."""

from typing import Any

import psycopg
from service import prepare, serve

from strandline import outbox

TABLES = (
    "CREATE TABLE IF NOT EXISTS orders (id int PRIMARY KEY, customer text NOT NULL, article text NOT NULL,"
    " quantity int NOT NULL, cents bigint NOT NULL, state text NOT NULL, placed timestamptz NOT NULL DEFAULT now())",
)


def place(
    connection: psycopg.Connection[Any], number: int, customer: str, article: str, quantity: int, cents: int
) -> None:
    """Place an order, in the caller's transaction. One that exists already is not placed again."""
    made = connection.execute(
        "INSERT INTO orders VALUES (%s, %s, %s, %s, %s, 'placed') ON CONFLICT DO NOTHING",
        [number, customer, article, quantity, cents],
    )
    if made.rowcount:
        event = {"order": number, "customer": customer, "article": article, "quantity": quantity, "cents": cents}
        outbox.add(connection, "orders", number, event, event_type="OrderPlaced")


def _ends(state: str) -> Any:
    def end(connection: psycopg.Connection[Any], event: dict[str, Any]) -> None:
        connection.execute("UPDATE orders SET state = %s WHERE id = %s", [state, event["order"]])

    return end


if __name__ == "__main__":
    import sys

    prepare(sys.argv[1], *TABLES)
    handlers = {"StockRefused": _ends("refused"), "PaymentRefused": _ends("refused"), "PaymentTaken": _ends("paid")}
    serve("orders", ["stock", "payments"], handlers)
