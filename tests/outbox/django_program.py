"""A Django program that migrates, adds events and receives a message. Arguments: vendor, and file or DSN."""

from __future__ import annotations

import sys

import django
import pytest
from django.conf import settings
from django.core.management import call_command


def main(vendor: str, database: str) -> None:
    given = {"ENGINE": f"django.db.backends.{vendor.replace('sqlite', 'sqlite3')}", "NAME": database}
    if vendor == "postgresql":
        parts = dict(each.split("=") for each in database.split())
        given |= {"NAME": parts["dbname"], "USER": parts["user"], "HOST": parts["host"]}
    settings.configure(DATABASES={"default": given}, INSTALLED_APPS=["strandline.outbox.django"])
    django.setup()
    from django.db import connection, transaction

    from strandline import inbox, outbox
    from strandline.queue import QueueTask

    call_command("migrate", verbosity=0)
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
    with pytest.raises(outbox.NotInTransaction, match=r"transaction\.atomic"):
        outbox.add(None, "orders", 0, {})
    try:
        with transaction.atomic():
            outbox.add(None, "orders", 1, {})
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    message = QueueTask("orders", 0, 7, None, b"", (), 0, 1)
    with transaction.atomic():
        outbox.add(None, "orders", 2, {"a": "100 %"})
        outbox.add(connection, "orders", 3, {})
        found = [inbox.once(connection, message), inbox.once("default", message)]
    with connection.cursor() as cursor:
        cursor.execute("SELECT aggregatetype, aggregateid FROM outbox ORDER BY seq")
        rows = [tuple(row) for row in cursor.fetchall()]
    call_command("migrate", "strandline_outbox", "zero", verbosity=0)
    assert not {"outbox", "inbox"} & set(connection.introspection.table_names())
    connection.close()
    print(rows, *found)


if __name__ == "__main__":
    main(*sys.argv[1:])
