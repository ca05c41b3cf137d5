"""Makes an empty directory the data directory of a node: `meta.properties`, and who votes at the beginning.

Nodes of one cluster must agree on the cluster's id before they first talk, so a directory is formatted for it by hand.
Only a node that is a cluster of one formats its directory by itself (see `identity`).
"""

from __future__ import annotations

import base64
import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from strandline.codec.messages import voters_record
from strandline.codec.messages.user_scram_credential_record import UserScramCredentialRecord
from strandline.codec.messages.voters_record import VotersRecord
from strandline.errors import CorruptLog, InvalidConfig
from strandline.log.disk import Disk
from strandline.log.log_directory import META_PROPERTIES
from strandline.quorum.image.parts import RESERVED_DIRECTORY_IDS
from strandline.quorum.raft.state_files import MetaProperties, parse_uuid
from strandline.security.sasl.scram import (
    ITERATIONS_MIN,
    ITERATIONS_STORED_MAX,
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramMechanism,
    credential_of,
    salted_password,
)

if TYPE_CHECKING:
    from strandline.config.node_config import BrokerConfig

KRAFT_VERSION_OF_RECORDS = 1
"""`kraft.version` of a quorum whose voters stand in records, with the ids of their directories."""
_SCRAM_OPTIONS = ("name", "password", "saltedpassword", "salt", "iterations")
_CONTROLLER = re.compile(
    r"(?P<id>[0-9]{1,10})@(?P<host>\[[0-9A-Fa-f:.%]+\]|[^@:/\[\]\s]+):(?P<port>[0-9]{1,5}):(?P<directory>[\w-]{22})"
)


@dataclasses.dataclass(frozen=True, slots=True)
class InitialController:
    """One of the first voters: `id@host:port:directory id`."""

    node_id: int
    host: str
    port: int
    directory_id: UUID


@dataclasses.dataclass(frozen=True, slots=True)
class Formatted:
    path: Path
    meta: MetaProperties
    was_formatted: bool = False
    """It was there already, for the same cluster and node, and was left as it is."""


def parse_initial_controllers(raw: str) -> list[InitialController]:
    """`1@host:port:directory-id,...`; InvalidConfig for anything else."""
    controllers = []
    for part in (part.strip() for part in raw.split(",")):
        match = _CONTROLLER.fullmatch(part)
        if match is None or not 1 <= int(match["port"]) <= 65_535:
            raise InvalidConfig(f"{part!r} is no controller; expected id@host:port:directory-id, comma-separated")
        try:
            directory_id = parse_uuid(match["directory"])
        except CorruptLog:
            raise InvalidConfig(f"{part!r} ends with no directory id; expected 22 letters of base64") from None
        if directory_id.int < RESERVED_DIRECTORY_IDS:
            # They stand for directories that are lost, unknown or not yet chosen.
            raise InvalidConfig(f"{part!r} ends with a reserved directory id; expected one of `strandline random-uuid`")
        controllers.append(
            InitialController(int(match["id"]), match["host"].strip("[]"), int(match["port"]), directory_id)
        )
    if len({controller.node_id for controller in controllers}) < len(controllers):
        raise InvalidConfig(f"{raw!r} names a controller twice")
    return controllers


def parse_add_scram(raw: str, new_salt: Callable[[], bytes]) -> UserScramCredentialRecord:
    """Return the credential of `SCRAM-SHA-256=[name=alice,password=...]`. InvalidConfig, without the secret, otherwise.

    PBKDF2 takes some milliseconds.
    """
    mechanism_name, _, content = raw.strip().partition("=")
    mechanism = SCRAM_MECHANISMS.get(mechanism_name)
    if mechanism is None:
        known = " or ".join(SCRAM_MECHANISMS)
        raise InvalidConfig(
            f"--add-scram does not begin with a mechanism; expected {known}, then =[name=...,password=...]"
        )
    if not content.startswith("[") or not content.endswith("]"):
        raise InvalidConfig(f"--add-scram {mechanism_name}= is not followed by [...]; expected [name=...,password=...]")
    options: dict[str, str] = {}
    for part in content[1:-1].split(","):
        key, equals, value = part.partition("=")
        if not equals or key not in _SCRAM_OPTIONS:
            raise InvalidConfig(
                f"--add-scram has a part that cannot be read; expected one of {', '.join(_SCRAM_OPTIONS)}"
            )
        is_quoted = len(value) >= 2 and value[0] == value[-1] == '"'
        options[key] = value[1:-1] if is_quoted else value
    name = options.get("name")
    if not name:
        raise InvalidConfig("--add-scram has no name; expected name=...")
    if ("password" in options) == ("saltedpassword" in options):
        raise InvalidConfig(f"--add-scram for {name}: expected one of password and saltedpassword")
    if "saltedpassword" in options and "salt" not in options:
        raise InvalidConfig(f"--add-scram for {name}: saltedpassword needs the salt that it was made with")
    iterations = options.get("iterations", str(ITERATIONS_MIN))
    if (
        not iterations.isascii()
        or not iterations.isdigit()
        or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_STORED_MAX
    ):
        raise InvalidConfig(f"--add-scram for {name}: iterations must be {ITERATIONS_MIN} to {ITERATIONS_STORED_MAX}")
    try:
        salt = base64.b64decode(options["salt"], validate=True) if "salt" in options else new_salt()
        salted = base64.b64decode(options.get("saltedpassword", ""), validate=True)
    except ValueError:
        raise InvalidConfig(f"--add-scram for {name}: salt or saltedpassword is no base64") from None
    if "password" in options:
        salted = salted_password(mechanism, options["password"], salt, int(iterations))
    return credential_record(mechanism, name, credential_of(mechanism, salted, salt, int(iterations)))


