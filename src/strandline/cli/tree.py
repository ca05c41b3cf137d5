"""The tree of commands: which module holds which command, and how a run ends.

The table is all that `--help` needs. A command's module is imported only when its name is on the command line; the
others are registered as stubs that carry their one-line help.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import FrameType
from typing import Annotated, NoReturn

import typer

from strandline.cli.common.command_config import with_command_config
from strandline.cli.common.failures import CommandFailed, ExitCode, Interrupted, PipeClosed
from strandline.cli.common.output import colours_wanted, silence_stdout


@dataclass(frozen=True)
class Entry:
    """A command (`module:function`), or a noun with verbs: name, `module:function` and one line of help.

    A verb of two words belongs to a part of the noun, the first of them; `parts` has the help of each.
    """

    help: str
    target: str = ""
    verbs: tuple[tuple[str, str, str], ...] = ()
    parts: tuple[tuple[str, str], ...] = ()


COMMANDS: dict[str, Entry] = {
    "dev": Entry("Run a node for development and print what to paste.", "node.dev:dev"),
    "serve": Entry("Run a node.", "node.serve_command:serve"),
    "format": Entry("Format the data directory of a node, for a cluster.", "node.format_command:format_"),
    "random-uuid": Entry("Print a random id for a cluster or a directory.", "node.format_command:random_uuid"),
    "topic": Entry(
        "Create, list, describe, alter, compact, check, trim and delete topics; name hot keys.",
        verbs=(
            ("create", "topic.create:create", "Create topics and wait until they can be used."),
            ("list", "topic.listing:list_topics", "List topics."),
            ("describe", "topic.describe:describe", "Show a topic: partitions, offsets, sizes, settings."),
            ("alter", "topic.alter:alter", "Add partitions, change settings, make it tiered or local."),
            ("clone", "storage.clone:clone", "Make a topic that shares the tiered segments of another."),
            ("compact", "topic.compact:compact", "Say what compaction does when, or compact now."),
            ("scrub", "topic.scrub:scrub", "Say when files were last checked, or check them now."),
            ("hot", "topic.hot:hot", "Name the heaviest keys and the partitions that are too full."),
            ("verify", "topic.verify:verify", "Compare a topic with the hashes on the audit topic."),
            ("cost", "topic.cost:cost", "Estimate the cost a month, as a local, tiered and object topic."),
            ("trim", "topic.remove:trim", "Delete the records before an offset or a time."),
            ("delete", "topic.remove:delete", "Delete topics and every record in them."),
        ),
    ),
    "storage": Entry(
        "Check and repair the object store of tiered topics; build a lost cluster again from it.",
        verbs=(
            ("check", "storage.check:check", "Compare the store with its metadata; exit code 5 if they differ."),
            ("restore", "storage.restore:restore", "Build a cluster from the checkpoints in a store."),
        ),
    ),
    "user": Entry(
        "Create, list, rotate and delete users, who log in with SCRAM.",
        verbs=(
            ("create", "user.create:create", "Create a user; the password is asked for, read, or made."),
            ("list", "user.listing:list_users", "List users and their mechanisms."),
            ("rotate", "user.create:rotate", "Give a user another password."),
            ("delete", "user.delete:delete", "Delete users, so that they can no longer log in."),
        ),
    ),
    "config": Entry(
        "Read, change and explain settings of topics and brokers.",
        verbs=(
            ("get", "config.command:get", "Show settings in force and where each comes from."),
            ("set", "config.command:set_", "Set settings of a topic, a broker, all brokers or a group."),
            ("unset", "config.command:unset", "Take settings back, so that the default holds again."),
            ("explain", "config.explain:explain", "Say what a setting does; works without a cluster."),
        ),
    ),
    "produce": Entry("Write records: lines or JSON, from files or stdin.", "records.produce:produce"),
    "consume": Entry("Read records: from an offset, a time, the last n; filter; follow.", "records.consume:consume"),
    "group": Entry(
        "Look at groups, their members and why they rebalanced; move and delete them.",
        verbs=(
            ("list", "group.listing:list_groups", "List groups: protocol, state, members, coordinator."),
            ("describe", "group.describe:describe", "Show a group: members, what each owns, positions."),
            ("members", "group.describe:members", "Show each member: client, host, subscription, epoch."),
            ("lag", "group.lag:lag", "How far groups are behind, where that goes, when they lose records."),
            ("reset", "group.reset:reset", "Move a group to other offsets: read again, or skip."),
            ("delete", "group.delete:delete", "Delete groups and their positions."),
            ("history", "group.history:history", "Why it rebalanced: which members came, left, timed out, flap."),
        ),
    ),
    "queue": Entry(
        "Look at share groups as queues: what waits, who holds it, why; their dead letters.",
        verbs=(
            ("list", "queue.listing:list_queues", "List share groups: state, members, topics, what waits."),
            ("describe", "queue.describe:describe", "Show a share group: members, limits, each partition."),
            ("lag", "queue.listing:lag", "How much waits, how much of it is held, for how long."),
            ("peek", "queue.peek:peek", "Show the records that come next, without taking them."),
            ("why", "queue.why:why", "Why a record is not delivered; exit code 5 if it never will be."),
            ("trace", "queue.why:trace", "The life of one record: produced, each delivery, how it is now."),
            ("dead list", "queue.dead.listing:list_dead", "List dead letters: from where, given up by whom, why."),
            ("dead show", "queue.dead.show:show", "Show one dead letter, whole."),
            ("dead redrive", "queue.dead.redrive:redrive", "Write dead letters to their topics again, each once."),
            ("dead purge", "queue.dead.purge:purge", "Mark dead letters as purged, and delete the oldest."),
        ),
        parts=(("dead", "Look at dead letters, redrive and purge them."),),
    ),
    "sqlite": Entry(
        "Ship SQLite databases into topics, and restore them to a moment.",
        verbs=(
            ("ship", "sqlite.ship:ship", "Follow a SQLite database into a topic."),
            ("restore", "sqlite.restore:restore", "Rebuild a database as it was at a moment."),
            ("status", "sqlite.status:status", "Show what a topic holds of its database."),
        ),
    ),
    "outbox": Entry(
        "Move events of an outbox table to their topics, and look at the table.",
        verbs=(
            ("relay", "outbox.relay:relay", "Move rows to their topics, each once, until Ctrl-C."),
            ("status", "outbox.status:status", "Show what waits and what is parked; exit code 5 if a row is parked."),
        ),
    ),
    "cdc": Entry(
        "Look at change data capture: slots, delay, snapshots; compare a database with its replica.",
        verbs=(
            (
                "status",
                "cdc.status:status",
                "Show slots, delay, snapshots and tables; exit code 5 if one is in trouble.",
            ),
            ("verify", "cdc.verify:verify", "Compare a database with its replica at one position; exit code 5 if not."),
        ),
    ),
    "connect": Entry(
        "Run connectors from and to other systems, and look at them.",
        verbs=(
            ("run", "connect.run:run", "Run the connectors of a file in this process, until Ctrl-C."),
            ("serve", "connect.serve:serve", "Run a worker with Kafka Connect's REST API."),
            ("list", "connect.listing:list_connectors", "List connectors: kind, class, state, tasks."),
            ("status", "connect.status:status", "Show states, workers and reasons; exit code 5 if one failed."),
            ("apply", "connect.apply:apply", "Create or change the connectors of a file."),
            ("restart", "connect.changing:restart", "Restart a connector, its tasks, or what has failed."),
            ("pause", "connect.changing:pause", "Pause a connector."),
            ("resume", "connect.changing:resume", "Have a connector go on that was paused or stopped."),
            ("stop", "connect.changing:stop", "Stop a connector; its config and positions stay."),
            ("delete", "connect.changing:delete", "Delete a connector."),
            ("offsets", "connect.offsets:offsets", "Show where a connector goes on."),
            ("lag", "connect.lag:lag", "Show how far sinks are behind, and where sources are."),
            ("validate", "connect.validate:validate", "Check the configs of a file; exit code 5 if one is wrong."),
            ("preview", "connect.preview:preview", "Show what a connector would write, and write nothing."),
            ("verify", "connect.verify:verify", "Compare a topic with a sink's target; exit code 5 if they differ."),
            ("rebuild", "connect.rebuild:rebuild", "Fill a fresh target from a topic, and swap it in."),
            ("plugins", "connect.plugins:plugins", "List connectors, or the settings of one."),
            ("scaffold", "connect.scaffold:scaffold", "Write a project with a connector of your own."),
        ),
    ),
    "txn": Entry(
        "Look at transactions, say why a last stable offset is stuck, abort what hangs.",
        verbs=(
            ("list", "txn.listing:list_transactions", "List transactional ids: state, producer, age, coordinator."),
            ("describe", "txn.describe:describe", "Show a transactional id, and what will end its transaction."),
            ("why", "txn.why:why", "Why readers of committed records wait; exit code 5 if for ever."),
            ("abort", "txn.abort:abort", "Abort an open transaction, all of a sink, or one that hangs."),
            ("sink list", "txn.sink:list_sinks", "List sinks: last batch, transactional ids, what is open."),
            ("sink delete", "txn.sink:delete", "Forget sinks of jobs that are over."),
        ),
        parts=(("sink", "Look at the sinks of exactly-once jobs, forget old ones."),),
    ),
    "cluster": Entry(
        "Look at the cluster, move replicas and leaders.",
        verbs=(
            ("info", "cluster.info:info", "Brokers, controller, features, and how the partitions are."),
            ("status", "cluster.status:status", "Nodes, leaders, replicas, disks; what is not whole, and why."),
            ("health", "cluster.health:health", "Say whether the cluster is well; exit code 5 if not."),
            ("quorum", "cluster.quorum:quorum", "Show the metadata quorum: leader, voters, lag."),
            ("elect", "cluster.elect:elect", "Give leadership back to preferred replicas."),
            ("drain", "cluster.drain:drain", "Move every replica of a broker to others."),
            ("reassign", "cluster.reassign:reassign", "Move replicas, change their number, show what is under way."),
            ("forget", "cluster.drain:forget", "Take a broker that is gone out of the cluster."),
        ),
    ),
    "acl": Entry(
        "Say which user may do what, list it, explain it, find out what is needed.",
        verbs=(
            ("grant", "acl.grant:grant", "Allow a user to read, write or administer; or deny it."),
            ("revoke", "acl.revoke:revoke", "Take back what was granted or denied."),
            ("list", "acl.listing:list_acls", "List ACLs: of users, or about a topic or group."),
            ("explain", "acl.explain:explain", "Say whether a user may, and which rule decides."),
            ("suggest", "acl.suggest:suggest", "Write the ACLs that clients need, from a log of denials."),
        ),
    ),
    "quota": Entry(
        "Limit what users, client ids and addresses may use.",
        verbs=(
            ("set", "quota.command:set_", "Set quotas of a user, a client id, both, or an address."),
            ("list", "quota.command:list_quotas", "List quotas."),
            ("delete", "quota.command:delete", "Delete quotas."),
        ),
    ),
    "security": Entry(
        "Make what a secured cluster needs, and look at one.",
        verbs=(
            ("init", "security.init:init", "Make an authority, certificates, an administrator and settings."),
            ("status", "security.status:status", "Listeners, when certificates end, users and ACLs that do not match."),
            ("audit", "security.audit:audit", "What clients changed, who logged in, what was denied."),
        ),
    ),
    "registry": Entry(
        "Run the schema registry.",
        verbs=(("serve", "registry.serve:serve", "Serve schemas beside a cluster, over Confluent's REST API."),),
    ),
    "console": Entry(
        "Run the web console.",
        verbs=(("serve", "console.serve:serve", "Serve pages about clusters to browsers."),),
    ),
    "schema": Entry(
        "List, show, register, compare, check, repair and delete schemas in a registry.",
        verbs=(
            ("list", "schema.listing:list_schemas", "List subjects with their last version."),
            ("show", "schema.show:show", "Show a schema: of a subject, or by its id."),
            ("register", "schema.register:register", "Register a schema as the next version of a subject."),
            ("diff", "schema.diff:diff", "Show how two versions differ, or a file from the last one."),
            ("compat", "schema.compat:compat", "Would a subject take a schema, under which level, why not?"),
            ("evolve", "schema.evolve:evolve", "Name the nearest change that passes, for one that is refused."),
            ("check", "schema.check:check", "Check a schema with a subject, or with every record of a topic."),
            ("delete", "schema.delete:delete", "Delete a subject, or a version of it."),
        ),
    ),
    "pipeline": Entry(
        "Run pipelines of data frames on Spark, look at them, stop, rebuild and delete them.",
        verbs=(
            ("run", "pipeline.run:run", "Run a pipeline's file, from log to log, exactly once."),
            (
                "status",
                "pipeline.status:status",
                "How far a pipeline is: batches, rows, what is behind, what was late.",
            ),
            ("list", "pipeline.listing:list_pipelines", "List pipelines: version, state, datasets."),
            ("stop", "pipeline.stop:stop", "Stop a pipeline, wherever it runs."),
            ("logs", "pipeline.logs:logs", "Show what the running or last run said; follow it."),
            ("delete", "pipeline.delete:delete", "Delete a pipeline, what it wrote and its checkpoints."),
            ("rebuild", "pipeline.rebuild:rebuild", "Build a new version beside the old one, then switch to it."),
            ("explain", "pipeline.explain:explain", "Say what a file declares, and what a change of it means."),
        ),
    ),
    "view": Entry(
        "Query materialised views: current, or as of an offset or a time.",
        verbs=(
            ("query", "view.query:query", "Ask views in SQL."),
            ("get", "view.get:get", "Show the row of a key."),
            ("list", "view.listing:list_views", "List views: topic, key, how fresh, how far back."),
            ("create", "view.create:create", "Make a compacted topic a view, by hand."),
        ),
    ),
    "spark": Entry(
        "Prepare this machine for Spark.",
        verbs=(("prepare", "pipeline.spark_prepare:prepare", "Let Spark start in about half the time; once."),),
    ),
    "contract": Entry(
        "Keep topics, schemas, rights, quotas and lag objectives as files: plan, apply, check.",
        verbs=(
            ("plan", "contract.commands:plan", "Show what would change, and change nothing."),
            ("apply", "contract.commands:apply", "Bring the cluster to what the files say."),
            ("check", "contract.commands:check", "Would it break a connected reader? Exit code 5 if so."),
            ("diff", "contract.commands:diff", "Show drift, and what is in no file; exit code 5 if there is."),
            ("export", "contract.export:export", "Write files that describe the cluster as it is."),
            ("alerts", "contract.commands:alerts", "Print rules for Prometheus from lag objectives."),
        ),
    ),
    "advise": Entry("Say whether a workload fits a log, what it needs, what is misused.", "advise.advise:advise"),
    "doctor": Entry("Say what is wrong with a node or this machine, and what to do.", "doctor.doctor:doctor"),
    "log": Entry(
        "Look into log files.", verbs=(("dump", "dump.log_dump:dump", "Print segments, indexes and checkpoints."),)
    ),
}


def command_names() -> list[str]:
    names = []
    for name, entry in COMMANDS.items():
        names.extend([f"{name} {verb}" for verb, _, _ in entry.verbs] or [name])
    return names


def run(arguments: list[str]) -> int:
    """Run typer on `arguments` and turn every way to end into an exit code."""
    arguments = _as_meant(arguments)
    previous = signal.signal(signal.SIGINT, _interrupt)
    try:
        build(arguments)(args=arguments, prog_name=os.path.basename(sys.argv[0]).replace("__main__.py", "strandline"))
    except SystemExit as ended:
        return _flushed(ended.code if isinstance(ended.code, int) else ExitCode.OK if ended.code is None else 1)
    except CommandFailed as failure:
        tell(failure)
        return _flushed(failure.code)
    except PipeClosed:
        silence_stdout()
        return ExitCode.OK
    except Interrupted:
        return _flushed(ExitCode.INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, previous)
    return _flushed(ExitCode.OK)


def _as_meant(arguments: list[str]) -> list[str]:
    """Return the arguments with common aliases replaced: `ls`, `rm`, `status`, `version`."""
    match arguments:
        case ["version"]:
            return ["--version"]
        case ["status", *rest]:
            return ["cluster", "status", *rest]
        case [noun, ("ls" | "rm") as verb, *rest] if noun in COMMANDS and COMMANDS[noun].verbs:
            return [noun, {"ls": "list", "rm": "delete"}[verb], *rest]
    return arguments


def build(arguments: list[str], *, load_all: bool = False) -> typer.Typer:
    """Return the typer app with the called command loaded and every other one a stub."""
    # A shell that asks for completions names the command in the environment, not in the arguments.
    typed = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS")
    if typed and any(name.endswith("_COMPLETE") for name in os.environ):
        arguments = typed.split()[1:]
    called, *called_verb = [argument for argument in arguments if not argument.startswith("-")] or [""]
    # Plain help: drawing it with rich would take twice the time of everything else together.
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True, help=_HELP)
    app.callback()(_root)
    for name, entry in COMMANDS.items():
        if not entry.verbs:
            is_called = load_all or name == called
            app.command(name, short_help=entry.help)(_load(entry.target) if is_called else _stub)
            continue
        noun = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help=entry.help)
        parts = {
            part: typer.Typer(rich_markup_mode=None, no_args_is_help=True, help=text) for part, text in entry.parts
        }
        for part, below in parts.items():
            noun.add_typer(below, name=part, short_help=below.info.help)
        for verb, target, verb_help in entry.verbs:
            *part_of, word = verb.split()
            is_called = load_all or (name == called and called_verb[: len(part_of) + 1] == verb.split())
            owner = parts[part_of[0]] if part_of else noun
            owner.command(word, short_help=verb_help)(_load(target) if is_called else _stub)
        # A help that is also given as a short one is shown whole.
        app.add_typer(noun, name=name, short_help=entry.help)
    return app


def tell(failure: CommandFailed) -> None:
    red, dim, end = ("\033[31m", "\033[2m", "\033[0m") if colours_wanted(sys.stderr) else ("", "", "")
    print(f"{red}error:{end} {failure.message}", file=sys.stderr)
    if failure.hint:
        print(f"{dim}next:{end}  {failure.hint}", file=sys.stderr)


_HELP = """A distributed log that speaks the Kafka protocol.

Data goes to stdout, messages to stderr. `NOUN ls`, `NOUN rm`, `status` and `version` work, too.
Exit codes: 0 done, 1 error, 2 wrong usage, 3 not found, 4 unreachable or timed out, 5 a check found something.
"""


def _print_version(wanted: bool) -> None:
    if wanted:
        from strandline.cli.common.version import version_text

        typer.echo(version_text())
        raise typer.Exit()


_Version = Annotated[
    bool,
    typer.Option("--version", is_eager=True, callback=_print_version, help="Say what is installed, and stop."),
]


def _root(version: _Version = False) -> None:
    """Carry the options of the root."""


def _load(target: str) -> Callable[..., object]:
    module, function = target.split(":")
    loaded: Callable[..., object] = getattr(import_module(f"strandline.cli.{module}"), function)
    return with_command_config(loaded)


def _stub() -> NoReturn:
    raise AssertionError("a stub stands for its help line only and is never called")


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
    return code
