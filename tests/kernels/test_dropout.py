"""What dropout keeps: by its seed, unbiased, each draw alone, in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import torch

from tests.kernels.interpreted import Worker
from tests.kernels.scores_cases import below, drawn


def run_dropout() -> dict[str, torch.Tensor]:
    """Uniform weights over keys whose values tell which were kept."""
    import kernels

    q, k = torch.zeros(2, 4, 64, 2, 64).unbind()
    v = torch.eye(64).reshape(1, 64, 1, 64).expand(4, 64, 2, 64)

    def kept(**options: Any) -> torch.Tensor:
        return kernels.flash_attention(q, k, v, dropout_p=0.25, **options) * 64.0

    views = [one.transpose(1, 2) for one in (q, k, v)]
    torch.manual_seed(1)
    found = {
        "first": kept(dropout_seed=7),
        "again": kept(dropout_seed=torch.tensor([7])),
        "other": kept(dropout_seed=8),
        "drawn": kept(),
        "drawn_again": kept(),
        "all": kernels.flash_attention(q, k, v, dropout_p=1.0),
        "sdpa": kernels.scaled_dot_product_attention(*views, dropout_p=0.25) * 64.0,
    }
    return {name: one.contiguous() for name, one in found.items()}


def test_dropout_is_the_seeds_and_unbiased(interpreter: Worker) -> None:
    found = interpreter.run(run_dropout)
    assert torch.equal(found["first"], found["again"])
    for name in ("other", "drawn", "drawn_again", "sdpa"):
        assert not torch.equal(found["first"], found[name])
        # 32,768 draws: 5 standard deviations of their mean.
        assert abs(float(found[name].mean()) - 1.0) < 5.0 * (0.25 / 0.75 / 32768) ** 0.5
    assert not torch.equal(found["drawn"], found["drawn_again"])
    assert set(found["first"].unique().tolist()) == {0.0, float(torch.tensor(1.0) / 0.75)}
    assert torch.equal(found["all"], torch.zeros_like(found["all"]))


def run_kept() -> torch.Tensor:
    """(seeds, heads, rows, keys): which of uniform weights a quarter of dropout keeps."""
    import kernels

    q, k = torch.zeros(2, 1, 128, 2, 128).unbind()
    v = torch.eye(128).reshape(1, 128, 1, 128).expand(1, 128, 2, 128)
    found = [kernels.flash_attention(q, k, v, dropout_p=0.25, dropout_seed=seed) for seed in (7, 8)]
    return torch.cat(found).transpose(1, 2) > 0.0


def test_what_dropout_keeps_is_drawn_alone_of_every_neighbour(interpreter: Worker) -> None:
    kept = interpreter.run(run_kept)
    numbers = drawn(2, 128, 128, seed=7)
    assert torch.equal(kept[0], numbers >= below(0.25))
    # Each bit of a word is set by half, and each row, column, head and word keeps three quarters.
    halves = (numbers[..., None] >> torch.arange(32)) & 1
    assert float((halves.double().mean((0, 1, 2)) - 0.5).abs().max()) < 5.0 * (0.25 / 32768) ** 0.5
    for axes in ((1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)):
        rates = kept.double().mean(axes)
        draws = kept.numel() // rates.numel()
        assert float((rates - 0.75).abs().max()) < 5.0 * (0.1875 / draws) ** 0.5
    whole = kept.double().reshape(4, 8, 2, 8, 8, 2, 8) - 0.75
    of_words = whole.mean((0, 1, 3, 4, 6))
    assert float(of_words.abs().max()) < 5.0 * (0.1875 / (kept.numel() // 4)) ** 0.5
    # Products of what is (rows, keys) apart, as far as one Philox serves and beyond, and of the
    # same place of another seed or head: 5 standard deviations of a mean of no correlation.
    centred = kept.double() - 0.75
    apart = [(i, j) for i in (0, 1, 2, 4, 8, 16, 32) for j in (0, 1, 2, 4, 8, 16, 32) if i or j]
    for rows, keys in apart:
        pairs = centred[..., rows:, keys:] * centred[..., : 128 - rows, : 128 - keys]
        assert abs(float(pairs.mean())) < 5.0 * 0.1875 / pairs.numel() ** 0.5, (rows, keys)
    for one, other in ((centred[0], centred[1]), (centred[:, 0], centred[:, 1])):
        assert abs(float((one * other).mean())) < 5.0 * 0.1875 / one.numel() ** 0.5
    # Of four words of one Philox any two, three and four.
    four = whole.permute(0, 1, 3, 4, 6, 2, 5).reshape(-1, 4)
    for words in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (0, 1, 2), (1, 2, 3), range(4)):
        product = four[:, list(words)].prod(1)
        limit = 5.0 * (0.1875 ** len(words) / len(four)) ** 0.5
        assert abs(float(product.mean())) < limit, tuple(words)