def credential_record(mechanism: ScramMechanism, name: str, credential: ScramCredential) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism.number,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def standalone(config: BrokerConfig, directory_id: UUID) -> list[InitialController]:
    """This node as the only voter, so that others can be told of it later."""
    if not config.is_controller or not config.controller_listeners():
        raise InvalidConfig(
            "a standalone controller needs process.roles with controller and a listener for the quorum: for example "
            "listeners=PLAINTEXT://host:9092,CONTROLLER://host:9093 and controller.listener.names=CONTROLLER"
        )
    listener = (config.advertised_controllers() or config.controller_listeners())[0]
    if not listener.host or listener.host in ("0.0.0.0", "::") or not listener.port:
        raise InvalidConfig(
            f"others cannot reach a controller at {listener.host}:{listener.port}; expected a host and a port in "
            "listeners or advertised.listeners"
        )
    return [InitialController(config.node_id, listener.host, listener.port, directory_id)]


def format_directory(
    config: BrokerConfig,
    cluster_id: str,
    controllers: Sequence[InitialController],
    *,
    disk: Disk,
    now_ms: int,
    new_uuid: Callable[[], UUID],
    ignore_formatted: bool = False,
    credentials: Sequence[UserScramCredentialRecord] = (),
) -> Formatted:
    """Format `log.dirs`; InvalidConfig where that contradicts the configuration or what is there already.

    `controllers` are written into the metadata. Without them `controller.quorum.voters` must name the voters, or this
    node is the only one. The `credentials` of users are the first records of the cluster, so that nodes can log in.
    """
    path = Path(config.log_dirs[0])
    own = [controller for controller in controllers if controller.node_id == config.node_id]
    _check(config, controllers, bool(own))
    found = _found(path, disk)
    if found is not None:
        _check_found(path, found, config, cluster_id, ignore_formatted=ignore_formatted)
        return Formatted(path, found, was_formatted=True)
    meta = MetaProperties(cluster_id, config.node_id, own[0].directory_id if own else new_uuid())
    disk.make_directory(path)
    if controllers or credentials:
        # Before meta.properties: with that file a directory counts as formatted, so it comes last.
        from strandline.broker.kraft.metadata_snapshots import write_bootstrap

        listener_name = (*config.controller_listener_names, "CONTROLLER")[0].upper()
        write_bootstrap(
            disk,
            path,
            voters=_voters(controllers, listener_name) if controllers else None,
            features={},
            kraft_version=KRAFT_VERSION_OF_RECORDS if controllers else 0,
            now_ms=now_ms,
            records=credentials,
        )
    disk.write_whole(path / META_PROPERTIES, meta.text().encode(), sync=True)
    return Formatted(path, meta)


def _check(config: BrokerConfig, controllers: Sequence[InitialController], is_named: bool) -> None:
    if controllers and config.controller_quorum_voters:
        raise InvalidConfig(
            "controller.quorum.voters names the voters already; expected it without initial controllers, or these "
            "without it"
        )
    if controllers and config.is_controller and not is_named:
        raise InvalidConfig(
            f"node.id={config.node_id} is a controller and not among the initial controllers; expected it there, or "
            "process.roles=broker"
        )
    if controllers and not config.is_controller:
        raise InvalidConfig(
            "this node is no controller, so it is not told who votes; expected no initial controllers, and "
            "controller.quorum.bootstrap.servers in its configuration"
        )
    if config.is_controller and not controllers and not config.quorum_voters() and config.names_other_voters():
        raise InvalidConfig(
            "nothing says who votes; expected --standalone for the first controller of a new cluster, "
            "--initial-controllers for several, or controller.quorum.voters in the configuration of every node"
        )


def _found(path: Path, disk: Disk) -> MetaProperties | None:
    file = path / META_PROPERTIES
    return MetaProperties.parse(disk.read_whole(file).decode()) if disk.exists(file) else None


def _check_found(
    path: Path, found: MetaProperties, config: BrokerConfig, cluster_id: str, *, ignore_formatted: bool
) -> None:
    if found.cluster_id != cluster_id:
        raise InvalidConfig(
            f"{path} belongs to cluster {found.cluster_id}, not to {cluster_id}: choose another directory, or move "
            "what is there away"
        )
    if found.node_id != config.node_id:
        raise InvalidConfig(
            f"{path} belongs to node {found.node_id}, and node.id is {config.node_id}: correct node.id, or choose "
            "another directory"
        )
    if not ignore_formatted:
        raise InvalidConfig(f"{path} is formatted already, for this node and this cluster; say --ignore-formatted")


def _voters(controllers: Sequence[InitialController], listener_name: str) -> VotersRecord:
    kraft = voters_record.KRaftVersionFeature(min_supported_version=0, max_supported_version=KRAFT_VERSION_OF_RECORDS)
    return VotersRecord(
        voters=[
            voters_record.Voter(
                voter_id=controller.node_id,
                voter_directory_id=controller.directory_id,
                endpoints=[voters_record.Endpoint(name=listener_name, host=controller.host, port=controller.port)],
                kraft_version_feature=kraft,
            )
            for controller in sorted(controllers, key=lambda each: each.node_id)
        ]
    )
