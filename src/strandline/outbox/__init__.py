"""Events that are sent if, and only if, the transaction that they belong to commits.

    from strandline import outbox

    with Session(engine) as session, session.begin():
        session.add(order)
        outbox.add(session, "orders", order.id, {"total": 12})

A relay moves them to their topics, each once: `OutboxRelay`, the connector `OutboxSource`, or change data capture with
the outbox event router. docs/outbox.md tells which one fits.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strandline.outbox.adding import add, create, downgrade, emit, upgrade
    from strandline.outbox.events import EventInvalid
    from strandline.outbox.relay import OutboxRelay, RelaySettings
    from strandline.outbox.sessions import NotInTransaction
    from strandline.outbox.tables import outbox_ddl as ddl

__all__ = [
    "EventInvalid",
    "NotInTransaction",
    "OutboxRelay",
    "RelaySettings",
    "add",
    "create",
    "ddl",
    "downgrade",
    "emit",
    "upgrade",
]

_LAZY = {
    "EventInvalid": ("events", "EventInvalid"),
    "NotInTransaction": ("sessions", "NotInTransaction"),
    "OutboxRelay": ("relay", "OutboxRelay"),
    "RelaySettings": ("relay", "RelaySettings"),
    "add": ("adding", "add"),
    "create": ("adding", "create"),
    "ddl": ("tables", "outbox_ddl"),
    "downgrade": ("adding", "downgrade"),
    "emit": ("adding", "emit"),
    "upgrade": ("adding", "upgrade"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: a program that only adds events loads no client of the log."""
    if name not in _LAZY:
        raise AttributeError(f"module 'strandline.outbox' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _LAZY[name]
    return getattr(import_module(f"strandline.outbox.{module}"), attribute)
