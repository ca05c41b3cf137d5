"""The table of what is served: API key, name, versions, the module that answers, and on which listeners.

Clients come by the `BROKER` listener; brokers and controllers that want a controller come by the `CONTROLLER` one. What
only the active controller can answer, a broker hands on to it in an Envelope if a client asks (`is_forwarded`); and a
controller that is not active says NOT_CONTROLLER (`for_active`).

Modules and message classes are imported at the first request of their kind, so that a node starts in a fraction of a
second. `tests/tidy` holds the table equal to what the modules say of themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple

from strandline.codec.message import VERSION_LAST
from strandline.codec.wire import ELEMENTS_MAX
from strandline.handlers import k00_produce, k01_fetch
from strandline.observability.request_meter import RequestMeter

Hot = Callable[..., None]
Plain = Callable[..., bool]
"""As `Hot`, but it may leave a request, by False, to the handler of the decoded message."""
Watch = Callable[[Any, Any], Any]
"""Takes the context of a request and the request, and returns the context to answer it by."""

GROUP_ELEMENTS_MAX: Final = 8_000
"""Members or protocols that one request about a group may name: a group decides about all of them in one step."""

CREDENTIAL_ELEMENTS_MAX: Final = 2_000
"""Credentials that one request may alter: the controller derives the keys of all of them in one turn."""

AUDIT_ELEMENTS_MAX: Final = 1_000
"""Lines that one request may append to the audit topic, and partitions whose last anchors it may ask for."""

NEVER: Final = VERSION_LAST + 1
"""Where no version of an API is flexible."""

BROKER: Final = "broker"
CONTROLLER: Final = "controller"
BOTH: Final = (BROKER, CONTROLLER)

OWN_APIS_FROM: Final = 20_000
"""From here on keys are ours, far above Kafka's; a client passes over keys that it does not know."""

TELEMETRY_APIS = (71, 72)
"""Advertised only by a broker that shows what clients push."""


class Handler(NamedTuple):
    request_class: Any
    handle: Callable[[Any, Any], Any]


class Route:
    """One API. `advertised_min` is below `version_min` where clients need to see more than is served."""

    __slots__ = (
        "_handler",
        "_module",
        "advertised_min",
        "api_key",
        "elements_max",
        "flexible_from",
        "for_active",
        "hot",
        "is_advertised",
        "is_forwarded",
        "listeners",
        "meter",
        "name",
        "plain",
        "requests",
        "version_max",
        "version_min",
        "watch",
    )

    def __init__(
        self,
        api_key: int,
        name: str,
        versions: tuple[int, int],
        flexible_from: int,
        module: str,
        *,
        hot: Hot | None = None,
        advertised_min: int | None = None,
        elements_max: int = ELEMENTS_MAX,
        listeners: tuple[str, ...] = (BROKER,),
        is_forwarded: bool = False,
        for_active: bool | None = None,
    ) -> None:
        self.api_key = api_key
        self.name = name
        self.version_min, self.version_max = versions
        self.advertised_min = self.version_min if advertised_min is None else advertised_min
        self.is_advertised = True
        self.flexible_from = flexible_from
        self.hot = hot
        self.plain: Plain | None = None
        """Of a module that has a short way for some of its requests; found when the module is loaded."""
        self.elements_max = elements_max
        self.listeners = listeners
        self.is_forwarded = is_forwarded
        self.for_active = is_forwarded if for_active is None else for_active
        self.requests = 0
        """All that were begun."""
        self.meter: RequestMeter | None = None
        """What counts its requests; None if metrics are off."""
        self.watch: Watch | None = None
        """Returns the context of a request whose answer is recorded; None if nothing is."""
        self._module = module
        self._handler: Handler | None = None

    @property
    def module_name(self) -> str:
        return f"strandline.handlers.{self._module}"

    @property
    def snake_name(self) -> str:
        return self._module.split("_", 1)[1]

    def load(self) -> Handler:
        if self._handler is None:
            snake = re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()
            message = import_module(f"strandline.codec.messages.{snake}_request")
            module = import_module(self.module_name)
            self._handler = Handler(getattr(message, f"{self.name}Request"), module.handle)
            self.plain = getattr(module, "start_plain", None)
        return self._handler


