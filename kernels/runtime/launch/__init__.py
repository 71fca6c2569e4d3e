"""A call that was made before is replayed: no checks, no choice, no binder of Triton.

``prepared`` decorates a function of tensors. The first call of a form (shapes, strides, dtypes,
alignment, device, options) runs as it is written. The second one is recorded: which memory it
reserves, which operations of torch it uses, which kernels it launches with which arguments. Later
calls of the form repeat that with their own tensors. ``noted`` stands at every launch.
"""

from .adapters import VERSIONS
from .forms import forget, prepared
from .nodes import learner
from .recording import applied, noted, repeated

__all__ = ["VERSIONS", "applied", "forget", "learner", "noted", "prepared", "repeated"]
