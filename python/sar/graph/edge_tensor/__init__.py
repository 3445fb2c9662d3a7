"""Edge tensors that are computed when they are read."""

from . import arithmetic, shapes  # noqa: F401  register the functions of torch that edge tensors support
