"""kafka-python, which `conftest` imports before any test does: quiet, and without open sockets when it is closed.

Our warnings are errors, and two of them are its own. It reads its schemas by a deprecated call. And 3.0.12 closes a
connection only when its buffer is sent: if its loop ends before, the socket is left to the garbage collector, whose
warning then fails a test that has nothing to do with it.
"""

from __future__ import annotations

import socket
import warnings
from weakref import WeakKeyDictionary

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.net.selector import NetworkSelector
    from kafka.net.transport import KafkaTCPTransport

_close_transport = KafkaTCPTransport.close
_close_loop = NetworkSelector.close
_unsent: WeakKeyDictionary[NetworkSelector, list[socket.socket]] = WeakKeyDictionary()


def _close_when_sent(self: KafkaTCPTransport) -> None:
    _close_transport(self)
    if self._sock is not None:
        _unsent.setdefault(self._net, []).append(self._sock)


def _close_all(self: NetworkSelector) -> None:
    _close_loop(self)
    for each in _unsent.pop(self, ()):
        each.close()


KafkaTCPTransport.close = _close_when_sent
NetworkSelector.close = _close_all
