"""Where we and Apache Kafka 4.3.1 do not say the same, each with its reason. `docs/differences.md` is made from this.

A case that differs and is not listed fails the test, and so does one that is listed and no longer differs.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from tests.differential.comparison import EACH_QUESTION, NAMED_RECORD, OWN_SETTING, REFUSED, WORDS


class Difference(NamedTuple):
    cases: str
    """Names of cases; `*` stands for anything, `?` for one character."""
    ours: str
    theirs: str
    reason: str


AS_SENT = "Records are checked, and the header of a batch is stored as the producer wrote it."
UNREADABLE = "The decoders of some clients refuse it, ours among them: what they cannot read is not stored."
NOT_ITS_PLACE = (
    "Readers add the delta to the base offset of the batch. Kafka stores such a batch, and offsets are missing, double "
    "or of another batch."
)
AGAIN_IN_ORDER = (
    "An unknown producer that does not begin with sequence 0 has to send its batch again: one before it may have been "
    "refused, and would be overtaken (decision 0005)."
)
NO_SUCH_FEATURE = (
    "Only features that are there are told: neither changing voters nor groups of Kafka Streams are. Level 2 of "
    "`share.version` is that of dead letters (KIP-1191)."
)
HARMLESS = "Harmless: read as the nearest sound value."
NOTHING_ASKED = "A topic without partitions asks nothing; its name is still answered."
ONCE = "A group that is named twice is described once, so that an answer is never larger than all groups together."
NOTHING_TO_ASSIGN = (
    "When the last member has gone there is nothing left to assign, so the assignment is that of the group's epoch."
)
OWN_CODE = "The code that says what is wrong, where Kafka meets an exception of its own."
NOT_CLOSED = "A number that means nothing gets an answer like any other; Kafka closes the connection."
NOTHING_TO_SAY = (
    "An answer has no partition about which there is nothing to say; the first one of a Kafka session does."
)
KAFKA_HANGS = "Kafka meets an exception of its own and never answers."

NO_SUCH_OFFSET = "No log has an offset below 0, and -1 stands for none; Kafka stores it and counts a lag from it."
GENERAL: dict[str, str] = {
    WORDS: "An error comes with a sentence in more places (`error_message`): a reader of the log should know why.",
    OWN_SETTING: "Lists of settings have our own, as `flush.mode` and those that begin with `strandline.`, those of a "
    "registry (`confluent.`), and those of KIP-1191, which a later Kafka has.",
    EACH_QUESTION: "What stands twice in a request is refused as often as it stands there; Kafka refuses it once.",
    NAMED_RECORD: "A record that cannot be read is named (`record_errors`); Kafka names only those without a key.",
    REFUSED: "Of a batch that was refused no log start offset is told; it was not looked at.",
}
"""Differences of a kind, wherever they are met; they are not listed case by case."""

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "Metadata 1[01]: by id",
        "brokers [{host: a host, node_id: 1, port: a port}]; cluster_id a cluster_id; controller_id 1",
        "no brokers; no cluster_id; no controller_id",
        "The refusal comes with the brokers, as every other answer does.",
    ),
    Difference(
        "Metadata 1[01]: by id and name",
        "brokers [{host: a host, node_id: 1, port: a port}]; cluster_id a cluster_id; controller_id 1",
        "no brokers; no cluster_id; no controller_id",
        "The refusal comes with the brokers, as every other answer does.",
    ),
    Difference(
        "Metadata 1[01]: by an id and another name",
        "brokers [{host: a host, node_id: 1, port: a port}]; cluster_id a cluster_id; controller_id 1",
        "no brokers; no cluster_id; no controller_id",
        "The refusal comes with the brokers, as every other answer does.",
    ),
    Difference(
        "Metadata 1[01]: by an unknown id",
        "brokers [{host: a host, node_id: 1, port: a port}]; cluster_id a cluster_id; controller_id 1",
        "no brokers; no cluster_id; no controller_id",
        "The refusal comes with the brokers, as every other answer does.",
    ),
    Difference(
        "Metadata 1[01]: neither name nor id",
        "brokers [{host: a host, node_id: 1, port: a port}]; cluster_id a cluster_id; controller_id 1",
        "no brokers; no cluster_id; no controller_id",
        "The refusal comes with the brokers, as every other answer does.",
    ),
    Difference(
        "Metadata 12: neither name nor id",
        "no topics",
        "UNKNOWN_SERVER_ERROR",
        "Nothing was asked, so nothing is answered; Kafka meets an exception of its own.",
    ),
    Difference(
        "Metadata 13: neither name nor id",
        "ok; no topics",
        "UNKNOWN_SERVER_ERROR",
        "Nothing was asked, so nothing is answered; Kafka meets an exception of its own.",
    ),
    Difference(
        "Metadata *: a name that collides with one",
        "INVALID_TOPIC_EXCEPTION",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "The answer waits for the topic to be made, and says why it was not; Kafka answers before it is.",
    ),
    Difference(
        "ApiVersions 3: our APIs",
        "no finalized_features kraft.version; max_version_level 2; min_version_level 2; finalized_features...",
        "finalized_features kraft.version {max_version_level: 1, min_version_level: 1, name: kraft.version...",
        NO_SUCH_FEATURE,
    ),
    Difference(
        "ApiVersions 4: our APIs",
        "no finalized_features kraft.version; max_version_level 2; min_version_level 2; finalized_features...",
        "finalized_features kraft.version {max_version_level: 1, min_version_level: 1, name: kraft.version...",
        NO_SUCH_FEATURE,
    ),
    Difference(
        "DescribeTopicPartitions *: the empty name", "INVALID_TOPIC_EXCEPTION", "UNKNOWN_SERVER_ERROR", OWN_CODE
    ),
    Difference(
        "Produce *: sequence: the first of seven again",
        "ok",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "Ten batches of a producer are remembered, not five: its requests wait for their commit side by side.",
    ),
    Difference(
        "Produce *: first sequence of an unknown producer is not 0", "NOT_ENOUGH_REPLICAS", "ok", AGAIN_IN_ORDER
    ),
    Difference("Produce *: sequence: begins at *", "NOT_ENOUGH_REPLICAS", "ok", AGAIN_IN_ORDER),
    Difference("Produce 3: an old sequence, each version", "NOT_ENOUGH_REPLICAS", "ok", AGAIN_IN_ORDER),
    Difference(
        "Produce 3: a gap in the sequence, each version",
        "NOT_ENOUGH_REPLICAS",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        AGAIN_IN_ORDER,
    ),
    Difference("Produce *: null records", "INVALID_RECORD", "hangs", "A client should not have to wait for ever."),
    Difference(
        "Produce *: overlong",
        "INVALID_RECORD",
        "ok",
        "One batch and nothing else is what clients send; bytes behind it are a fault.",
    ),
    Difference(
        "Produce *: length says less", "INVALID_RECORD", "CORRUPT_MESSAGE", "The rest is taken for a second batch."
    ),
    Difference(
        "Produce *: length 2^31-1", "INVALID_RECORD", "UNKNOWN_SERVER_ERROR", "As for every length that says too much."
    ),
    Difference("Produce *: base offset is not 0", "ok", "INVALID_RECORD", "The leader writes its own offset anyway."),
    Difference("Produce *: base offset negative", "ok", "INVALID_RECORD", "The leader writes its own offset anyway."),
    Difference("Produce *: unknown codec ?", "UNSUPPORTED_COMPRESSION_TYPE", "UNKNOWN_SERVER_ERROR", OWN_CODE),
    Difference("Produce *: records are garbage", "INVALID_RECORD", "UNKNOWN_SERVER_ERROR", OWN_CODE),
    Difference("Produce *: an idempotent producer's garbage", "INVALID_RECORD", "UNKNOWN_SERVER_ERROR", OWN_CODE),
    Difference("Produce *: gzip of garbage", "INVALID_RECORD", "UNKNOWN_SERVER_ERROR", OWN_CODE),
    Difference("Produce *: snappy of garbage", "INVALID_RECORD", "UNKNOWN_SERVER_ERROR", OWN_CODE),
    Difference("Produce *: lz4 of garbage", "INVALID_RECORD", "UNKNOWN_SERVER_ERROR", OWN_CODE),
    Difference("Produce *: zstd of garbage", "INVALID_RECORD", "UNKNOWN_SERVER_ERROR", OWN_CODE),
    Difference("Produce *: record: record length of six bytes", "INVALID_RECORD", "UNKNOWN_SERVER_ERROR", OWN_CODE),
    Difference("Produce *: record: timestamp delta of 65 bits", "INVALID_RECORD", "ok", UNREADABLE),
    Difference("Produce *: record: header value of minus two", "INVALID_RECORD", "ok", UNREADABLE),
    Difference("Produce *: record: negative offset delta", "INVALID_RECORD", "ok", NOT_ITS_PLACE),
    Difference("Produce *: record: offset delta beyond the last", "INVALID_RECORD", "ok", NOT_ITS_PLACE),
    Difference("Produce *: offset deltas *", "INVALID_RECORD", "ok", NOT_ITS_PLACE),
    Difference("Produce *: lz4 of offset deltas with a gap", "INVALID_RECORD", "UNKNOWN_SERVER_ERROR", OWN_CODE),
    Difference(
        "Produce *: an hour and more ahead",
        "no record_errors",
        "record_errors [{batch_index_error_message: a text}]",
        "The batch is refused by the times of its header; which record it was is not told.",
    ),
    Difference(
        "Produce *: 2^63-1 ms",
        "no record_errors",
        "record_errors [{batch_index_error_message: a text}]",
        "The batch is refused by the times of its header; which record it was is not told.",
    ),
    Difference(
        "Produce *: too old for a strict topic",
        "no record_errors",
        "record_errors [{batch_index_error_message: a text}]",
        "The batch is refused by the times of its header; which record it was is not told.",
    ),
    Difference(
        "Produce *: too new for a strict topic",
        "no record_errors",
        "record_errors [{batch_index_error_message: a text}]",
        "The batch is refused by the times of its header; which record it was is not told.",
    ),
    Difference(
        "Produce [3456]: zstd, each version",
        "ok",
        "UNSUPPORTED_COMPRESSION_TYPE",
        "The version of a request does not change the bytes; their reader must know zstd either way.",
    ),
    Difference(
        "Produce [4-9]: an old sequence, each version",
        "no log_append_time_ms",
        "log_append_time_ms 1600000000000",
        "A batch that was sent again is answered as the first time; its own time is no append time.",
    ),
    Difference(
        "Produce 1?: an old sequence, each version",
        "no log_append_time_ms",
        "log_append_time_ms 1600000000000",
        "A batch that was sent again is answered as the first time; its own time is no append time.",
    ),
    Difference(
        "Produce *: sequence: the last again",
        "no log_append_time_ms",
        "log_append_time_ms 1600000000000",
        "A batch that was sent again is answered as the first time; its own time is no append time.",
    ),
    Difference(
        "Produce *: sequence: the first of two again",
        "no log_append_time_ms",
        "log_append_time_ms 1600000000000",
        "A batch that was sent again is answered as the first time; its own time is no append time.",
    ),
    Difference("Produce *: kept: append time bit", "attributes 8", "no attributes", AS_SENT),
    Difference(
        "Produce *: kept: max timestamp below base",
        "max_timestamp 1599999995000",
        "max_timestamp 1600000001000",
        AS_SENT,
    ),
    Difference(
        "Produce *: kept: max timestamp above the last",
        "max_timestamp 1600000009000",
        "max_timestamp 1600000001000",
        AS_SENT,
    ),
    Difference("Fetch *: negative bytes*", "ok", "UNKNOWN_SERVER_ERROR", HARMLESS),
    Difference("Fetch *: isolation *", "ok", "UNKNOWN_SERVER_ERROR", HARMLESS),
    Difference("ListOffsets *: isolation *", "ok", "UNKNOWN_SERVER_ERROR", HARMLESS),
    Difference(
        "Fetch *: session: wrong epochs",
        "no session_id",
        "session_id session 2",
        "A session that has no partitions is not kept.",
    ),
    Difference(
        "Fetch *: session: opened with nothing",
        "no session_id",
        "session_id session 1",
        "A session that has no partitions is not kept.",
    ),
    Difference("ListOffsets *: no partitions", "topics [{name: read}]", "no topics", NOTHING_ASKED),
    Difference("DeleteRecords *: no partitions", "topics [{name: read}]", "no topics", NOTHING_ASKED),
    Difference(
        "DeleteRecords *: more and more",
        "no leader_epoch; no offset; no timestamp",
        "leader_epoch 0; offset 9; timestamp 1600000041000",
        "The greatest timestamp is looked for among records that are still there; all of these were deleted.",
    ),
    Difference(
        "UpdateFeatures *: kraft.version as it is",
        "INVALID_UPDATE_VERSION",
        "ok",
        "Only features that are there can be set: `metadata.version`.",
    ),
    Difference(
        "DescribeGroups [0-5]: a stranger twice",
        "groups [{group_id: g-none-1, group_state: Dead}]",
        "groups [{group_id: g-none-1, group_state: Dead}, {group_id: g-none-1, group_state: Dead}]",
        ONCE,
    ),
    Difference(
        "DescribeGroups 6: a stranger twice",
        "groups [{error_code: GROUP_ID_NOT_FOUND, error_message: a text, group_id: g-none-1, group_state: Dead}]",
        "groups [{error_code: GROUP_ID_NOT_FOUND, error_message: a text, group_id: g-none-1, group_state: Dead}, "
        "{error_code: GROUP_ID_NOT_FOUND, error_message: a text, group_id: g-none-1, group_state: Dead}]",
        ONCE,
    ),
    Difference(
        "ConsumerGroupDescribe *: a stranger twice",
        "groups [{error_code: GROUP_ID_NOT_FOUND, error_message: a text, group_id: g-none-1}]",
        "groups [{error_code: GROUP_ID_NOT_FOUND, error_message: a text, group_id: g-none-1}, "
        "{error_code: GROUP_ID_NOT_FOUND, error_message: a text, group_id: g-none-1}]",
        ONCE,
    ),
    Difference(
        "OffsetDelete 0: a topic twice",
        "topics [{name: grouped, partitions: [{partition_index: 1}, {}]}]",
        "topics [{name: grouped, partitions: [{partition_index: 1}]}, {name: grouped, partitions: [{}]}]",
        "What is named twice is deleted and answered once.",
    ),
    Difference(
        "OffsetDelete 0: a partition twice",
        "partitions [{}]",
        "partitions [{}, {}]",
        "What is named twice is deleted and answered once.",
    ),
    Difference(
        "OffsetCommit *: commits in a mixed group",
        "ILLEGAL_GENERATION",
        "ok",
        "No member moves the position in a partition that another member of a consumer group owns; Kafka looks at the "
        "epoch alone, by which a commit that was under way can take a position back.",
    ),
    Difference(
        "ConsumerGroupHeartbeat [01]: a member's life", "assignment_epoch 3", "assignment_epoch 2", NOTHING_TO_ASSIGN
    ),
    Difference(
        "ConsumerGroupHeartbeat [01]: a static member", "assignment_epoch 3", "assignment_epoch 2", NOTHING_TO_ASSIGN
    ),
    Difference("ShareGroupHeartbeat 1: a member's life", "assignment_epoch 4", "assignment_epoch 3", NOTHING_TO_ASSIGN),
    Difference(
        "ShareGroupDescribe 1: a stranger twice",
        "groups [{error_code: GROUP_ID_NOT_FOUND, error_message: a text, group_id: s-none-1}]",
        "groups [{error_code: GROUP_ID_NOT_FOUND, error_message: a text, group_id: s-none-1}, "
        "{error_code: GROUP_ID_NOT_FOUND, error_message: a text, group_id: s-none-1}]",
        ONCE,
    ),
    Difference("DescribeShareGroupOffsets *: a topic without partitions", "ok", "UNKNOWN_SERVER_ERROR", NOTHING_ASKED),
    Difference(
        "DescribeShareGroupOffsets 0: an unknown partition",
        "{groups: [{group_id: s-90-described-0, topics: [{partitions: [{partition_index: 7, start_offset: ...",
        "hangs",
        KAFKA_HANGS,
    ),
    Difference(
        "DescribeShareGroupOffsets 1: an unknown partition",
        "{groups: [{group_id: s-90-described-1, topics: [{partitions: [{partition_index: 7, start_offset: ...",
        "hangs",
        KAFKA_HANGS,
    ),
    Difference(
        "DescribeShareGroupOffsets *: partition -1",
        "ok",
        "UNKNOWN_SERVER_ERROR",
        "A partition without a state has the offset -1; Kafka meets an exception of its own.",
    ),
    Difference(
        "AlterShareGroupOffsets 0: partition -1",
        "ok; UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_SERVER_ERROR; no responses",
        OWN_CODE,
    ),
    Difference(
        "AlterShareGroupOffsets 0: the epochs of the group",
        "no assignment_epoch; group_epoch 2; group_epoch 3",
        "assignment_epoch 1; group_epoch 1",
        "The group gets a new epoch, which fences leaders that still deliver from the old offsets.",
    ),
    Difference(
        "AlterShareGroupOffsets 0: offsets that are not in the log",
        "lag 0",
        "no lag; lag -9223372036854775797",
        "A lag is never below 0, and -1 means that it is not known.",
    ),
    Difference("AlterShareGroupOffsets 0: offsets below -1", "INVALID_REQUEST", "ok", NO_SUCH_OFFSET),
    Difference(
        "AlterShareGroupOffsets 0: a topic twice",
        "responses [{partitions: [{partition_index: 1}], topic_id: id of read, topic_name: read}, {partiti...",
        "responses [{partitions: [{partition_index: 1}, {}], topic_id: id of read, topic_name: read}]",
        "An answer for each question, as it was put.",
    ),
    Difference(
        "InitializeShareGroupState 0: again without offset",
        "delivery_complete_count 0; start_offset 5",
        "no delivery_complete_count; start_offset -1",
        "A retry of a group coordinator that was late must not take back where the group is.",
    ),
    Difference("InitializeShareGroupState 0: offsets below -1", "INVALID_REQUEST", "ok", NO_SUCH_OFFSET),
    Difference(
        "WriteShareGroupState *: a leader that did not read",
        "FENCED_LEADER_EPOCH",
        "ok",
        "A write of a newer leader fences the one before it, as a read does.",
    ),
    Difference(
        "WriteShareGroupState *: batches that cannot be",
        "INVALID_REQUEST",
        "ok",
        "Ranges that end before they begin, and states that are never stored, are not stored.",
    ),
    Difference("WriteShareGroupState *: a start offset below -1", "INVALID_REQUEST", "ok", NO_SUCH_OFFSET),
    Difference(
        "WriteShareGroupState *: a start offset that goes back",
        "start_offset 8",
        "start_offset 4",
        "Records below the start offset are done. Only new offsets for the group (AlterShareGroupOffsets) go back.",
    ),
    Difference(
        "ShareFetch *: no group id",
        "INVALID_REQUEST; no responses",
        "ok; UNKNOWN_SERVER_ERROR",
        "A share group needs an id; Kafka meets an exception when it loads the state of one without.",
    ),
    Difference(
        "ShareAcknowledge *: no group id", "INVALID_REQUEST", "SHARE_SESSION_NOT_FOUND", "A share group needs an id."
    ),
    Difference(
        "ShareFetch *: a member that has joined",
        "no responses",
        "responses [{partitions: [{current_leader: {}, records: []}], topic_id: id of read}]",
        NOTHING_TO_SAY,
    ),
    Difference(
        "ShareFetch *: a partition without records",
        "no responses",
        "responses [{partitions: [{current_leader: {}, partition_index: 1, records: []}], topic_id: id of ...",
        NOTHING_TO_SAY,
    ),
    Difference(
        "ShareFetch *: a session opened again",
        "acquired_records [{delivery_count: 2, last_offset: 9}]; records [{base_timestamp: 1600000000000, ...",
        "no acquired_records; records []",
        "Records of the session before are released at once; in Kafka they wait for the end of their locks.",
    ),
    Difference(
        "ShareFetch *: an unknown topic", "ok; UNKNOWN_TOPIC_ID", "UNKNOWN_SERVER_ERROR; no responses", OWN_CODE
    ),
    Difference(
        "ShareFetch *: the record limit mode",
        "acquired_records [{delivery_count: 1, first_offset: 1, last_offset: 4}]; acquired_records [{deliv...",
        "acquired_records [{delivery_count: 1, first_offset: 1, last_offset: 1}, {delivery_count: 1, first...",
        "The same records are acquired, in one range; Kafka puts the rest of a batch into a range of its own.",
    ),
    Difference("ShareFetch *: an unknown mode", "ok", "UNKNOWN_SERVER_ERROR", HARMLESS),
    Difference(
        "ShareAcknowledge *: ranges that touch",
        "INVALID_REQUEST",
        "INVALID_RECORD_STATE",
        "An offset in two ranges is refused before the state of its record is looked at, as a longer overlap is.",
    ),
    Difference(
        "ShareAcknowledge *: a range from below 0",
        "INVALID_REQUEST",
        "ok",
        "No record has such an offset; Kafka passes over everything below the start offset.",
    ),
    Difference(
        "ShareAcknowledge *: the start offset",
        "start_offset 2; start_offset 5",
        "no start_offset; start_offset 2",
        "The start offset is stored with the acknowledgement that moves it; Kafka stores it with the next one.",
    ),
    Difference(
        "ShareAcknowledge *: a partition that was never fetched",
        "INVALID_RECORD_STATE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "The partition is there and led here, but its records were not acquired.",
    ),
    Difference(
        "JoinGroup *: metadata that is no subscription",
        "{generation_id: 1, leader: member 1, member_id: member 1, members: [{member_id: member 1, metadat...",
        "hangs",
        "What members tell each other is theirs; Kafka tries to read it and never answers.",
    ),
    Difference(
        "CreateTopics *: collides with another of the request",
        "INVALID_TOPIC_EXCEPTION",
        "ok",
        "Two names that collide do so also if they come together.",
    ),
    Difference(
        "CreateTopics *: 10,000 partitions",
        "ok",
        "POLICY_VIOLATION",
        "10,000 partitions in a request are allowed; Kafka counts the record of the topic among them.",
    ),
    Difference("CreateTopics [567]: value with spaces", "value 5000", "value  5000 ", "A value is kept as it is used."),
    Difference(
        "DeleteTopics *: a topic by name and by id",
        "responses [{error_code: INVALID_REQUEST, error_message: a text, name: read}, "
        "{error_code: INVALID_REQUEST, error_message: a text, name: null, topic_id: id of read}]",
        "responses [{error_code: INVALID_REQUEST, error_message: a text, name: read, topic_id: id of read}]",
        "An answer for each question, as it was put.",
    ),
    Difference(
        "CreatePartitions *: __consumer_offsets",
        "INVALID_TOPIC_EXCEPTION",
        "ok",
        "Groups are found by the number of its partitions: with more of them their offsets would be lost.",
    ),
    Difference(
        "IncrementalAlterConfigs *: value: a ratio that is none", "INVALID_CONFIG", "ok", "NaN is not between 0 and 1."
    ),
    Difference(
        "IncrementalAlterConfigs *: value: a setting of ours",
        "ok",
        "INVALID_CONFIG",
        "`flush.mode` is a setting of our own.",
    ),
    Difference("IncrementalAlterConfigs *: operation *", "INVALID_REQUEST", "UNKNOWN_SERVER_ERROR", OWN_CODE),
    Difference(
        "IncrementalAlterConfigs *: broker: below the least",
        "ok",
        "INVALID_REQUEST",
        "`background.threads` has no effect here, and is not checked.",
    ),
    Difference("AlterConfigs *: a topic twice", "INVALID_REQUEST", "hangs", KAFKA_HANGS),
    Difference("DescribeAcls *: no resource type", "SECURITY_DISABLED", "closed", NOT_CLOSED),
    Difference("CreateAcls *: operation 0", "SECURITY_DISABLED", "closed", NOT_CLOSED),
    Difference("DeleteAcls *: operation 0", "SECURITY_DISABLED", "closed", NOT_CLOSED),
    Difference(
        "PushTelemetry *: nonsense",
        "INVALID_RECORD",
        "ok",
        "What clients push is read, because it is shown; Kafka hands it on unread.",
    ),
    Difference(
        "PushTelemetry *: exactly enough",
        "INVALID_RECORD",
        "ok",
        "What clients push is read, because it is shown; a megabyte of zeros is no metrics.",
    ),
    Difference(
        "frame: array of -2", "closed", "{answered: []}", "A count below -1 is a fault; Kafka reads it as null."
    ),
    Difference("frame: name that is no UTF-8", "closed", "{answered: INVALID_TOPIC_EXCEPTION}", "It is no string."),
)


def difference_of(case: str) -> Difference | None:
    found = [each for each in DIFFERENCES if fnmatchcase(case, each.cases)]
    assert len(found) <= 1, f"{case} is listed more than once: {[each.cases for each in found]}"
    return found[0] if found else None
