"""Stage two in the model: workers that go through the six steps of `deduplicator.loop`, and the group that shares partitions out.

Phases of a worker, and the step that leads on:

    down ─restart─▶ joining ─rebalance─▶ given ─start─▶ idle ─consume (1, 2)─▶ decided ─begin (3)─▶ begun ─write (4)─▶ written
         ─offsets (5)─▶ sent ─end─▶ ending ─answered (6)─▶ idle

A failure leads to `given` (the frontier is read again), a fenced producer to `down`; when first frontiers could not be committed, to another attempt after
a poll, in which the group may give the partitions to others. A worker that was thrown out of the group
(`member` is false) goes on until it notices: its offsets are refused, or its poll says that its partitions are lost; `stale` is
one that has read the frontier again and will be told so in its next poll.
"""

from __future__ import annotations

from collections.abc import Iterator

from proof import broker, group
from proof.service import Service
from proof.start import Starts, put, turned
from proof.world import Held, Shape, Step, Transaction, Violation, Worker, World

FRESH = ("new", "new")


class StageTwo:
    """Successors by workers and by the group's coordinator."""

    def __init__(self, shape: Shape, service: Service) -> None:
        self.shape = shape
        self.shell = shape.shell
        self.service = service
        self.partitions = range(len(shape.source))
        self.nothing = (None,) * len(shape.source)
        self.starts = Starts(shape, service)
        self.down = Worker("down", False, self.nothing, 0, FRESH, self.nothing, (), False)

    def steps(self, world: World) -> Iterator[Step]:
        """Everything that workers and group may do now."""
        yield from group.rebalances(world, self.shape)
        for number, worker in enumerate(world.workers):
            yield from self._of(world, number, worker)
            if world.budget:
                yield from self._faults(world, number, worker)

    def _of(self, world: World, number: int, worker: Worker) -> Iterator[Step]:
        phase = worker.phase
        if phase == "down":
            yield from self._restart(world, number)
        elif phase == "given":
            yield from self.starts.start(world, number, worker)
        elif phase in ("idle", "stale"):
            if not worker.member:
                kept = worker._replace(phase="joining", held=self.nothing if self.shell.forgets_when_lost else worker.held)
                yield Step("lost", False, put(world, number, kept))
            if phase == "idle":
                yield from self._consume(world, number, worker)
        elif phase == "decided":
            yield from self._begin(world, number, worker)
        elif phase != "joining":
            yield from self._in_transaction(world, number, worker)

    def _in_transaction(self, world: World, number: int, worker: Worker) -> Iterator[Step]:
        """Steps 4 to 6."""
        if world.transactions[self._id(number, worker)].status == "fenced":
            yield Step("fenced", False, put(world, number, self.down))
        elif worker.phase == "begun":
            yield Step("write", False, self._written(world, number, worker))
        elif worker.phase == "written":
            yield from self._offsets(world, number, worker)
        elif worker.phase == "sent":
            yield Step("end", False, self._ended(world, number, worker))
        else:
            yield from self._answer(world, number, worker)

    @staticmethod
    def _id(number: int, worker: Worker) -> int:
        """The transactional id whose turn it is."""
        return number * 2 + worker.turn

    def _restart(self, world: World, number: int) -> Iterator[Step]:
        """`ProducerPair.initialise`: both producers, before anything is read."""
        after: World | None = world
        for letter in (0, 1):
            after = broker.initialised(after, number * 2 + letter) if after else None
        if after:
            yield Step("restart", False, put(after, number, self.down._replace(phase="joining", producers=("ready", "ready"))))

    def _consume(self, world: World, number: int, worker: Worker) -> Iterator[Step]:
        """Steps 1 and 2: everything that is there, or one record; decided, and compared with what is at the destination already."""
        there = [world.logs[partition].base + len(world.logs[partition].records) - held.position if held else 0
                 for partition, held in enumerate(worker.held)]
        gone = [partition for partition, held in enumerate(worker.held) if held and held.position < world.logs[partition].base]
        gaps = [partition for partition, held in enumerate(worker.held)
                if held and self.shell.gaps_noticed and None in world.logs[partition].records[max(0, held.position - world.logs[partition].base):]]
        if gone or gaps:
            wanted = tuple(partition for partition in self.partitions if worker.held[partition])
            yield Step("gone" if gone else "gone gap", False, put(world, number, worker._replace(
                phase="given", wanted=wanted, gaps=tuple(gaps), held=self.nothing, work=self.nothing)))
        elif any(there):
            after = self._decided(world, number, worker, tuple(there))
            yield Step("consume", False, after if self.shape.fine else self._on(after, number))
        if self.shape.fine and sum(there) > 1 and not gone and not gaps:
            for partition in self.partitions:
                if there[partition]:
                    one = tuple(int(other == partition) for other in self.partitions)
                    yield Step("consume one", False, self._decided(world, number, worker, one))

    def _on(self, world: World, number: int) -> World:
        """Steps 3 and 4 at once, when nothing is in the way."""
        for _, _, after in self._begin(world, number, world.workers[number]):
            worker = after.workers[number]
            return self._written(after, number, worker) if worker.phase == "begun" else after
        return world

    def _decided(self, world: World, number: int, worker: Worker, counts: tuple[int, ...]) -> World:
        work = tuple(self._moved(world, partition, held, count) if held and count else None
                     for partition, (held, count) in enumerate(zip(worker.held, counts, strict=True)))
        return put(world, number, worker._replace(phase="decided", work=work, first=False))

    def _moved(self, world: World, partition: int, held: Held, count: int) -> tuple[Held, tuple[int, ...]]:
        log = world.logs[partition]
        begin = held.position - log.base
        rule, writes = self.service.decide(held.rule, tuple(filter(None, log.records[begin:begin + count])))
        known, sent, surplus = held.known, held.sent, held.surplus
        if surplus:
            covered, known, surplus, stop = self.service.cover(known, surplus, writes)
            if stop:
                raise Violation(f"I6: {stop}")
            writes, sent = writes[covered:], 0
        return Held(held.position + count, rule, known, sent + len(writes), surplus), writes

    def _begin(self, world: World, number: int, worker: Worker) -> Iterator[Step]:
        """Step 3: the producer whose turn it is, initialised first when it is new."""
        turn, producers, initialised, defect = self.service.begin(worker.turn, worker.producers)
        if defect:
            raise Violation(f"I12: {defect}")
        one, other = number * 2 + turn, number * 2 + 1 - turn
        status = world.transactions[one].status
        if status == "fenced" and not initialised:
            yield Step("fenced", False, put(world, number, self.down))
            return
        if initialised:
            after = broker.initialised(world, one)
            if after is None:
                return
            world = after
        elif status in broker.ANSWERED:
            return  # the coordinator is not ready; the client tries again
        if world.transactions[other].status == "open" and broker.has_offsets(world, other) and not worker.first:
            raise Violation("I4: a transaction is begun while the one before it is not settled")
        opened = broker.OPEN._replace(end_sent=world.transactions[one].end_sent)
        yield Step("begin", False, put(broker.set_to(world, one, opened), number, worker._replace(phase="begun", turn=turn, producers=producers)))

    def _written(self, world: World, number: int, worker: Worker) -> World:
        """Step 4."""
        one = self._id(number, worker)
        destination = tuple((*entries, *((offset, one) for offset in work[1])) if work else entries
                            for entries, work in zip(world.destination, worker.work, strict=True))
        return put(world._replace(destination=destination), number, worker._replace(phase="written"))

    def _offsets(self, world: World, number: int, worker: Worker) -> Iterator[Step]:
        """Step 5: the group's coordinator asks for the current generation."""
        partitions = [partition for partition, work in enumerate(worker.work) if work]
        if self.shell.fenced and not worker.member:
            yield Step("refused", False, self._failed(world, number, worker, "abortable"))
            return
        if not worker.member or any(world.owners[partition] != number for partition in partitions):
            raise Violation("I3: offsets of a worker that is no member of the current generation were accepted")
        one = self._id(number, worker)
        offsets = {partition: self._offset(worker, partition if self.shell.own_frontier else partitions[0], partition)
                   for partition in partitions}
        after = broker.with_offsets(world, one, offsets)
        if not self.shell.offsets_last:
            after = broker.offsets_marked(after, one)
        state, _ = self.service.producer(worker.producers[worker.turn], "offsets")
        sent = worker._replace(phase="sent", producers=turned(worker.producers, worker.turn, state))
        yield Step("offsets", False, put(after, number, sent) if self.shape.fine else self._ended(after, number, sent))

    def _ended(self, world: World, number: int, worker: Worker) -> World:
        """Step 6, its first half: EndTxn is under way."""
        sent = Transaction("open", end_sent=True, own=True)
        return put(broker.set_to(world, self._id(number, worker), sent), number, worker._replace(phase="ending"))

    def _offset(self, worker: Worker, told_of: int, partition: int) -> tuple[int, str]:
        """Next offset and metadata. What is known of the output is from before this transaction; what it sent is counted."""
        work, told = worker.work[partition], worker.work[told_of]
        assert work is not None
        assert told is not None
        return work[0].position, self.service.encode(told[0].rule, told[0].known, told[0].sent)

    def _answer(self, world: World, number: int, worker: Worker) -> Iterator[Step]:
        """Step 6: the commit is answered; what was sent is delivered, and the state moves."""
        one = self._id(number, worker)
        looks_again = worker.first and not worker.again and self.shell.raises_again
        if world.transactions[one].end_sent and not self.shape.fine:
            world = broker.arrived(world, one, world.transactions[one])
            if looks_again:
                yield Step("EndTxn", False, world)
                return
        transaction = world.transactions[one]
        if not self.shell.waits_for_commit or (transaction.status in (*broker.ANSWERED, "none") and not transaction.end_sent):
            state, _ = self.service.producer(worker.producers[worker.turn], "commit")
            if looks_again:
                if any(world.pending):
                    return  # frontiers are read when none is undecided
                raised = self.starts.raised_again(world, worker)
                if raised != worker.work:
                    yield Step("answered", False, put(world, number, worker._replace(
                        phase="decided", work=raised, again=True, producers=turned(worker.producers, worker.turn, state))))
                    return
            held = tuple(work[0]._replace(known=work[1][-1], sent=0) if work and work[1] else work[0] if work else before
                         for work, before in zip(worker.work, worker.held, strict=True))
            yield Step("answered", False, put(world, number, worker._replace(
                phase="idle", held=held, work=self.nothing, first=False, again=False, producers=turned(worker.producers, worker.turn, state))))

    def _failed(self, world: World, number: int, worker: Worker, failure: str) -> World:
        """`TransactionalProducer.failed`, then the way back: read the frontier again, or commit first frontiers again."""
        one = self._id(number, worker)
        state, abort = self.service.producer(worker.producers[worker.turn], "failing", failure)
        if abort:
            world = broker.aborted(broker.set_to(world, one, broker.NONE), one)
        after = worker._replace(producers=turned(worker.producers, worker.turn, state))
        if worker.first:  # tried again after a poll, which says first that the partitions are lost, if they are
            lost = after._replace(phase="stale", work=self.nothing, first=False, again=False)
            return put(world, number, after._replace(phase="decided") if worker.member else lost)
        wanted = tuple(partition for partition in self.partitions if worker.held[partition])
        if self.shell.rewound:
            return put(world, number, after._replace(phase="given", wanted=wanted, held=self.nothing, work=self.nothing))
        held = tuple(before and before._replace(position=work[0].position) if work else before
                     for work, before in zip(worker.work, worker.held, strict=True))
        return put(world, number, after._replace(phase="idle", held=held, work=self.nothing))

    def _faults(self, world: World, number: int, worker: Worker) -> Iterator[Step]:
        """What may happen to a worker at each step."""
        less, faults, phase = world._replace(budget=world.budget - 1), self.shape.faults, worker.phase
        if phase == "down":
            return
        if "kill two" in faults:
            yield Step(f"kill two {self._named(world, number, worker)}", True, put(less, number, self.down))
        if "pause" in faults and worker.member:
            yield Step(f"pause {phase}", True, put(less, number, worker._replace(member=False)))
        if phase in ("begun", "written", "sent", "ending") and world.transactions[self._id(number, worker)].status != "fenced":
            for failure in ("abortable", "in doubt", "abort in doubt"):
                if failure in faults and (phase != "ending" or failure == "in doubt"):
                    yield Step(f"{failure} {phase}", True, self._failed(less, number, worker, failure))
        if phase == "decided" and "in doubt" in faults and worker.producers[1 - worker.turn] == "ready":
            state, _ = self.service.producer("ready", "beginning", "in doubt")
            failed = worker._replace(turn=1 - worker.turn, producers=turned(worker.producers, 1 - worker.turn, state))
            yield Step("in doubt begin", True, self._failed_to_begin(less, number, failed))

    def _failed_to_begin(self, world: World, number: int, worker: Worker) -> World:
        wanted = tuple(partition for partition in self.partitions if worker.held[partition])
        if worker.first:
            return put(world, number, worker)
        return put(world, number, worker._replace(phase="given", wanted=wanted, held=self.nothing, work=self.nothing))

    def _named(self, world: World, number: int, worker: Worker) -> str:
        """The crash point: `ending` is two of them, before and after the coordinator has decided."""
        if worker.phase != "ending":
            return worker.phase
        return "EndTxn sent" if world.transactions[self._id(number, worker)].end_sent else "EndTxn decided"
