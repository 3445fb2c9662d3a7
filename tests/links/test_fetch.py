"""Rows of any nodes: values, gradients, what travels, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.links import cases_fetch as cases
from tests.links.graphs import cut
from tests.support.sessions import Workers

WIDTH = 3


@pytest.mark.parametrize("by", ["row", "original"])
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_rows_and_gradients(few: Workers, dtype: str, by: str) -> None:
    """With repeated ids, a worker without nodes, and one that asks for none. bfloat16 is rounded once."""
    some = cut(few.world, empty=True)
    rng = np.random.default_rng(3)
    x = rng.integers(-8, 8, (some.graph.num_nodes, WIDTH)).astype(float)
    asked = [rng.integers(0, len(x), 0 if rank == few.world - 2 else 150) for rank in range(few.world)]
    grads = [rng.integers(-3, 3, (len(ids), WIDTH)) + 1 / 64 for ids in asked]
    numbers = [some.ids.argsort()[ids] for ids in asked] if by == "row" else asked
    found = few.run(cases.fetched, some.shares(x=x, ranks={"asked": numbers, "grads": grads}), dtype=dtype, by=by)
    expected = np.zeros_like(x)
    for ids, grad in zip(asked, grads):
        if dtype == "bfloat16":
            grad = bfloat16(grad)
        np.add.at(expected, ids, grad)
    for rank, one in enumerate(found):
        assert one["dtype"] == f"torch.{dtype}"
        np.testing.assert_array_equal(one["out"], x[asked[rank]])
        wanted = expected[some.rows(rank)]
        np.testing.assert_array_equal(one["grad"], bfloat16(wanted) if dtype == "bfloat16" else wanted)


def bfloat16(x: np.ndarray) -> np.ndarray:
    import torch

    found: np.ndarray = torch.from_numpy(x).bfloat16().double().numpy()
    return found


def test_other_dtypes(few: Workers) -> None:
    some = cut(few.world)
    rng = np.random.default_rng(4)
    x = rng.integers(0, 3, (some.graph.num_nodes, WIDTH)).astype(float)
    asked = [rng.integers(0, len(x), 40) for _ in range(few.world)]
    for rank, (rows, needs) in enumerate(few.run(cases.whole_numbers, some.shares(x=x, ranks={"asked": asked}))):
        wanted = x[some.ids[asked[rank]]]
        for got in rows:
            np.testing.assert_array_equal(got, wanted.astype(got.dtype))
        assert not needs


def test_a_row_travels_once(two: Workers) -> None:
    some = cut(2)
    x = np.ones((some.graph.num_nodes, 256))
    for once, often in two.run(cases.bytes_of_repeated, some.shares(x=x), times=7):
        assert once == often > 0


def test_wrong_arguments(few: Workers) -> None:
    """An error on every worker; those whose arguments were right hear of the rank whose were wrong."""
    some = cut(few.world)
    texts = {
        "too large": "is no node",
        "negative": "id -1 is no node",
        "floats": "give int64 in one dimension",
        "two dimensions": "give int64 in one dimension",
        "gradient": "is float16",
        "no original": "original ids are 0 to 60",
    }
    for rank, said in enumerate(few.run(cases.wrong, some.shares(x=np.ones((some.graph.num_nodes, 2))))):
        for name, text in texts.items():
            assert text in said[name] and (rank == 0 or "rank 0" in said[name]), (name, said[name])
        assert few.world == 1 or "give the same dtype and shape of rows" in said["rows that differ"]