def routes(listener: str = BROKER) -> dict[int, Route]:
    """A fresh table of what such a listener serves: it counts requests, so every listener of a node has its own."""
    return {route.api_key: route for route in _table() if listener in route.listeners}


def _late(module: str) -> Hot:
    """Return the `start` of a handler that is imported when it is first called: few brokers need it."""

    def start(*arguments: Any) -> None:
        import_module(f"strandline.handlers.{module}").start(*arguments)

    return start


def _table() -> list[Route]:
    # Produce is advertised from version 0 because librdkafka takes its absence for a broker without compression.
    return [
        Route(0, "Produce", (3, 13), 9, "k00_produce", hot=k00_produce.start, advertised_min=0),
        Route(1, "Fetch", (4, 18), 12, "k01_fetch", hot=k01_fetch.start),
        Route(1, "Fetch", (4, 18), 12, "support.fetching.metadata_fetch", listeners=(CONTROLLER,)),
        Route(2, "ListOffsets", (1, 11), 6, "k02_list_offsets"),
        Route(3, "Metadata", (0, 13), 9, "k03_metadata"),
        Route(8, "OffsetCommit", (2, 10), 8, "k08_offset_commit"),
        Route(9, "OffsetFetch", (1, 10), 6, "k09_offset_fetch"),
        Route(10, "FindCoordinator", (0, 6), 3, "k10_find_coordinator"),
        Route(11, "JoinGroup", (0, 9), 6, "k11_join_group", elements_max=GROUP_ELEMENTS_MAX),
        Route(12, "Heartbeat", (0, 4), 4, "k12_heartbeat"),
        Route(13, "LeaveGroup", (0, 5), 4, "k13_leave_group", elements_max=GROUP_ELEMENTS_MAX),
        Route(14, "SyncGroup", (0, 5), 4, "k14_sync_group", elements_max=GROUP_ELEMENTS_MAX),
        Route(15, "DescribeGroups", (0, 6), 5, "k15_describe_groups"),
        Route(16, "ListGroups", (0, 5), 3, "k16_list_groups"),
        Route(17, "SaslHandshake", (0, 1), NEVER, "k17_sasl_handshake", listeners=BOTH),
        Route(18, "ApiVersions", (0, 4), 3, "k18_api_versions", listeners=BOTH),
        Route(19, "CreateTopics", (2, 7), 5, "k19_create_topics", listeners=BOTH, is_forwarded=True),
        Route(20, "DeleteTopics", (1, 6), 4, "k20_delete_topics", listeners=BOTH, is_forwarded=True),
        Route(21, "DeleteRecords", (0, 2), 2, "k21_delete_records"),
        Route(22, "InitProducerId", (0, 5), 2, "k22_init_producer_id"),
        Route(23, "OffsetForLeaderEpoch", (2, 4), 4, "k23_offset_for_leader_epoch"),
        Route(24, "AddPartitionsToTxn", (0, 5), 3, "k24_add_partitions_to_txn"),
        Route(25, "AddOffsetsToTxn", (0, 4), 3, "k25_add_offsets_to_txn"),
        Route(26, "EndTxn", (0, 5), 3, "k26_end_txn"),
        Route(27, "WriteTxnMarkers", (1, 2), 1, "k27_write_txn_markers"),
        Route(28, "TxnOffsetCommit", (0, 5), 3, "k28_txn_offset_commit"),
        Route(29, "DescribeAcls", (1, 3), 2, "k29_describe_acls", listeners=BOTH),
        Route(30, "CreateAcls", (1, 3), 2, "k30_create_acls", listeners=BOTH, is_forwarded=True),
        Route(31, "DeleteAcls", (1, 3), 2, "k31_delete_acls", listeners=BOTH, is_forwarded=True),
        Route(32, "DescribeConfigs", (1, 4), 4, "k32_describe_configs", listeners=BOTH),
        Route(33, "AlterConfigs", (0, 2), 2, "k33_alter_configs", listeners=BOTH, is_forwarded=True),
        Route(35, "DescribeLogDirs", (1, 5), 2, "k35_describe_log_dirs"),
        Route(36, "SaslAuthenticate", (0, 2), 2, "k36_sasl_authenticate", listeners=BOTH),
        Route(37, "CreatePartitions", (0, 3), 2, "k37_create_partitions", listeners=BOTH, is_forwarded=True),
        Route(38, "CreateDelegationToken", (1, 3), 2, "k38_create_delegation_token", listeners=BOTH, is_forwarded=True),
        Route(39, "RenewDelegationToken", (1, 2), 2, "k39_renew_delegation_token", listeners=BOTH, is_forwarded=True),
        Route(40, "ExpireDelegationToken", (1, 2), 2, "k40_expire_delegation_token", listeners=BOTH, is_forwarded=True),
        Route(41, "DescribeDelegationToken", (1, 3), 2, "k41_describe_delegation_token"),
        Route(42, "DeleteGroups", (0, 2), 2, "k42_delete_groups"),
        Route(43, "ElectLeaders", (0, 2), 2, "k43_elect_leaders", listeners=BOTH, is_forwarded=True),
        Route(
            44, "IncrementalAlterConfigs", (0, 1), 1, "k44_incremental_alter_configs", listeners=BOTH, is_forwarded=True
        ),
        Route(
            45,
            "AlterPartitionReassignments",
            (0, 1),
            0,
            "k45_alter_partition_reassignments",
            listeners=BOTH,
            is_forwarded=True,
        ),
        Route(
            46,
            "ListPartitionReassignments",
            (0, 0),
            0,
            "k46_list_partition_reassignments",
            listeners=BOTH,
            is_forwarded=True,
        ),
        Route(47, "OffsetDelete", (0, 0), NEVER, "k47_offset_delete"),
        Route(48, "DescribeClientQuotas", (0, 1), 1, "k48_describe_client_quotas"),
        Route(49, "AlterClientQuotas", (0, 1), 1, "k49_alter_client_quotas", listeners=BOTH, is_forwarded=True),
        Route(50, "DescribeUserScramCredentials", (0, 0), 0, "k50_describe_user_scram_credentials"),
        Route(
            51,
            "AlterUserScramCredentials",
            (0, 0),
            0,
            "k51_alter_user_scram_credentials",
            elements_max=CREDENTIAL_ELEMENTS_MAX,
            listeners=BOTH,
            is_forwarded=True,
        ),
        Route(52, "Vote", (0, 2), 0, "k52_vote", listeners=(CONTROLLER,)),
        Route(53, "BeginQuorumEpoch", (0, 1), 1, "k53_begin_quorum_epoch", listeners=(CONTROLLER,)),
        Route(54, "EndQuorumEpoch", (0, 1), 1, "k54_end_quorum_epoch", listeners=(CONTROLLER,)),
        # A controller that is not active answers this one itself, in the quorum's words.
        Route(
            55, "DescribeQuorum", (0, 2), 0, "k55_describe_quorum", listeners=BOTH, is_forwarded=True, for_active=False
        ),
        Route(56, "AlterPartition", (2, 3), 0, "k56_alter_partition", listeners=(CONTROLLER,), for_active=True),
        Route(57, "UpdateFeatures", (0, 2), 0, "k57_update_features", listeners=BOTH, is_forwarded=True),
        Route(58, "Envelope", (0, 0), 0, "k58_envelope", listeners=(CONTROLLER,), for_active=True),
        Route(59, "FetchSnapshot", (0, 1), 0, "k59_fetch_snapshot", listeners=(CONTROLLER,)),
        Route(60, "DescribeCluster", (0, 2), 0, "k60_describe_cluster", listeners=BOTH),
        Route(61, "DescribeProducers", (0, 0), 0, "k61_describe_producers"),
        Route(62, "BrokerRegistration", (0, 4), 0, "k62_broker_registration", listeners=(CONTROLLER,), for_active=True),
        Route(63, "BrokerHeartbeat", (0, 2), 0, "k63_broker_heartbeat", listeners=(CONTROLLER,), for_active=True),
        Route(64, "UnregisterBroker", (0, 0), 0, "k64_unregister_broker", listeners=BOTH, is_forwarded=True),
        Route(65, "DescribeTransactions", (0, 0), 0, "k65_describe_transactions"),
        Route(66, "ListTransactions", (0, 2), 0, "k66_list_transactions"),
        Route(
            67, "AllocateProducerIds", (0, 0), 0, "k67_allocate_producer_ids", listeners=(CONTROLLER,), for_active=True
        ),
        Route(68, "ConsumerGroupHeartbeat", (0, 1), 0, "k68_consumer_group_heartbeat"),
        Route(69, "ConsumerGroupDescribe", (0, 1), 0, "k69_consumer_group_describe"),
        Route(
            70,
            "ControllerRegistration",
            (0, 0),
            0,
            "k70_controller_registration",
            listeners=(CONTROLLER,),
            for_active=True,
        ),
        Route(71, "GetTelemetrySubscriptions", (0, 0), 0, "k71_get_telemetry_subscriptions"),
        Route(72, "PushTelemetry", (0, 0), 0, "k72_push_telemetry"),
        Route(
            73,
            "AssignReplicasToDirs",
            (0, 0),
            0,
            "k73_assign_replicas_to_dirs",
            listeners=(CONTROLLER,),
            for_active=True,
        ),
        Route(74, "ListConfigResources", (0, 1), 0, "k74_list_config_resources"),
        Route(75, "DescribeTopicPartitions", (0, 0), 0, "k75_describe_topic_partitions"),
        Route(76, "ShareGroupHeartbeat", (1, 1), 0, "k76_share_group_heartbeat"),
        Route(77, "ShareGroupDescribe", (1, 1), 0, "k77_share_group_describe"),
        Route(78, "ShareFetch", (1, 2), 0, "k78_share_fetch", hot=_late("k78_share_fetch")),
        Route(79, "ShareAcknowledge", (1, 2), 0, "k79_share_acknowledge", hot=_late("k79_share_acknowledge")),
        Route(83, "InitializeShareGroupState", (0, 0), 0, "k83_initialize_share_group_state"),
        Route(84, "ReadShareGroupState", (0, 0), 0, "k84_read_share_group_state"),
        Route(85, "WriteShareGroupState", (0, 1), 0, "k85_write_share_group_state"),
        Route(86, "DeleteShareGroupState", (0, 0), 0, "k86_delete_share_group_state"),
        Route(87, "ReadShareGroupStateSummary", (0, 1), 0, "k87_read_share_group_state_summary"),
        Route(90, "DescribeShareGroupOffsets", (0, 1), 0, "k90_describe_share_group_offsets"),
        Route(91, "AlterShareGroupOffsets", (0, 0), 0, "k91_alter_share_group_offsets"),
        Route(92, "DeleteShareGroupOffsets", (0, 0), 0, "k92_delete_share_group_offsets"),
        Route(20_000, "CommitBatch", (0, 0), 0, "k20000_commit_batch"),
        Route(20_001, "GroupHistory", (0, 0), 0, "k20001_group_history"),
        Route(20_002, "GroupLag", (0, 0), 0, "k20002_group_lag"),
        Route(20_003, "TransactionProgress", (0, 0), 0, "k20003_transaction_progress"),
        Route(20_004, "ListSinks", (0, 0), 0, "k20004_list_sinks"),
        Route(20_005, "DeleteSink", (0, 0), 0, "k20005_delete_sink"),
        Route(20_006, "RecordCounts", (0, 0), 0, "k20006_record_counts"),
        Route(20_007, "DescribeStorage", (0, 0), 0, "k20007_describe_storage"),
        Route(20_008, "CompactPartitions", (0, 0), 0, "k20008_compact_partitions"),
        Route(20_009, "ScrubPartitions", (0, 0), 0, "k20009_scrub_partitions"),
        Route(
            20_010,
            "ResignLeadership",
            (0, 0),
            0,
            "k20010_resign_leadership",
            listeners=(CONTROLLER,),
            for_active=True,
        ),
        Route(20_011, "AppendAudit", (0, 0), 0, "k20011_append_audit", elements_max=AUDIT_ELEMENTS_MAX),
        Route(20_012, "FindAnchors", (0, 0), 0, "k20012_find_anchors", elements_max=AUDIT_ELEMENTS_MAX),
        Route(20_013, "ShareDelivery", (0, 0), 0, "k20013_share_delivery"),
        Route(20_014, "MetricsHistory", (0, 0), 0, "k20014_metrics_history"),
    ]
