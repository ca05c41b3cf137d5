"""Create the tables outbox and inbox."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations  # type: ignore[import-untyped]

from strandline.outbox.tables import inbox_ddl, outbox_ddl, outbox_drop_ddl


def create(apps: Any, schema_editor: Any) -> None:
    """Create both tables with the statements of the database's dialect."""
    dialect = schema_editor.connection.vendor
    for each in (*outbox_ddl(dialect), *inbox_ddl(dialect)):
        schema_editor.execute(each, params=None)


def drop(apps: Any, schema_editor: Any) -> None:
    """Drop both tables, with the events that were not sent."""
    for each in (*outbox_drop_ddl(schema_editor.connection.vendor), "DROP TABLE IF EXISTS inbox"):
        schema_editor.execute(each, params=None)


class Migration(migrations.Migration):  # type: ignore[misc]
    """The first state of both tables."""

    initial = True
    dependencies: ClassVar[list[Any]] = []
    operations: ClassVar[list[Any]] = [migrations.RunPython(create, drop)]
