"""Finds the error codes anywhere in a response, for the APIs that are not encoded by hand."""

from __future__ import annotations

from typing import Any

from strandline.codec.message import Message
from strandline.observability.request_meter import RequestMeter

Plan = tuple[bool, tuple[tuple[str, "Plan"], ...]]
"""Whether the struct itself has an error code, and its arrays of structs that contain one."""

_plans: dict[type[Message], Plan] = {}


def count_errors(meter: RequestMeter, response: Message) -> None:
    _count(meter, response, _plan_of(response))


def carries_error(response: Message, code: int) -> bool:
    """Return whether the response, or a part of it, has this code."""
    return _carries(response, _plan_of(response), int(code))


def _carries(message: Any, plan: Plan, code: int) -> bool:
    has_code, arrays = plan
    return (has_code and message.error_code == code) or any(
        _carries(element, inner, code) for name, inner in arrays for element in getattr(message, name) or ()
    )


def _plan_of(response: Message) -> Plan:
    plan = _plans.get(type(response))
    if plan is None:
        plan = _plans[type(response)] = _plan(type(response))
    return plan


def _count(meter: RequestMeter, message: Any, plan: Plan) -> None:
    has_code, arrays = plan
    if has_code and message.error_code:
        meter.count_error(message.error_code)
    for name, inner in arrays:
        for element in getattr(message, name) or ():
            _count(meter, element, inner)


def _plan(message_class: type[Message]) -> Plan:
    arrays = []
    for field in message_class.FIELDS:
        if field.struct is not None and field.kafka_type.startswith("[]"):
            inner = _plan(field.struct)
            if inner[0] or inner[1]:
                arrays.append((field.name, inner))
    return any(field.name == "error_code" for field in message_class.FIELDS), tuple(arrays)
