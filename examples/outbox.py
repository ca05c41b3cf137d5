"""Two services with a database each, and an outbox between them. Messages come twice; nothing is lost or doubled.

    pip install strandline
    python examples/outbox.py

Orders are written to SQLite together with their events. A relay moves the events to the topic `orders`. The billing
service reads every message twice, as after a crash, and its inbox lets each have its effect once.
"""

import json
import sqlite3
import tempfile
import threading
from pathlib import Path

from confluent_kafka import Consumer

import strandline
from strandline import inbox, outbox

ORDERS = 20


def place_orders(database: Path) -> None:
    """Write orders and events; each fifth order is rolled back, and its event with it."""
    with sqlite3.connect(database) as shop:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER)")
        outbox.create(shop)
    for order in range(ORDERS):
        shop.execute("INSERT INTO orders VALUES (?, ?)", [order, 10])
        outbox.add(shop, "orders", order, {"order": order, "total": 10})
        if order % 5 == 4:
            shop.rollback()
        else:
            shop.commit()
    shop.close()


def bill(bootstrap: str, database: Path, count: int) -> int:
    """Book each order, and return the sum of all."""
    billing = sqlite3.connect(database)
    billing.execute("CREATE TABLE bookings (order_id INTEGER, total INTEGER)")
    inbox.create(billing)
    billing.commit()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    seen = 0
    while seen < count:
        message = consumer.poll(0.5)
        if message is None or message.error():
            continue
        seen += 1
        for _ in range(2):
            with billing:
                if inbox.once(billing, message, consumer="billing"):
                    event = json.loads(message.value())
                    billing.execute("INSERT INTO bookings VALUES (?, ?)", [event["order"], event["total"]])
    consumer.close()
    (total,) = billing.execute("SELECT sum(total) FROM bookings").fetchone()
    billing.close()
    return int(total)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, strandline.embedded() as log:
        log.create_topic("orders", 3)
        shop = Path(directory) / "shop.db"
        place_orders(shop)
        relay = outbox.OutboxRelay(f"sqlite:///{shop}", log.bootstrap)
        working = threading.Thread(target=relay.run)
        working.start()
        try:
            kept = ORDERS - ORDERS // 5
            total = bill(log.bootstrap, Path(directory) / "billing.db", kept)
        finally:
            relay.stop()
            working.join()
        print(f"{kept} orders of {ORDERS} were committed, and {total} was booked: {10 * kept} is right")


if __name__ == "__main__":
    main()
