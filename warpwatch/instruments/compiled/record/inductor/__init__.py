"""Makes and records, without a card, the kernels that ``torch.compile`` generates."""
