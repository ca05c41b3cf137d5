"""`strandline queue describe`: a share group, its members, its settings, and each of its partitions."""

from __future__ import annotations

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, GroupName, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count, duration
from strandline.cli.queue.queue_state import lag_rows, read_queue, read_waiting


def describe(
    name: GroupName,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show a share group: its members, how often and how long a record is delivered, and what waits where."""
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    group = read_queue(cluster, name)
    positions, delivery = read_waiting(cluster, name)
    members = [
        {
            "member": member.member_id,
            "client": member.client_id,
            "host": member.client_host.lstrip("/"),
            "partitions": [
                f"{each.topic_name}-{index}"
                for each in member.assignment.topic_partitions
                for index in sorted(each.partitions)
            ],
        }
        for member in sorted(group.members, key=lambda member: (member.client_id, member.member_id))
    ]
    rows = lag_rows(name, positions, delivery)
    if as_json:
        output.json_line(
            {
                "group": name,
                "state": group.group_state,
                "epoch": group.group_epoch,
                "delivery_count_limit": None if delivery is None else delivery.delivery_count_limit,
                "lock_duration_ms": None if delivery is None else delivery.lock_duration_ms,
                "members": members,
                "partitions": rows,
            }
        )
        return
    output.line(f"{name}: {group.group_state}, {count(len(members), 'member')}, epoch {group.group_epoch}")
    if delivery is not None:
        output.line(
            f"a record is delivered at most {delivery.delivery_count_limit} times; "
            f"a lock lasts {duration(delivery.lock_duration_ms)}"
        )
    if members:
        output.line("")
        columns = ["member", "client", "host", "partitions"]
        output.table(
            columns, [[each["member"], each["client"], each["host"], ",".join(each["partitions"])] for each in members]
        )
    if rows:
        output.line("")
        columns = [name for name in rows[0] if name != "group"]
        output.table(columns, [["-" if row[name] is None else row[name] for name in columns] for row in rows])
