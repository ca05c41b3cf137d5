"""A cluster around the controller, reduced to what it decides about; walked at random, and judged after every step.

Brokers crash, lose the end of their logs, get a new disk, come back, shut down in good order; administrators change
settings, move replicas and hold elections; requests are delivered late, twice or
never; the active controller is replaced at any moment and takes what was committed. `python -m
tests.unit.quorum.controller_model --seeds 0-100` walks; a failure names its seed, which repeats it.
"""

from __future__ import annotations

import argparse
import random
import sys
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.unit.quorum.model_broker import CLUSTER_ID, Log, Process, Where, in_sync_min, partitions_of
from tests.unit.quorum.model_invariants import Invariants, Violation

from strandline.codec.messages.alter_partition_request import AlterPartitionRequest
from strandline.config.node_config import BrokerConfig
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.config_changes import AlterOperation, ConfigAlteration, ConfigOperation
from strandline.quorum.controller.controller import Controller, TopicRef
from strandline.quorum.controller.elections import ELECT_PREFERRED, ELECT_UNCLEAN
from strandline.quorum.controller.new_topics import NewTopic
from strandline.quorum.image.cluster_image import RESOURCE_BROKER, RESOURCE_TOPIC, ClusterImage

SESSION_S = 9.0
TOPICS_MAX = 3
IN_FLIGHT_MAX = 12
LATE, LATE_MAX = 0.2, 8

Batch = tuple[list[Any], Callable[[BaseException | None], object]]


