"""flash_attention_varlen in fp8 on a case: each sequence is judged as attention_fp8_cases does."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any

import torch

from tests.kernels import attention_fp8_cases

PLAIN = [one.name for one in fields(attention_fp8_cases.Case)]


@dataclass(frozen=True, kw_only=True)
class Case(attention_fp8_cases.Case):
    """``q`` and ``k`` in the place of S and KV; of them the first ``used`` alone, if it is not
    empty. Rows that are not used are NaN, and so are ``spare`` ones behind the last sequence. The
    longest are ``overstated`` by so many."""

    q: tuple[int, ...] = (70, 1, 0, 33)
    k: tuple[int, ...] = (70, 90, 5, 20)
    spare: int = 0
    used: tuple[int, ...] = ()
    overstated: int = 0

    def __str__(self) -> str:
        lengths = "+".join(map(str, self.q)), "+".join(map(str, self.k))
        kind = super().__str__().replace(f"S{self.S}-KV{self.KV}", f"q{lengths[0]}-k{lengths[1]}")
        used = "-used" + "+".join(map(str, self.used)) if self.used else ""
        told = f"-overstated{self.overstated}" * bool(self.overstated)
        return kind + "-spare" * bool(self.spare) + used + told

    @property
    def lengths(self) -> list[tuple[int, int]]:
        used = self.used or (max(*self.q, *self.k),) * len(self.q)
        both = zip(self.q, self.k, used, strict=True)
        return [(min(n_q, most), min(n_k, most)) for n_q, n_k, most in both]

    def unused(self, side: int) -> torch.Tensor:
        """Which rows of queries, or of keys, are no sequence's or not used."""
        found = torch.ones(sum((self.q, self.k)[side]) + self.spare, dtype=torch.bool)
        for first, lengths in zip(self.ends()[side].tolist(), self.lengths, strict=False):
            found[first : first + lengths[side]] = False
        return found

    def ends(self) -> list[torch.Tensor]:
        both = (self.q, self.k)
        return [torch.tensor([0, *accumulate(one)], dtype=torch.int32) for one in both]

    def rows(self, name: str) -> tuple[int, ...]:
        return (sum(self.q if name == "q" else self.k) + self.spare,)

    def arguments(self) -> dict[str, Any]:
        made = super().arguments()
        for name in "qkv":
            one = made[name]
            nothing = torch.full((1,), float("nan")).to(one.dtype).view(torch.uint8)
            one.view(torch.uint8)[self.unused(int(name != "q"))] = nothing
        return made

    def attended(self) -> list[tuple[Any, dict[str, Any], torch.Tensor, torch.Tensor]]:
        import kernels

        made = self.arguments()
        longest = [max(one) + self.overstated for one in (self.q, self.k)]
        q, k, v = (made[name] for name in "qkv")
        scales = {name: one for name, one in made.items() if name not in "qkv"}
        most = torch.tensor(self.used, dtype=torch.int32) if self.used else None
        out, lse = kernels.flash_attention_varlen(
            q,
            k,
            v,
            *self.ends(),
            *longest,
            seqused_q=most,
            seqused_k=most,
            **scales,
            **self.options(),
        )
        hidden = self.unused(0)
        assert not out[hidden].any() and (lse[:, hidden] == float("-inf")).all()
        found = []
        ends_q, ends_k = (one.tolist() for one in self.ends())
        for i, (n_q, n_k) in enumerate(self.lengths):
            if not n_q:
                continue
            rows = slice(ends_q[i], ends_q[i] + n_q)
            keys = slice(ends_k[i], ends_k[i] + n_k)
            given = {"q": q[None, rows], "k": k[None, keys], "v": v[None, keys]}
            given |= {name: x[i : i + 1] if x.dim() == 2 else x for name, x in scales.items()}
            plain = {name: getattr(self, name) for name in PLAIN} | {"S": n_q, "KV": n_k}
            one = attention_fp8_cases.Case(**plain)
            found.append((one, given, out[None, rows], lse[None, :, rows]))
        return found
