"""A shop of three services with outboxes, inboxes and a read model, under chaos: money is neither lost nor made."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.cli.conftest import CommandLine
from tests.connect.postgres_server import PostgresServer
from tests.connect.running import wait_until
from tests.connect.worker_processes import WorkerProcess

import strandline
from strandline.local.embedded_broker import EmbeddedBroker

SHOP = Path(__file__).resolve().parents[2] / "examples" / "shop_services"
SERVICES = ("orders", "stock", "payments")
DATABASES = (*SERVICES, "reports")
BROKER = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "num.partitions": "2",
}
WORKER = {
    "session_timeout_ms": "3000",
    "heartbeat_interval_ms": "500",
    "offset_storage_partitions": "1",
    "scheduled_rebalance_max_delay_ms": "0",
    "config_providers": "env",
    "config_providers_env_param_allowlist_pattern": "SHOP_.*",
}
CUSTOMERS = {"ana": 50_000, "bram": 20_000, "ciara": 3_000}
ARTICLES = {"lamp": 30, "rope": 1_000, "cap": 5}
PRICES = {"lamp": 610, "rope": 189, "cap": 320}


class Shop:
    """The parts of the shop, each of which can be killed; what was killed is started again."""

    def __init__(self, directory: Path, server: PostgresServer, log: EmbeddedBroker) -> None:
        self.server, self.log = server, log
        self._directory = directory
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.environ = {
            "SHOP_HOST": str(server.root),
            "SHOP_USER": "postgres",
            **{f"SHOP_{each.upper()}_URL": self.dsn(each) for each in DATABASES},
        }
        self.worker: WorkerProcess | None = None

    def dsn(self, name: str) -> str:
        return self.server.dsn(name)

    def query(self, database: str, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            return connection.execute(statement.encode()).fetchall()

    def prepare(self) -> None:
        sys.path.insert(0, str(SHOP))
        try:
            import orders
            import payments
            import service
            import stock
        finally:
            sys.path.remove(str(SHOP))
        self.place: Callable[..., None] = orders.place
        with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
            for each in DATABASES:
                connection.execute(f'create database "{each}"'.encode())
        for name, module in zip(SERVICES, (orders, stock, payments), strict=True):
            service.prepare(self.dsn(name), *module.TABLES)
        with psycopg.connect(self.dsn("payments")) as connection:
            for account in ({payments.SHOP: 0} | CUSTOMERS).items():
                connection.execute("insert into accounts values (%s, %s)", account)
        with psycopg.connect(self.dsn("stock")) as connection:
            for article in ARTICLES.items():
                connection.execute("insert into articles values (%s, %s)", article)

    def start(self, name: str) -> None:
        with (self._directory / f"{name}.log").open("ab") as output:
            self.processes[name] = subprocess.Popen(
                [sys.executable, str(SHOP / f"{name}.py"), self.dsn(name), self.log.bootstrap],
                stdout=output,
                stderr=output,
            )

    def start_worker(self) -> None:
        # The settings of connectors name variables of the worker.
        os.environ.update(self.environ)
        self.worker = WorkerProcess(self.log.bootstrap, self._directory / "worker.log", **WORKER).wait_ready()

    @property
    def cli(self) -> CommandLine:
        assert self.worker is not None
        made = CommandLine(self.log.bootstrap)
        made.environ |= self.environ
        made.environ["STRANDLINE_CONNECT_URL"] = self.worker.url
        made.options = ("--timeout", "60")
        return made

    def kill_service(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()
        self.start(name)

    def kill_worker(self) -> None:
        assert self.worker is not None
        self.worker.kill()
        self.worker.__exit__(None, None, None)
        self.start_worker()

    def kill_broker(self) -> None:
        self.log.kill()
        self.log.start()

    def kill_database(self) -> None:
        self.server.kill()
        self.server.start()

    def stop(self) -> None:
        for each in self.processes.values():
            each.kill()
            each.wait()
        if self.worker is not None:
            self.worker.__exit__(None, None, None)

    def check_alive(self) -> None:
        """Services handle what happens around them: they end only if they are killed."""
        for name, each in self.processes.items():
            assert each.poll() is None, (self._directory / f"{name}.log").read_text()[-2000:]


@contextmanager
def open_shop(directory: Path) -> Iterator[Shop]:
    with ExitStack() as ended:
        server = PostgresServer().start()
        ended.callback(server.remove)
        log = ended.enter_context(strandline.embedded(properties=BROKER))
        for topic in SERVICES:
            log.create_topic(topic, 2)
        shop = Shop(directory, server, log)
        ended.callback(shop.stop)
        shop.prepare()
        shop.start_worker()
        for name in SERVICES:
            shop.start(name)
        applied = shop.cli.run("connect", "apply", str(SHOP / "connectors.yaml"), "--yes")
        assert applied.status == 0, applied.stderr
        yield shop


class Customers:
    """Places orders from a seed; each is tried again until it is placed."""

    def __init__(self, shop: Shop, rng: random.Random, count: int, pause_s: float) -> None:
        self._shop, self._rng, self._count, self._pause_s = shop, rng, count, pause_s
        self.placed = 0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        for number in range(self._count):
            article = self._rng.choice(list(ARTICLES))
            quantity = self._rng.randint(1, 4)
            order = (number, self._rng.choice(list(CUSTOMERS)), article, quantity, quantity * PRICES[article])
            while not self._placed(order):
                time.sleep(0.1)
            self.placed = number + 1
            time.sleep(self._pause_s)

    def _placed(self, order: tuple[Any, ...]) -> bool:
        try:
            with psycopg.connect(self._shop.dsn("orders")) as connection:
                self._shop.place(connection, *order)
        except psycopg.OperationalError:
            return False
        return True

    def __enter__(self) -> Customers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()


def check(shop: Shop, count: int) -> None:
    """Wait until each order is in a final state, and check what must be true then."""

    def is_over() -> bool:
        shop.check_alive()
        open_orders = shop.query("orders", "select count(*) from orders where state = 'placed'")
        return open_orders == [(0,)] and not any(shop.query(each, "select 1 from outbox") for each in SERVICES)

    wait_until(is_over, "every order is paid or refused", 120)
    states = dict(shop.query("orders", "select state, count(*) from orders group by 1"))
    assert sum(states.values()) == count
    assert states.keys() == {"paid", "refused"}
    # Released stock follows a refused payment.
    refused = "select count(*) from reservations where is_held"
    wait_until(lambda: shop.query("stock", refused) == [(states["paid"],)], "refused orders hold no stock")
    assert shop.query("payments", "select sum(cents) from accounts") == [(sum(CUSTOMERS.values()),)]
    paid = shop.query("orders", "select id, cents from orders where state = 'paid' order by 1")
    assert shop.query("payments", "select order_id, cents from payments order by 1") == paid
    shops = shop.query("payments", "select cents from accounts where name = 'the shop'")
    assert shops == [(sum(cents for _, cents in paid),)]
    assert shop.query("payments", "select 1 from accounts where cents < 0") == []
    assert shop.query("stock", "select 1 from articles where available < 0") == []
    held = dict(shop.query("stock", "select article, sum(quantity) from reservations where is_held group by 1"))
    left = dict(shop.query("stock", "select name, available from articles"))
    assert {name: left[name] + held.get(name, 0) for name in left} == ARTICLES


def check_report(shop: Shop) -> None:
    """The read model has the rows of the service's table, and the digests say so."""
    ended = shop.cli.run("cdc", "verify", str(SHOP / "connectors.yaml"), "--source", "orders-changes", "--json")
    assert ended.status == 0, ended.stdout.decode() + ended.stderr
    (found,) = ended.objects
    statement = "select id, customer, article, quantity, cents, state, placed from orders order by id"
    expected = shop.query("orders", statement)
    assert found["rows"] == len(expected)
    assert shop.query("reports", statement) == expected


