"""The settings of transactions."""

from __future__ import annotations

import dataclasses

from strandline.config.settings import CLUSTER_WIDE, at_least, boolean, integer, short

MIB = 1024 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransactionSettings:
    """The table of transaction settings. Each attribute is the setting of that name with underscores for dots."""

    transaction_max_timeout_ms: int = integer(
        "transaction.max.timeout.ms",
        900_000,
        at_least(1),
        "The longest timeout that a transactional producer may ask for; a longer one is refused.",
    )
    transactional_id_expiration_ms: int = integer(
        "transactional.id.expiration.ms",
        604_800_000,
        at_least(1),
        "How long an unused transactional id is remembered.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        at_least(1),
        "How often unused transactional ids are looked for.",
    )
    transaction_partition_verification_enable: bool = boolean(
        "transaction.partition.verification.enable",
        True,
        "Whether a partition asks the coordinator before it takes the first records of a transaction (KIP-890).",
        update=CLUSTER_WIDE,
    )
    transaction_state_log_num_partitions: int = integer(
        "transaction.state.log.num.partitions",
        50,
        at_least(1),
        "Partitions of `__transaction_state`; fixed once it exists.",
    )
    transaction_state_log_replication_factor: int = short(
        "transaction.state.log.replication.factor",
        3,
        at_least(1),
        "Replicas of `__transaction_state`, which is created when so many brokers are registered and not before. Where "
        "it is not set, no more than there are nodes, so a single node needs no setting.",
    )
    transaction_state_log_min_isr: int = integer(
        "transaction.state.log.min.isr",
        2,
        at_least(1),
        "In-sync replicas that `__transaction_state` needs; all of them, if it has fewer.",
    )
    transaction_state_log_segment_bytes: int = integer(
        "transaction.state.log.segment.bytes", 100 * MIB, at_least(MIB), "Segment size of `__transaction_state`."
    )
