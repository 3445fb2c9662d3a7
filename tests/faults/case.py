"""What is drawn from a seed."""

from __future__ import annotations

import dataclasses
import random

EPOCHS = 12
PAUSE = 0.06  # seconds at most that a worker does something else in each phase of an epoch
START, LIVENESS, OPERATION = 8.0, 3.0, 8.0  # deadlines of the workers, in seconds
GRACE = 10.0  # what may pass beyond the deadline

#: How workers are placed and what carries their rows: one host, a host each, two hosts; ``tls`` is ``tcp`` encrypted.
LAYOUTS = ("shm", "tcp", "mixed", "tls")

#: A worker reports these in this order, those in the middle once an epoch. A fault strikes a moment after one of them.
PHASES = ("born", "met", "built", "forward", "backward", "reduce", "checkpoint", "trained")
_PHASE_WEIGHTS = (6, 2, 2, 4, 4, 4, 2, 2)


@dataclasses.dataclass(frozen=True)
class Case:
    """One job with one fault, or with none (``kind`` is ``"none"``)."""

    seed: int
    kind: str
    layout: str
    world: int
    model: str
    victim: int = 0  # rank
    peer: int = 1  # another one, at the other end where a fault is of two
    phase: str = "forward"
    epoch: int = 0
    delay: float = 0.0  # seconds from the phase's report to the fault

    @property
    def hosts(self) -> int:
        return {"shm": 1, "mixed": 2}.get(self.layout, self.world)

    def host(self, rank: int) -> int:
        """Where a rank runs: neighbours share a host."""
        return rank * self.hosts // self.world

    def ranks_at(self, host: int) -> set[int]:
        return {rank for rank in range(self.world) if self.host(rank) == host}

    @property
    def job(self) -> tuple[str, int, str]:
        """Cases with the same job have the same results."""
        return self.layout, self.world, self.model

    def undisturbed(self) -> Case:
        return Case(0, "none", *self.job)

    def describe(self) -> str:
        when = f"{self.delay:.2f} s after {self.phase!r} of epoch {self.epoch}"
        where = f"rank {self.victim} of {self.world}, {self.layout}, {self.model}"
        return f"{self.kind} at {where}, {when}" if self.kind != "none" else f"no fault, {where}"


def draw(seed: int, kinds: dict[str, tuple[str, ...]], only: str = "") -> Case:
    """The case of a seed.

    :param kinds: names of faults, and the layouts that each fits
    :param only: a name of ``kinds``, or "" for any
    """
    rng = random.Random(seed)
    kind = only or rng.choice(sorted(kinds))
    layout = rng.choice(kinds[kind])
    world = rng.choices((3, 4, 6, 8), (50, 35, 8, 7))[0]
    phase = rng.choices(PHASES, _PHASE_WEIGHTS)[0]
    victim, peer = rng.sample(range(world), 2)
    return Case(
        seed,
        kind,
        layout,
        world,
        model=rng.choice(("sage", "gat")),
        victim=victim,
        peer=peer,
        phase=phase,
        epoch=rng.randrange(1, EPOCHS) if PHASES.index(phase) in range(3, 7) else 0,
        # The rendezvous takes most of a second, a step of an epoch some milliseconds.
        delay=rng.random() ** 2 * (0.8 if phase == "born" else 0.15),
    )
