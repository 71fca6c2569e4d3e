"""Six small kernels of a language model, and nothing around them."""

from .attention import attention
from .gated import gated_mlp
from .linear import linear
from .logits import logits
from .matmul import matmul
from .norm import rms_norm

__all__ = ["attention", "gated_mlp", "linear", "logits", "matmul", "rms_norm"]
