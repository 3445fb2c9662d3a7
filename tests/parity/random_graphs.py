"""A random program (:mod:`random_programs`) with its graph and its numbers, and how they fall to workers."""

from __future__ import annotations

from typing import Any

import numpy as np


class Case:
    """A program with its numbers, and how they fall to workers."""

    def __init__(self, spec: dict[str, Any], world: int) -> None:
        self.spec, self.world = spec, world
        rng = np.random.default_rng(spec["seed"])
        self.kinds = [f"t{k}" for k in range(len(spec["counts"]))]
        self.triples = [(self.kinds[a], f"r{k}", self.kinds[b]) for k, (a, b) in enumerate(spec["relations"])]
        self.cuts = [np.array([0, *cuts, n]) for cuts, n in zip(spec["cuts"], spec["counts"])]
        self.ends = []
        for (a, b), count in zip(spec["relations"], spec["num_edges"]):
            # a few nodes have most edges, so that others have none and some edges are parallel
            src, dst = (
                np.minimum(rng.integers(0, n, count), rng.integers(0, n, count))
                for n in (spec["counts"][a], spec["counts"][b])
            )
            self.ends.append((src, dst))
        self.leaves = {}
        for name, leaf in spec["leaves"].items():
            x = np.asarray(rng.standard_normal((*self.length(leaf["place"]), *leaf["shape"])))
            self.leaves[name] = (np.abs(x) + 0.5 if leaf["positive"] else x).astype(spec["dtype"])
        made = [step["out"] for step in spec["steps"]]
        self.grads = {
            name: rng.standard_normal((*self.length(spec["places"][name]), *spec["shapes"][name])).astype(spec["dtype"])
            for name in made
        }

    def length(self, place: str) -> tuple[int, ...]:
        if place == "p":
            return ()
        number = int(place[1:])
        return (self.spec["counts"][number] if place[0] == "n" else self.spec["num_edges"][number],)

    def rows(self, place: str, rank: int) -> Any:
        """What a rank has of the values at a place, in its order."""
        if place == "p":
            return ...
        number = int(place[1:])
        if place[0] == "n":
            return slice(self.cuts[number][rank], self.cuts[number][rank + 1])
        src, dst = self.ends[number]
        source, target = self.spec["relations"][number]
        low, high = self.cuts[target][rank], self.cuts[target][rank + 1]
        mine = np.flatnonzero((dst >= low) & (dst < high))
        # partition data made by hand lists edges by the owner of their sources
        owner = np.searchsorted(self.cuts[source][1:], src[mine], side="right")
        return mine[np.argsort(owner, kind="stable")]

    def wanted(self, name: str, rank: int) -> bool:
        wants = self.spec["leaves"][name]["wants"]
        return wants == "all" or (wants == "first" and rank == 0) or (wants == "last" and rank == self.world - 1)

    def part(self, rank: int) -> dict[str, Any]:
        counts = np.array([np.diff(cuts) for cuts in self.cuts])
        start = np.concatenate([[0], counts.sum(0).cumsum()]).astype(np.int64)

        def ids(kind: int, nodes: np.ndarray) -> np.ndarray:
            owner = np.searchsorted(self.cuts[kind][1:], nodes, side="right")
            first = start[owner] + counts[:kind].sum(0)[owner] if kind else start[owner]
            return first + nodes - self.cuts[kind][owner]

        src, dst, kinds = [], [], []
        for number, (a, b) in enumerate(self.spec["relations"]):
            mine = self.rows(f"e{number}", rank)
            src.append(ids(a, self.ends[number][0][mine]))
            dst.append(ids(b, self.ends[number][1][mine]))
            kinds.append(np.full(len(mine), number, np.int32))
        ends = {"src": np.concatenate(src), "dst": np.concatenate(dst)}
        part = {"start": start, **ends, "types": (self.kinds, self.triples)}
        if len(self.kinds) > 1:
            part["ntype"] = np.repeat(np.arange(len(self.kinds), dtype=np.int32), counts[:, rank])
        if len(self.triples) > 1:
            part["etype"] = np.concatenate(kinds)
        return part

    def arguments(self, rank: int) -> dict[str, Any]:
        """What a worker gets."""
        places = self.spec["places"]
        return {
            "program": {"steps": self.spec["steps"]},
            "part": self.part(rank),
            "triples": self.triples,
            "leaves": {name: x[self.rows(places[name], rank)] for name, x in self.leaves.items()},
            "wants": [name for name in self.leaves if self.wanted(name, rank)],
            "strided": [name for name, leaf in self.spec["leaves"].items() if leaf["strided"]],
            "grads": {name: g[self.rows(places[name], rank)] for name, g in self.grads.items()},
        }
