"""Families about requests and connections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.broker.metrics.scrape import Scrape
from strandline.errors import ErrorCode
from strandline.observability.exposition import Histogram, Metric, Sample, Timing, label
from strandline.observability.request_meter import RequestMeter

SOFTWARE_SHOWN_MAX: Final = 32
"""Names and versions of client software with a line of their own; the others are one line together."""


def _meters(scrape: Scrape) -> Iterator[RequestMeter]:
    for route in scrape.node.routes.values():
        if route.meter is not None and route.requests:
            yield route.meter


def _requests(scrape: Scrape) -> Iterator[Sample]:
    for route in scrape.node.routes.values():
        if route.requests:
            yield label(request=route.name), route.requests


def _errors(scrape: Scrape) -> Iterator[Sample]:
    for meter in _meters(scrape):
        for code, count in list(meter.errors.items()):
            yield label(request=meter.name, error=_error_name(code)), count


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _request_bytes(scrape: Scrape) -> Iterator[Sample]:
    return ((label(request=meter.name), meter.request_bytes) for meter in _meters(scrape) if meter.name != "Produce")


def _response_bytes(scrape: Scrape) -> Iterator[Sample]:
    return ((label(request=meter.name), meter.response_bytes) for meter in _meters(scrape) if meter.name != "Produce")


def _times(scrape: Scrape) -> Iterator[Timing]:
    for meter in _meters(scrape):
        if any(meter.at_once):
            yield label(request=meter.name, waited="no"), meter.at_once, meter.at_once_ns
        if any(meter.waited):
            yield label(request=meter.name, waited="yes"), meter.waited, meter.waited_ns


def _unanswered(scrape: Scrape) -> Iterator[Sample]:
    return ((label(request=meter.name), meter.unanswered) for meter in _meters(scrape) if meter.unanswered)


def _purgatory(scrape: Scrape) -> Iterator[Sample]:
    if scrape.node.dispatcher.clock_ns is None:
        return
    for name in sorted({"Produce", "Fetch"} | set(scrape.waiting)):
        yield label(delayedoperation=name), scrape.waiting[name]


def _failed_requests(api_key: int, scrape: Scrape) -> Iterator[Sample]:
    meter = scrape.node.routes[api_key].meter
    if meter is not None:
        yield "", sum(meter.errors.values())


def _software(scrape: Scrape) -> Iterator[Sample]:
    shown = scrape.software.most_common(SOFTWARE_SHOWN_MAX)
    for (name, version), count in shown:
        yield label(client_software_name=name, client_software_version=version), count
    others = sum(scrape.software.values()) - sum(count for _, count in shown)
    if others:
        yield label(client_software_name="others", client_software_version=""), others


def _refusals(scrape: Scrape) -> Iterator[Sample]:
    return ((label(reason=kind), count) for kind, count in scrape.node.dispatcher.limits.refusals.items())


def _audit_lines(scrape: Scrape) -> Iterator[Sample]:
    audit = scrape.node.audit
    if audit is not None:
        yield label(result="written"), audit.log.written
        yield label(result="lost"), audit.log.lost


def _logins(scrape: Scrape) -> Iterator[Sample]:
    sasl = scrape.node.dispatcher.sasl
    if sasl is not None:
        for result, counts in sasl.logins().items():
            for mechanism, count in sorted(counts.items()):
                yield label(mechanism=mechanism, result=result), count


def _expired(scrape: Scrape) -> Iterator[Sample]:
    sasl = scrape.node.dispatcher.sasl
    if sasl is not None:
        yield "", sasl.expired


FAMILIES: Final[tuple[Metric[Scrape] | Histogram[Scrape], ...]] = (
    Metric(
        "kafka_network_requestmetrics_requests_total",
        "counter",
        "Requests that were begun, by API.",
        _requests,
        ("request",),
        public=True,
    ),
    Metric(
        "kafka_network_requestmetrics_errors_total",
        "counter",
        "Error codes in answers: one for each partition, topic or request that was answered with it.",
        _errors,
        ("request", "error"),
        public=True,
    ),
    Histogram(
        "kafka_network_requestmetrics_totaltime_seconds",
        "From the last byte of a request to its answer. waited=no: answered in the turn of the loop in which it came; "
        "on a busy node a quarter of these are timed. waited=yes: it had to wait for a flush, for records, for members "
        "of a group.",
        _times,
        ("request", "waited"),
        public=True,
    ),
    Metric(
        "kafka_network_requestmetrics_requestbytes_total",
        "counter",
        "Bytes of requests, without their headers; for Produce see kafka_server_brokertopicmetrics_bytesin_total.",
        _request_bytes,
        ("request",),
        public=True,
    ),
    Metric(
        "kafka_network_requestmetrics_responsebytes_total",
        "counter",
        "Bytes of answers, without their headers; of all but Produce, whose answers have a few bytes each.",
        _response_bytes,
        ("request",),
        public=True,
    ),
    Metric(
        "kafka_network_requestmetrics_unanswered_total",
        "counter",
        "Requests without an answer: Produce with acks=0, and clients that hung up first.",
        _unanswered,
        ("request",),
    ),
    Metric(
        "kafka_server_brokertopicmetrics_failedproducerequests_total",
        "counter",
        "Partitions of Produce requests that were answered with an error.",
        lambda scrape: _failed_requests(0, scrape),
        public=True,
    ),
    Metric(
        "kafka_server_brokertopicmetrics_failedfetchrequests_total",
        "counter",
        "Partitions of Fetch requests that were answered with an error.",
        lambda scrape: _failed_requests(1, scrape),
        public=True,
    ),
    Metric(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "gauge",
        "Requests that wait: for their records to be committed, for records to come, for other members.",
        _purgatory,
        ("delayedoperation",),
        public=True,
    ),
    Metric(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "gauge",
        "Incremental fetch sessions.",
        lambda scrape: [("", len(scrape.node.sessions))],
        public=True,
    ),
    Metric(
        "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
        "gauge",
        "Partitions that the fetch sessions remember.",
        lambda scrape: [("", scrape.node.sessions.partitions)],
        public=True,
    ),
    Metric(
        "kafka_network_socketserver_memorypoolused_bytes",
        "gauge",
        "Bytes of requests that are not complete, or wait behind another; the limit is queued.max.request.bytes.",
        lambda scrape: [("", scrape.node.dispatcher.limits.inbox_bytes)],
        public=True,
    ),
    Metric(
        "strandline_connections",
        "gauge",
        "Open connections of clients.",
        lambda scrape: [("", len(scrape.node.dispatcher.limits.connections))],
        public=True,
    ),
    Metric(
        "strandline_connections_accepted_total",
        "counter",
        "Connections that were taken.",
        lambda scrape: [("", scrape.node.dispatcher.limits.accepted)],
        public=True,
    ),
    Metric(
        "strandline_connections_refused_total",
        "counter",
        "Connections that were hung up on. limit: one too many; protocol: it does not speak it; deadline: silent, or "
        "too slow with a request; memory: slow while memory for requests or answers is short; authentication: no "
        "valid login; rate: its address opens more connections than its quota allows.",
        _refusals,
        ("reason",),
        public=True,
    ),
    Metric(
        "strandline_connections_idle_closed_total",
        "counter",
        "Connections that were closed after connections.max.idle.ms.",
        lambda scrape: [("", scrape.node.dispatcher.limits.idle_closed)],
    ),
    Metric(
        "strandline_connections_by_software",
        "gauge",
        "Open connections by what clients call themselves (ApiVersions 3 and later).",
        _software,
        ("client_software_name", "client_software_version"),
    ),
    Metric(
        "strandline_logins_total",
        "counter",
        "Logins of clients by SASL. success: authenticated; renewal: again on the same connection; failure: rejected.",
        _logins,
        ("mechanism", "result"),
        public=True,
    ),
    Metric(
        "strandline_audit_lines_total",
        "counter",
        "Lines of the audit topic that this node made. written: on the topic; lost: one too many in the queue.",
        _audit_lines,
        ("result",),
        public=True,
    ),
    Metric(
        "strandline_audit_lines_queued",
        "gauge",
        "Lines that wait to be written to the audit topic.",
        lambda scrape: [] if scrape.node.audit is None else [("", scrape.node.audit.log.queued)],
        public=True,
    ),
    Metric(
        "strandline_sessions_expired_total",
        "counter",
        "Connections that were closed because they did not authenticate again in time (connections.max.reauth.ms).",
        _expired,
    ),
)
