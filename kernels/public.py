"""Every public function, with what it needs of torch in place."""

from kernels.runtime.targets import check_hopper_features as check_hopper_features

from .attention import flash_attention as flash_attention
from .attention import flash_attention_backward as flash_attention_backward
from .attention import flash_attention_kvcache as flash_attention_kvcache
from .attention import flash_attention_varlen as flash_attention_varlen
from .attention import scaled_dot_product_attention as scaled_dot_product_attention
from .matmul import grouped_matmul as grouped_matmul
from .matmul import matmul as matmul
from .matmul import matmul as triton_matmul  # noqa: F401  (the name that the guide's users call)
from .runtime import flops

flops.register()
