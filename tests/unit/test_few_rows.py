"""Tensors of no row and of one are reshaped as those of many."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sar.graph.few_rows import FewRows

RESHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "reshape": lambda x: x.reshape(-1, 6),
    "reshape of rows": lambda x: x.reshape(len(x), -1),
    "transposed": lambda x: x.transpose(1, 2).reshape(len(x), 6),
    "transposed, a tuple": lambda x: torch.reshape(x.transpose(1, 2), (len(x), -1)),
    "two dimensions into one": lambda x: x.view(len(x), 3, 2, 1).transpose(1, 3).reshape(len(x), 2, -1),
    "flatten": lambda x: x.flatten(1),
    "flatten, transposed": lambda x: torch.flatten(x.transpose(1, 2), 1),
    "a column": lambda x: x[:, :, 0].contiguous(),
    "contiguous": lambda x: x.contiguous(),
    "columns": lambda x: x[:, :2].reshape(len(x), 4),
    "view": lambda x: x.view(len(x), -1),
}


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("name", RESHAPES)
def test_in_inference_mode(rows: int, name: str) -> None:
    with torch.inference_mode():
        few, many = torch.zeros(rows, 3, 2), torch.zeros(5, 3, 2)
        with FewRows():
            found = RESHAPES[name](few)
        shared = RESHAPES[name](many).untyped_storage().data_ptr() == many.untyped_storage().data_ptr()
        assert (found.untyped_storage()._cdata == few.untyped_storage()._cdata) == shared


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("name", RESHAPES)
def test_views_and_copies(rows: int, name: str) -> None:
    few, many = torch.zeros(rows, 3, 2), torch.zeros(5, 3, 2)
    wanted = RESHAPES[name](many)
    with FewRows():
        found = RESHAPES[name](few)
    assert found.shape == (rows, *wanted.shape[1:])
    shared = wanted.untyped_storage().data_ptr() == many.untyped_storage().data_ptr()
    version = few._version
    found.add_(1)
    assert (few._version > version) == shared
