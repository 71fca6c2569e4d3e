"""Matmul as operators of torch: fake tensors, autograd, torch.compile."""
