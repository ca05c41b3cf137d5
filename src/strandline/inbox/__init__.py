"""Consumers whose effect on a database happens once, however often a message is delivered.

    from strandline import inbox

    with Session(engine) as session, session.begin():
        if inbox.once(session, message, consumer="billing"):
            session.add(Invoice(...))

The id of the message is inserted in the transaction of the effect, so both are there or neither is.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strandline.inbox.receiving import create, downgrade, once, prune, upgrade
    from strandline.outbox.tables import inbox_ddl as ddl

__all__ = ["create", "ddl", "downgrade", "once", "prune", "upgrade"]

_LAZY = {"ddl": "inbox_ddl"} | {each: each for each in __all__ if each != "ddl"}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module 'strandline.inbox' has no attribute {name!r}")
    from strandline.inbox import receiving

    # Kept, so that the next look is one into the module.
    return globals().setdefault(name, getattr(receiving, _LAZY[name]))
