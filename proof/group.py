"""The consumer group in the model: who is a member of the current generation, and which partitions are whose.

Classic protocol: a new generation is formed when every member that lives has given up its partitions in its poll, that is
between two rounds, or between two attempts to commit first frontiers. A member whose session ran out is left out of it and learns that later.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from proof.world import Shape, Step, Worker, World


def rebalances(world: World, shape: Shape) -> Iterator[Step]:
    """A new generation; forced when somebody waits or a partition has no member, otherwise a fault."""
    workers, partitions = world.workers, len(shape.source)
    if any(worker.member and worker.phase != "idle" and not (worker.phase == "decided" and worker.first) for worker in workers):
        return
    taking = [number for number, worker in enumerate(workers) if worker.member or worker.phase == "joining"]
    forced = any(worker.phase == "joining" for worker in workers) or any(owner < 0 or not workers[owner].member for owner in world.owners)
    if not taking or not (forced or (world.budget and "rebalance" in shape.faults)):
        return
    never = all(owner < 0 for owner in world.owners)  # the first time all are alike: one way of sharing stands for all
    ways = [tuple(taking[partition % len(taking)] for partition in range(partitions))] if never else product(taking, repeat=partitions)
    for owners in ways:
        balanced = len(set(owners)) == min(len(taking), partitions)
        if (forced and balanced) or (not forced and owners != world.owners):
            shared = tuple(_shared(worker, tuple(partition for partition, owner in enumerate(owners) if owner == number), shape)
                           if number in taking else worker for number, worker in enumerate(workers))
            yield Step("rebalance", not forced, world._replace(workers=shared, owners=owners, budget=world.budget - (not forced)))


def _shared(worker: Worker, wanted: tuple[int, ...], shape: Shape) -> Worker:
    """A member with its new partitions, which it has to start."""
    nothing = (None,) * len(shape.source)
    kept = nothing if shape.shell.forgets_when_lost else worker.held
    return worker._replace(phase="given" if wanted else "idle", member=True, held=kept, wanted=wanted, work=nothing, first=False, again=False)
