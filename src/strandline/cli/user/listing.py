"""`strandline user list`: users and their mechanisms."""

from __future__ import annotations

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.user.credentials import read_users


def list_users(
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """List users that log in with SCRAM. Users of JAAS texts and of tokens are not known to the cluster."""
    output = Output(as_json=as_json)
    users = read_users(connect(bootstrap, properties, timeout))
    if as_json:
        for name, mechanisms in users.items():
            output.json_line({"user": name, "mechanisms": mechanisms})
    elif users:
        rows = [(name, each, rounds) for name, mechanisms in users.items() for each, rounds in mechanisms.items()]
        output.table(["user", "mechanism", "iterations"], rows)
    else:
        output.talk("no users yet: `strandline user create NAME` makes one")
