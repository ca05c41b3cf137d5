"""All cases in the order in which they are asked."""

from __future__ import annotations

from tests.differential import (
    cases_acls,
    cases_cluster,
    cases_configs,
    cases_consumer_groups,
    cases_controller,
    cases_credentials,
    cases_fetch,
    cases_frames,
    cases_group_admin,
    cases_groups,
    cases_metadata,
    cases_migration,
    cases_offsets,
    cases_produce,
    cases_producers,
    cases_quotas,
    cases_share_delivery,
    cases_share_states,
    cases_shares,
    cases_telemetry,
    cases_topics,
    cases_transactions,
)
from tests.differential.case import Case

CASES: tuple[Case, ...] = (
    *cases_metadata.cases(),
    *cases_produce.cases(),
    *cases_fetch.cases(),
    *cases_offsets.cases(),
    *cases_producers.cases(),
    *cases_transactions.cases(),
    *cases_cluster.cases(),
    *cases_controller.cases(),
    *cases_credentials.cases(),
    *cases_groups.cases(),
    *cases_group_admin.cases(),
    *cases_consumer_groups.cases(),
    *cases_migration.cases(),
    *cases_shares.cases(),
    *cases_share_states.cases(),
    *cases_share_delivery.cases(),
    *cases_topics.cases(),
    *cases_configs.cases(),
    *cases_quotas.cases(),
    *cases_acls.cases(),
    *cases_telemetry.cases(),
    *cases_frames.cases(),
)
