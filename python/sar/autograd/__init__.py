"""Operations on graphs with their gradients, one ``autograd.Function`` per file."""

from .aggregate import aggregate
from .message import check, copy_u, u_mul_e

__all__ = ["aggregate", "check", "copy_u", "u_mul_e"]
