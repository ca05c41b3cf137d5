"""Families about the node itself: its loop, its disk, its process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from strandline._version import __version__
from strandline.broker.metrics.scrape import Scrape
from strandline.broker.network.descriptors import descriptors_max
from strandline.observability.exposition import Metric, Sample, label
from strandline.runtime import process

RUNNING: Final = 3
STOPPING: Final = 6
"""Kafka's numbers for the state of a broker."""


def _open_descriptors(_: Scrape) -> Iterator[Sample]:
    count = process.open_descriptors()
    if count is not None:
        yield "", count


def _certificates(scrape: Scrape) -> Iterator[Sample]:
    tls = scrape.node.tls
    for name, listener in () if tls is None else tls.by_listener.items():
        if listener.contexts.certificate is not None:
            yield label(listener=name), listener.contexts.certificate.ends_s


FAMILIES: Final[tuple[Metric[Scrape], ...]] = (
    Metric(
        "strandline_tls_certificate_expiry_timestamp_seconds",
        "gauge",
        "When the certificate of a listener ends, in seconds since 1970; a node warns from 30 days before on.",
        _certificates,
        ("listener",),
        public=True,
    ),
    Metric(
        "strandline_build",
        "gauge",
        "Always 1; the labels say which version runs.",
        lambda scrape: [
            (
                label(
                    version=__version__,
                    python=".".join(map(str, sys.version_info[:3])),
                    node_id=scrape.node.node_id,
                    cluster_id=scrape.node.cluster_id,
                ),
                1,
            )
        ],
        ("version", "python", "node_id", "cluster_id"),
        public=True,
    ),
    Metric(
        "kafka_server_kafkaserver_brokerstate",
        "gauge",
        "3 while the node serves, 6 while it stops.",
        lambda scrape: [("", STOPPING if scrape.node.dispatcher.limits.is_stopping else RUNNING)],
        public=True,
    ),
    Metric(
        "kafka_controller_kafkacontroller_activecontrollercount",
        "gauge",
        "1 if this node is the active controller and its metadata log works.",
        lambda scrape: [("", int(scrape.node.metadata.log.failure is None))],
        public=True,
    ),
    Metric(
        "strandline_metadata_applied_offset",
        "gauge",
        "The offset of the metadata log up to which the node knows the cluster.",
        lambda scrape: [("", scrape.node.image.applied_offset)],
        public=True,
    ),
    Metric(
        "strandline_loop_stalls_total",
        "counter",
        "Times that the loop did not turn for more than 20 ms; no request is served meanwhile.",
        lambda scrape: [("", scrape.node.watchdog.stalls)],
        public=True,
    ),
    Metric(
        "strandline_loop_stall_seconds_total",
        "counter",
        "How long those stalls were, together.",
        lambda scrape: [("", scrape.node.watchdog.stalled_s)],
        public=True,
    ),
    Metric(
        "strandline_loop_stall_longest_seconds",
        "gauge",
        "The longest stall since the start.",
        lambda scrape: [("", scrape.node.watchdog.longest_s)],
        public=True,
    ),
    Metric(
        "strandline_loop_stall_computed_longest_seconds",
        "gauge",
        "What of a stall was our own computing, at least, in the worst one; the rest was the machine's.",
        lambda scrape: [("", scrape.node.watchdog.computed_s)],
        public=True,
    ),
    Metric(
        "strandline_loop_lag_seconds",
        "gauge",
        "How late the loop was at the last look, 40 times a second: what every request waits on top.",
        lambda scrape: [("", scrape.node.watchdog.lag_s)],
        public=True,
    ),
    Metric(
        "kafka_log_logflushstats_flushes_total",
        "counter",
        "Flushes of single logs.",
        lambda scrape: [("", scrape.node.flusher.flushes_started)],
        public=True,
    ),
    Metric(
        "strandline_flush_trips_total",
        "counter",
        "Trips to a thread for flushes; one trip may flush many logs.",
        lambda scrape: [("", scrape.node.flusher.trips)],
        public=True,
    ),
    Metric(
        "strandline_flush_trip_seconds_total",
        "counter",
        "How long those trips took, together: by the number of trips, what a producer waits for a disk.",
        lambda scrape: [("", scrape.node.flusher.trips_s)],
        public=True,
    ),
    Metric(
        "strandline_flush_trip_longest_seconds",
        "gauge",
        "The longest trip since the start.",
        lambda scrape: [("", scrape.node.flusher.trip_longest_s)],
        public=True,
    ),
    Metric(
        "strandline_flushes_under_way",
        "gauge",
        "Flushes that run now.",
        lambda scrape: [("", scrape.node.flusher.under_way)],
        public=True,
    ),
    Metric(
        "strandline_logs_waiting_for_flush",
        "gauge",
        "Logs that wait for a flush to begin.",
        lambda scrape: [("", scrape.node.flusher.waiting)],
        public=True,
    ),
    Metric(
        "strandline_open_segment_files",
        "gauge",
        "Files of segments that are open; the limit is open.files.max.",
        lambda scrape: [("", len(scrape.node.directory.open_files))],
        public=True,
    ),
    Metric(
        "strandline_gc_pauses_total",
        "counter",
        "Runs of Python's garbage collector.",
        lambda scrape: [("", scrape.node.gc_pauses.pauses)],
        public=True,
    ),
    Metric(
        "strandline_gc_pause_seconds_total",
        "counter",
        "How long it ran, together; the loop stands still meanwhile.",
        lambda scrape: [("", scrape.node.gc_pauses.total_s)],
        public=True,
    ),
    Metric(
        "strandline_gc_pause_longest_seconds",
        "gauge",
        "Its longest run since the start.",
        lambda scrape: [("", scrape.node.gc_pauses.longest_s)],
        public=True,
    ),
    Metric(
        "process_cpu_seconds_total",
        "counter",
        "CPU time of the process, user and system.",
        lambda scrape: [("", process.cpu_seconds())],
        public=True,
    ),
    Metric(
        "process_resident_memory_bytes",
        "gauge",
        "Memory that is resident.",
        lambda scrape: [("", process.resident_bytes())],
        public=True,
    ),
    Metric(
        "process_start_time_seconds",
        "gauge",
        "When the node was started, since the epoch.",
        lambda scrape: [("", scrape.node.started_ms / 1000)],
        public=True,
    ),
    Metric("process_open_fds", "gauge", "Open descriptors.", _open_descriptors, public=True),
    Metric(
        "process_max_fds",
        "gauge",
        "Descriptors that the process may have.",
        lambda scrape: [("", descriptors_max())],
        public=True,
    ),
)
