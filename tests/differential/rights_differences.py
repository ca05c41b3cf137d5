"""Where answers to clients with and without rights are not Kafka's, each with its reason."""

from __future__ import annotations

from fnmatch import fnmatchcase

from tests.differential.comparison import Unlike
from tests.differential.differences import OWN_CODE, Difference

LEADER_NAMED = "A replica that is not one of the partition is told the leader, as every other client is."

RIGHTS_DIFFERENCES: tuple[Difference, ...] = (
    *(
        Difference(f"ShareFetch *: {what}: *", "ok; UNKNOWN_TOPIC_ID", "UNKNOWN_SERVER_ERROR; no responses", OWN_CODE)
        for what in ("unknown", "both")
    ),
    Difference(
        "Fetch 1[2-5]: as a follower: *",
        "leader_epoch 0; leader_id 1",
        "no leader_epoch; no leader_id",
        LEADER_NAMED,
    ),
    Difference(
        "Fetch 1[6-8]: as a follower: *",
        "node_endpoints [{host: a host, node_id: 1, port: a port}]",
        "no node_endpoints",
        LEADER_NAMED,
    ),
)


def listed(case: str, found: Unlike) -> Difference | None:
    """Return the row of the table that has this difference."""
    return next(
        (
            each
            for each in RIGHTS_DIFFERENCES
            if fnmatchcase(case, each.cases) and (each.ours, each.theirs) == (found.ours, found.theirs)
        ),
        None,
    )