class ControllerModel:
    def __init__(self, seed: int, *, brokers: int = 4, partitions_per_step: int = 2) -> None:
        self.rng = random.Random(seed)
        self.partitions_per_step = partitions_per_step
        self.minimum_weight = 2.0 if seed % 2 else 0.1
        """An administrator who changes the minimum all the time leaves little that is acknowledged to be lost."""
        self.now = 100.0
        self.log: list[Any] = []
        self.image = ClusterImage()
        self.pending: list[Batch] = []
        self.config = BrokerConfig.load("", {"broker.session.timeout.ms": str(int(SESSION_S * 1000))})
        self.invariants = Invariants(self)
        self.disks: dict[int, dict[Where, Log]] = {broker_id: {} for broker_id in range(1, brokers + 1)}
        self.directories = {broker_id: uuid.UUID(int=1000 + broker_id) for broker_id in self.disks}
        self.clean_epochs: dict[int, int] = {}
        self.processes: dict[int, Process] = {}
        self.in_flight: list[Callable[[], object]] = []
        self.late: list[Callable[[], object]] = []
        """Copies of requests that will arrive when much has happened since."""
        self.steps: list[tuple[Any, Callable[[Any, BaseException | None], object]]] = []
        self.is_calm = self.is_immediate = False
        self.acknowledged: dict[Where, Log] = {}
        self.numbers = 0
        self.topic_number = 0
        self.controller = self.new_controller()
        self.write(self.controller.bootstrap(), lambda error: None)
        self.commit()
        for broker_id in self.disks:
            self.start_broker(broker_id)

    def new_controller(self) -> Controller:
        controller = Controller(None, config=self.config, rng=self.rng)
        # Small steps, so that other requests come in between.
        controller._state.changes_per_step = self.partitions_per_step
        controller.activate(self.image, self.now)
        return controller

    # The metadata log

    def write(self, records: list[Any], on_done: Callable[[BaseException | None], object]) -> None:
        self.invariants.on_decided(records)
        self.pending.append((records, on_done))

    @property
    def next_offset(self) -> int:
        return len(self.log) + sum(len(records) for records, _ in self.pending)

    def commit(self, count: int | None = None) -> None:
        """Commit the first of what waits, or all of it."""
        taken = self.pending[: len(self.pending) if count is None else count]
        del self.pending[: len(taken)]
        for records, on_done in taken:
            for record in records:
                self.invariants.on_committed(record, self.image)
                self.image.apply(record, len(self.log))
                self.log.append(record)
            on_done(None)

    def fail_over(self) -> None:
        """Another controller leads: some of what was decided is committed, the rest was never heard of."""
        self.commit(self.rng.randrange(len(self.pending) + 1))
        lost, self.pending = self.pending, []
        self.controller.deactivate()
        refused, self.steps = self.steps, []
        for _, on_done in lost:
            on_done(RequestError(ErrorCode.NOT_CONTROLLER, "lost the lead"))
        for steps, then in refused:
            steps.close()
            then(None, RequestError(ErrorCode.NOT_CONTROLLER, "lost the lead"))
        self.controller = self.new_controller()
        self.invariants.on_activated()

    # Requests

    def send(self, deliver: Callable[[], object]) -> None:
        if self.is_immediate:
            deliver()
            return
        if not self.is_calm and self.rng.random() < LATE:
            self.late.append(deliver)
            if len(self.late) > LATE_MAX:
                del self.late[self.rng.randrange(len(self.late))]
            if self.rng.random() < 0.5:
                return
        self.in_flight.append(deliver)
        if not self.is_calm and len(self.in_flight) > IN_FLIGHT_MAX:
            del self.in_flight[self.rng.randrange(len(self.in_flight))]

    def deliver(self) -> None:
        if self.in_flight:
            at = self.rng.randrange(len(self.in_flight))
            message = self.in_flight[at]
            if self.rng.random() < 0.9:
                del self.in_flight[at]
            message()

    def deliver_late(self) -> None:
        if self.late:
            self.late.pop(self.rng.randrange(len(self.late)))()

    def run_steps(self, steps: Any, then: Callable[[Any, BaseException | None], object]) -> None:
        self.steps.append((steps, then))
        self.step_on(len(self.steps) - 1)

    def step_on(self, at: int | None = None) -> None:
        if not self.steps:
            return
        at = self.rng.randrange(len(self.steps)) if at is None else at
        steps, then = self.steps[at]
        try:
            self.write(next(steps), lambda error: None)
        except StopIteration as end:
            outcome = end.value
            del self.steps[at]
            self.write([], lambda error: then(outcome if error is None else None, error))
        except RequestError as refusal:
            del self.steps[at]
            then(None, refusal)

    # Brokers

    def start_broker(self, broker_id: int) -> None:
        if broker_id in self.processes:
            return
        process = Process(
            broker_id,
            uuid.UUID(int=self.rng.getrandbits(128)),
            self.disks[broker_id],
            directory=self.directories[broker_id],
            rack=f"rack-{broker_id % 2}",
            previous_epoch=self.clean_epochs.pop(broker_id, -1),
        )
        self.processes[broker_id] = process
        self.register(process)

    def register(self, process: Process) -> None:
        request = process.registration()

        def on_done(epoch: int | None, error: BaseException | None) -> None:
            if epoch is not None:
                self.invariants.on_registered(process, epoch)
                self.send(partial(setattr, process, "epoch", epoch))

        def deliver() -> None:
            steps = self.controller.registration(
                request, cluster_id=CLUSTER_ID, now=self.now, next_offset=lambda: self.next_offset
            )
            self.run_steps(steps, on_done)

        self.send(deliver)

    def beat(self, process: Process) -> None:
        if process.epoch < 0:
            self.register(process)
            return
        request = process.heartbeat()

        def deliver() -> None:
            try:
                records, response = self.controller.heartbeat(request, now=self.now, next_offset=self.next_offset)
            except RequestError as refusal:
                if refusal.code == ErrorCode.STALE_BROKER_EPOCH and process.epoch == request.broker_epoch:
                    process.epoch = -1
                return

            def on_done(error: BaseException | None) -> None:
                if error is None and response.should_shut_down and process.wants_shut_down:
                    self.stop(process)

            self.write(records, on_done)

        self.send(deliver)

    def assign(self, process: Process) -> None:
        request = process.assignment()
        if request is None:
            return

        def deliver() -> None:
            try:
                decided = list(self.controller.decide_directories(request))
            except RequestError:
                return
            self.write([record for records, _ in decided for record in records], lambda error: None)

        self.send(deliver)

    def stop(self, process: Process) -> None:
        if self.processes.get(process.id) is process:
            del self.processes[process.id]
            self.clean_epochs[process.id] = process.epoch
            process.is_stopped = True

    def crash(self, process: Process, kept: float) -> None:
        """Kill it; of what it had not flushed only a part stays. 1.0: a process died, 0.0: the disk was replaced."""
        del self.processes[process.id]
        process.is_stopped = True
        disk = self.disks[process.id]
        for where, log in disk.items():
            disk[where] = log[: int(len(log) * kept)]
        if not kept:
            self.directories[process.id] = uuid.UUID(int=self.directories[process.id].int + 1000)

    def reboot(self, process: Process) -> None:
        """Crash, be missed, and be back in the cluster, while requests from before are still under way."""
        self.crash(process, self.rng.choice((1.0, 0.5, 0.0)))
        self.now += SESSION_S
        self.is_immediate = True
        for other in list(self.processes.values()):
            self.beat(other)
        while records := self.controller.tick(self.now):
            self.write(records, lambda error: None)
        self.start_broker(process.id)
        while self.steps:
            self.step_on(0)
        self.commit()
        again = self.processes[process.id]
        for _ in range(2):
            again.apply(self.log, len(self.log))
            self.beat(again)
            self.commit()
        self.is_immediate = False

    def read_metadata(self, process: Process) -> None:
        up_to = self.rng.randrange(len(self.log)) if self.rng.random() < 0.3 else len(self.log) - 1
        process.apply(self.log, max(up_to, process.offset))
        self.invariants.on_roles(process)

    # Records

    def led_somewhere(self) -> list[tuple[Process, Where]]:
        return [(process, where) for process in self.processes.values() for where in process.leading]

    def produce(self) -> None:
        if led := self.led_somewhere():
            process, where = self.rng.choice(led)
            self.numbers += 1
            process.append(where, self.numbers)

    def fetch(self, process: Process) -> None:
        """From whomever the broker believes to lead, if that one believes it too."""
        if not process.acts:
            return
        for where, partition in partitions_of(process.image).items():
            leader = self.processes.get(partition.leader)
            if leader is None or leader is process or process.id not in partition.replicas:
                continue
            leading = leader.leading.get(where)
            if leading is not None and leading.leader_epoch == partition.leader_epoch:
                process.fetch(where, leader, self.rng.choice((0, 1, 1000)))

    def acknowledge(self) -> None:
        for process, where in self.led_somewhere():
            leading = process.leading[where]
            topic = process.image.topic_by_id(where[0])
            if topic is None:
                continue  # It was deleted while this one waited for its registration.
            partition = topic.partitions[where[1]]
            minimum = in_sync_min(process.image, topic, partition)
            # What a leader from before an unclean election still acknowledges is lost with the rest.
            is_lost = leading.leader_epoch < self.invariants.unclean_epochs.get(where, 0)
            if len(leading.isr) >= minimum and not leading.elr and not is_lost:
                end = process.end_held_by_all(where)
                if end > len(self.acknowledged.get(where, ())):
                    self.invariants.on_acknowledged(process, where, end)
                    self.acknowledged[where] = process.disk[where][:end]

    def propose_in_sync(self, *, shrink: float = 0.3) -> None:
        """A leader lets caught-up followers in, or those go that it does not hear of."""
        led = self.led_somewhere()
        if not led:
            return
        process, where = self.rng.choice(led)
        leading = process.leading[where]
        if leading.proposal is not None:
            # The answer is late, or was lost: ask the same again.
            self._send_proposal(process, where, leading.proposal)
            return
        end = len(process.disk[where])
        caught_up = [other for other, (at, _) in sorted(leading.fetched.items()) if at == end]
        if self.rng.random() < shrink:
            wanted = [each for each in leading.isr if each == process.id or self.rng.random() < 0.5]
        else:
            wanted = list(dict.fromkeys([*leading.isr, *caught_up]))
        topic = process.image.topic_by_id(where[0])
        if topic is None:
            return  # As above.
        wanted = [each for each in wanted if each in topic.partitions[where[1]].replicas]
        if wanted == leading.isr and not leading.elr:
            return
        self._send_proposal(process, where, process.in_sync_proposal(where, wanted))

    def _send_proposal(self, process: Process, where: Where, request: AlterPartitionRequest) -> None:
        def deliver() -> None:
            try:
                [(records, (_, answer))] = self.controller.decide_in_sync_changes(request, version=3)
            except RequestError:
                return
            if records:
                self.invariants.on_in_sync_taken(request)

            def on_done(error: BaseException | None) -> None:
                if error is None:
                    self.send(partial(process.on_altered, where, request, answer))

            self.write(records, on_done)
            self.invariants.joining = set()

        self.send(deliver)

    # People

    def create_topic(self) -> None:
        if len(self.image.topics) >= TOPICS_MAX:
            return
        self.topic_number += 1
        configs = [("min.insync.replicas", self.rng.choice("12"))]
        if self.rng.random() < 0.25:
            configs.append(("unclean.leader.election.enable", "true"))
        # A name that was there before comes back as another topic.
        name = f"topic-{self.topic_number % TOPICS_MAX}"
        topic = NewTopic(name, self.rng.randint(1, 3), self.rng.randint(1, 3), configs=configs)
        records, _ = self.controller.create_topics([topic])
        self.write(records, lambda error: None)

    def delete_topic(self) -> None:
        if self.image.topics:
            records, _ = self.controller.delete_topics([TopicRef(self.rng.choice(sorted(self.image.topics)))])
            self.write(records, lambda error: None)

    def reassign(self) -> None:
        for where in self._some_partition():
            count = self.rng.randint(1, 3)
            topic = self.image.topic_by_id(where[0])
            assert topic is not None
            target = None if self.rng.random() < 0.3 else self.rng.sample(sorted(self.disks), count)
            for records, _ in self.controller.reassignment.decide([(topic.name, where[1], target)]):
                self.write(records, lambda error: None)

    def elect_somewhere(self) -> None:
        for where in self._some_partition():
            self.elect(where, self.rng.choice((ELECT_PREFERRED, ELECT_PREFERRED, ELECT_UNCLEAN)))

    def elect(self, where: Where, kind: int) -> None:
        topic = self.image.topic_by_id(where[0])
        assert topic is not None
        self.invariants.is_unclean_asked_for = kind == ELECT_UNCLEAN
        for records, _ in self.controller.elections.decide(kind, [(topic.name, [where[1]])]):
            self.write(records, lambda error: None)
        self.invariants.is_unclean_asked_for = False

    def configure(self) -> None:
        value = self.rng.choice(("true", "false"))
        self._alter_some_topic(ConfigOperation("unclean.leader.election.enable", value))

    def configure_minimum(self) -> None:
        """Raise, lower or remove `min.insync.replicas`, of a topic, of all of them or of one broker."""
        value = self.rng.choice((None, "1", "1", "2", "2", "3"))
        operation = ConfigOperation(
            "min.insync.replicas", value, AlterOperation.SET if value else AlterOperation.DELETE
        )
        if self.rng.random() < 0.6:
            self._alter_some_topic(operation)
        else:
            # Controllers refuse it for one broker, because leaders and controllers must agree on it.
            name = self.rng.choice(("", "", "1"))
            self._alter(ConfigAlteration(RESOURCE_BROKER, name, [operation]))

    def _alter_some_topic(self, operation: ConfigOperation) -> None:
        if self.image.topics:
            name = self.rng.choice(sorted(self.image.topics))
            self._alter(ConfigAlteration(RESOURCE_TOPIC, name, [operation]))

    def _alter(self, asked: ConfigAlteration) -> None:
        for records, _ in self.controller.decide_configs([asked], node_id=None):
            self.write(records, lambda error: None)

    def unregister(self) -> None:
        away = [broker_id for broker_id in sorted(self.image.brokers) if broker_id not in self.processes]
        if away:
            self.run_steps(self.controller.unregistration(self.rng.choice(away)), lambda outcome, error: None)

    def allocate(self, process: Process) -> None:
        try:
            records, block = self.controller.allocate_producer_ids(process.id, process.epoch)
        except RequestError:
            return
        self.write(records, lambda error: self.invariants.on_block(block) if error is None else None)

    def _some_partition(self) -> list[Where]:
        there = sorted(partitions_of(self.image))
        return [self.rng.choice(there)] if there else []

    # Walking

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.tick()

    def tick(self) -> None:
        if records := self.controller.tick(self.now):
            self.write(records, lambda error: None)

    def step(self) -> None:
        rng = self.rng
        live = list(self.processes.values())
        process = rng.choice(live) if live else None
        actions: list[tuple[float, Callable[[], object]]] = [
            (8, self.deliver),
            (0.6, self.deliver_late),
            (6, self.commit),
            (2, self.tick),
            (2, self.step_on),
            (1.5, lambda: self.wait(rng.choice((0.5, 2.0, 5.0)))),
            (0.3, lambda: self.wait(SESSION_S)),
            (3, self.produce),
            (4, self.acknowledge),
            (3, self.propose_in_sync),
            (0.4, self.fail_over),
            (0.6, self.create_topic),
            (0.1, self.delete_topic),
            (0.3, self.reassign),
            (0.3, self.elect_somewhere),
            (0.1, self.configure),
            (self.minimum_weight, self.configure_minimum),
            (0.05, self.unregister),
            (1.5, lambda: self.start_broker(rng.choice(sorted(self.disks)))),
        ]
        if process is not None:
            actions += [
                (5, lambda: self.beat(process)),
                (5, lambda: self.read_metadata(process)),
                (6, lambda: self.fetch(process)),
                (1, lambda: self.assign(process)),
                (0.2, lambda: self.allocate(process)),
                (0.15, lambda: setattr(process, "wants_shut_down", True)),
                (0.3, lambda: self.reboot(process)),
                (0.25, lambda: self.crash(process, rng.choice((1.0, 1.0, 0.5, 0.0)))),
            ]
        chosen = rng.choices(actions, [weight for weight, _ in actions])[0]
        chosen[1]()
        self.invariants.check()

    def warm_up(self) -> None:
        """All brokers run, and there are topics."""
        for _ in range(4):
            self.calm_round()
        for _ in range(TOPICS_MAX):
            self.create_topic()
            self.calm_round()

    def walk(self, steps: int) -> None:
        self.warm_up()
        for _ in range(steps):
            self.step()
        self.heal()

    def calm_round(self) -> None:
        """Everybody is heard, and nothing gets lost."""
        self.is_calm = True
        for process in list(self.processes.values()):
            self.beat(process)
            self.assign(process)
        while self.in_flight:
            self.in_flight.pop(0)()
        while self.steps:
            self.step_on(0)
        self.commit()
        self.wait(1.0)
        while self.controller.is_busy:
            self.tick()
        self.commit()
        for process in list(self.processes.values()):
            process.apply(self.log, len(self.log))
            self.invariants.on_roles(process)
        for process in list(self.processes.values()):
            self.fetch(process)
            for leading in process.leading.values():
                leading.proposal = leading.pending_isr = None
        for _ in range(12):
            self.propose_in_sync(shrink=0.0)
        self.acknowledge()
        self.is_calm = False
        self.invariants.check()

    def heal(self) -> None:
        """No more faults: everybody comes back, and every partition has its leader and its replicas in sync."""
        self.in_flight.clear()
        self.late.clear()
        for _ in range(20):
            for broker_id in self.disks:
                self.start_broker(broker_id)
            self.calm_round()
        for where in self.invariants.check_led():
            # Only an administrator knows that the disks with the records will not come back.
            self.elect(where, ELECT_UNCLEAN)
        for _ in range(20):
            self.calm_round()
        self.invariants.check_healed()


def run(seed: int, steps: int) -> ControllerModel:
    model = ControllerModel(seed, partitions_per_step=1 + seed % 3)
    try:
        model.walk(steps)
    except Violation as violation:
        raise Violation(f"seed {seed}: {violation}") from violation
    return model


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="0-50", help="first and last")
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-"))
    elections = records = acknowledged = 0
    for seed in range(first, last + 1):
        try:
            model = run(seed, options.steps)
        except Violation as violation:
            print(f"VIOLATION: {violation}")
            return 1
        elections += model.invariants.elections
        records += len(model.log)
        acknowledged += model.invariants.acknowledged
    print(f"{last - first + 1} walks, {records} records, {elections} elections, {acknowledged} acknowledged: clean")
    return 0


if __name__ == "__main__":
    sys.exit(main())
