"""A partition's start in the model, as `deduplicator.start` has it: the frontier read and checked, made for the first time, or raised."""

from __future__ import annotations

from collections.abc import Iterator

from common.frontier import RuleState
from proof.service import TOPIC_ID, Service
from proof.stage_one import replaced
from proof.world import COMMITTED, Held, Shape, Step, Violation, Worker, World

Work = tuple[tuple[Held, tuple[int, ...]] | None, ...]


class Starts:
    """What a worker does with partitions that it was given."""

    def __init__(self, shape: Shape, service: Service) -> None:
        self.shell = shape.shell
        self.service = service
        self.nothing = (None,) * len(shape.source)

    def start(self, world: World, number: int, worker: Worker) -> Iterator[Step]:
        """`PartitionStarter.start`: read the frontier, hold it against the destination; first frontiers are made and committed."""
        if self.shell.waits_for_pending and any(world.pending):
            return
        undecided = any(transaction != COMMITTED for partition in worker.wanted for _, transaction in world.destination[partition])
        if self.shell.waits_for_output and undecided:
            return
        held = list(worker.held)
        work: list[tuple[Held, tuple[int, ...]] | None] = list(self.nothing)
        frontiers = [self.service.decode(committed[1]) if committed else None for committed in world.committed]
        epoch = self.service.raised(world.clock, tuple(frontier.rule.epoch for frontier in frontiers if frontier))
        for partition in worker.wanted:
            committed, frontier, log = world.committed[partition], frontiers[partition], world.logs[partition]
            end = log.base + len(log.records)
            if committed is None or frontier is None or frontier.destination_topic_id != TOPIC_ID:
                work[partition] = (Held(end, RuleState(-1, epoch, None), -1, 0, ()), ())
                held[partition] = None
                continue
            checked = held[partition] = self.checked(world, partition, committed)
            if checked.position < log.base or partition in worker.gaps:
                work[partition] = (checked._replace(position=end, rule=RuleState(checked.rule.frontier, epoch, None)), ())
                held[partition] = None
        made = worker._replace(wanted=(), gaps=(), held=tuple(held))
        if not any(work):
            yield Step("start", False, put(world, number, made._replace(phase="idle" if worker.member else "stale")))
        elif self.shell.commits_first_frontier:
            yield Step("first", False, put(world, number, made._replace(phase="decided", work=tuple(work), first=True)))
        else:
            held = [first[0] if first else before for first, before in zip(work, held, strict=True)]
            yield Step("start", False, put(world, number, made._replace(phase="idle", held=tuple(held))))

    def checked(self, world: World, partition: int, committed: tuple[int, str]) -> Held:
        """The frontier, compared with the destination."""
        position, metadata = committed
        entries = world.destination[partition]
        visible = []
        for offset, transaction in entries:
            if transaction != COMMITTED:
                break  # the last stable offset: a read_committed reader gets no further
            visible.append(offset)
        if not self.shell.checks:
            return Held(position, self.service.decode(metadata).rule, visible[-1] if visible else -1, 0, ())
        end = max((offset + 1 for offset, _ in entries), default=0)
        started = self.service.start(metadata, tuple(visible), end)
        if started.stop:
            raise Violation(f"I6: {started.stop}")
        return Held(position, self.service.decode(metadata).rule, started.known, started.sent, started.surplus)

    def raised_again(self, world: World, worker: Worker) -> Work:
        """`PartitionStarter.raise_epochs_again`."""
        others = tuple(self.service.decode(committed[1]).rule.epoch
                       for committed, work in zip(world.committed, worker.work, strict=True) if committed and not work)
        epoch = self.service.raised(world.clock, others)
        return tuple((work[0]._replace(rule=work[0].rule._replace(epoch=epoch)), ()) if work and self.service.can_exceed(others, work[0].rule.epoch) else work
                     for work in worker.work)


def turned(producers: tuple[str, str], turn: int, state: str) -> tuple[str, str]:
    """The producers' states with one changed."""
    return (state, producers[1]) if turn == 0 else (producers[0], state)


def put(world: World, number: int, worker: Worker) -> World:
    """The world with one worker changed."""
    return world._replace(workers=replaced(world.workers, number, worker))