def run_chaos(directory: Path, seed: int, orders: int, faults: int, pause_s: float) -> None:
    rng = random.Random(seed)
    with open_shop(directory) as shop:
        with Customers(shop, rng, orders, pause_s) as customers:
            services = list(SERVICES)
            rng.shuffle(services)
            kinds: list[Callable[[], None]] = [
                lambda: shop.kill_service(services[0]),
                shop.kill_worker,
                shop.kill_broker,
                shop.kill_database,
                lambda: shop.kill_service(services[1]),
                lambda: shop.kill_service(services[2]),
            ]
            for number in range(faults):
                if number % len(kinds) == 0:
                    rng.shuffle(kinds)
                reached = orders * (number + 1) // (faults + 1)
                wait_until(lambda: customers.placed >= reached, f"{reached} orders are placed")  # noqa: B023
                kinds[number % len(kinds)]()
        check(shop, orders)
        check_report(shop)


@pytest.mark.slow
def test_a_quiet_shop_and_one_kill_of_each(tmp_path: Path) -> None:
    run_chaos(tmp_path, seed=27, orders=60, faults=6, pause_s=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_shop_under_chaos(tmp_path: Path, seed: int) -> None:
    run_chaos(tmp_path, seed, orders=600, faults=18, pause_s=0.05)
