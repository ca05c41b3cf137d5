"""A guard against effects that run twice because a group was rewound: mails, payments, calls of other services.

    guard = effects.install({"bootstrap.servers": "localhost:9092", "group.id": "mailers"})
    for message in consumer:
        if effects.allowed(message):
            send_mail(message)
        effects.done(message)
    guard.flush()                           # before the consumer commits its offsets

The group's highest offset whose effects ran is kept on the log. It only grows, whatever happens to committed offsets.
docs/outbox.md tells what the guard does not do.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strandline.effects.failures import EffectsUnknown
    from strandline.effects.guard import EffectsGuard, allowed, done, guarded, guarding, install
    from strandline.effects.messages import id_of, place_of

__all__ = ["EffectsGuard", "EffectsUnknown", "allowed", "done", "guarded", "guarding", "id_of", "install", "place_of"]

_LAZY = {
    "EffectsGuard": "guard",
    "EffectsUnknown": "failures",
    "allowed": "guard",
    "done": "guard",
    "guarded": "guard",
    "guarding": "guard",
    "install": "guard",
    "id_of": "messages",
    "place_of": "messages",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module 'strandline.effects' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"strandline.effects.{_LAZY[name]}"), name)
