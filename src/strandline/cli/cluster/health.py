"""`strandline cluster health`: is everything led, in sync and writable; exit code 5 where it is not."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.cluster.judging import judged
from strandline.cli.cluster.reading import read_state
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.watching import EVERY_S_DEFAULT, Every, Watch, watch
from strandline.cli.doctor.doctor import conclude, show


def health(
    watching: Watch = False,
    every: Every = EVERY_S_DEFAULT,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as wrong, too.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Say whether the cluster is well, and if not, why and what to do.

    The exit code is 5 when the quorum has no leader, a partition has none, writes with acks=all are refused, a
    transaction holds readers back for longer than it may, or files are damaged, not compacted, or soon too large.
    """
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)

    def look() -> None:
        findings = judged(cluster, read_state(cluster, with_disks=True))
        for finding in findings:
            if as_json:
                output.json_line(finding.as_json())
            else:
                show(output, finding)
        conclude(output, findings, strict)

    if watching:
        watch(output, look, every_s=every)
    else:
        look()
