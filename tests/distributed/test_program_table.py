"""The table of programs that edge expressions are compiled to."""

from __future__ import annotations

import numpy as np

from tests.parity import cases_expression
from tests.support.graphs import close, make
from tests.support.pool import Pool
from tests.support.sessions import Workers


def test_backward_of_a_program_that_left_the_table(pool: Pool) -> None:
    graph = make("random", 2, seed=3)
    x = np.random.default_rng(4).standard_normal((graph.num_nodes, 3))
    results = Workers(pool, 2, "shm").run(cases_expression.forgotten, graph.shares(x=x))
    degrees = np.bincount(graph.src, minlength=graph.num_nodes)[:, None]
    grad = degrees * (np.exp(x) + 1 - np.tanh(x) ** 2)
    for i, f in enumerate((np.exp, np.tanh)):
        total = np.zeros_like(x)
        np.add.at(total, graph.dst, f(x)[graph.src])
        for rank, result in enumerate(results):
            close(result["outs"][i], total[graph.rows(rank)], f"output {i} of rank {rank}")
    for rank, result in enumerate(results):
        assert result["known"] == 1
        close(result["grad"], grad[graph.rows(rank)], f"gradient of rank {rank}")
