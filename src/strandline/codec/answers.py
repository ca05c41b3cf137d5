"""Which message answers which."""

from __future__ import annotations

from importlib import import_module

from strandline.codec.message import Message

_response_classes: dict[type[Message], type[Message]] = {}


def response_class(request_class: type[Message]) -> type[Message]:
    """Return the class of the answer to such a request."""
    found = _response_classes.get(request_class)
    if found is None:
        module = import_module(request_class.__module__.removesuffix("_request") + "_response")
        found = getattr(module, request_class.__name__.removesuffix("Request") + "Response")
        _response_classes[request_class] = found
    return found
