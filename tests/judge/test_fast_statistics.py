"""What makes the judge fast changes no verdict: its inner loops against their plain formulas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from warpwatch.judge.series import lockstep, noise, segments, steps
from warpwatch.judge.statistics import contrast, density, jumps, likeliest, synthetic

Floats = NDArray[np.float64]


def plain_ranks(values: Floats) -> Floats:
    order = np.sort(values)
    below, up_to = np.searchsorted(order, values), np.searchsorted(order, values, "right")
    return (below + up_to) / (2.0 * len(values))


def plain_medians_of_five(rows: Floats) -> Floats:
    padded = np.pad(rows, ((0, 0), (2, 2)), mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, 5, axis=1), axis=2)


def plain_strongest(values: Floats, least: int, beyond: float = 0.0) -> tuple[int, float]:
    """Shares above each quantile left and right of every place, as floating-point numbers."""
    n = len(values)
    if n < 2 * least:
        return 0, 0.0
    count = min(14, n)
    places = ((np.arange(count) + 0.5) / count * n).astype(np.int64)
    above = values[:, None] > np.unique(np.sort(values)[places])
    share = above.mean(axis=0)
    use = (share > 0.0) & (share < 1.0)
    if not use.any():
        return 0, 0.0
    weight = np.where(use, 1.0 / np.where(use, share * (1.0 - share), 1.0), 0.0) / use.sum()
    total = np.concatenate((np.zeros((1, above.shape[1])), np.cumsum(above, axis=0)))
    best = (0, 0.0)
    for at in range(least, n - least + 1):
        left = total[at] - at * share
        height = float(left**2 @ weight) * n / (at * (n - at))
        best = (at, height) if height > best[1] * (1 + 1e-12) else best
    width = 8
    while width * 3 <= n:
        for at in range(width, n - width + 1):
            apart = total[at + width] - 2 * total[at] + total[at - width]
            height = float(apart**2 @ weight) / (2 * width)
            best = (at, height) if height > best[1] * (1 + 1e-12) else best
        width *= 2
    return best


def plain_totals(
    shape: density.NoiseShape, points: Floats, weights: Floats, low: float, steps: int
) -> Floats:
    """The log-likelihood at ``low`` and at each of ``steps`` cells above it, point by point."""
    cell = shape.sigma / density.CELLS_A_SIGMA
    # What is left of a cell is not lost where levels lie far from zero.
    lowest = (points - low) / cell
    return np.array([shape.log_likelihood((lowest - k) * cell) @ weights for k in range(steps + 1)])


def plain_shift(shape: density.NoiseShape, points: Floats, low: float, high: float) -> Floats:
    cell = shape.sigma / density.CELLS_A_SIGMA
    totals = plain_totals(shape, points, np.ones(len(points)), low, int((high - low) / cell))
    return np.array([low + cell * int(totals.argmax()), totals.max()])


def plain_shifts(
    shapes: Sequence[density.NoiseShape], given: likeliest.Stretches, reach_sigma: int
) -> Floats:
    found = []
    for number, (first, end) in zip(given.owners, stretches(given), strict=True):
        shape, reach = shapes[number], reach_sigma * density.CELLS_A_SIGMA
        cell = shape.sigma / density.CELLS_A_SIGMA
        points, weights = given.points[first:end], given.weights[first:end]
        totals = plain_totals(shape, points, weights, -reach * cell, 2 * reach)
        found.append((int(totals.argmax()) - reach) * cell)
    return np.array(found)


def plain_likeliest(
    shapes: Sequence[density.NoiseShape], given: likeliest.Stretches, lows: Floats, highs: Floats
) -> Floats:
    """Of all levels a cell apart, counted from below and from above."""
    found = []
    for number, (first, end) in enumerate(stretches(given)):
        points, weights = given.points[first:end], given.weights[first:end]
        shape, low, high = shapes[given.owners[number]], lows[number], highs[number]
        cell = shape.sigma / density.CELLS_A_SIGMA
        half = int(np.ceil(min((high - low) / cell / 2.0, density.SIDE)))
        upwards = plain_totals(shape, points, weights, low, half)
        downwards = plain_totals(shape, points, weights, high - half * cell, half)
        found.append(max(upwards.max(), downwards.max()))
    return np.array(found)


def stretches(given: likeliest.Stretches) -> Iterator[tuple[int, int]]:
    return pairwise([*given.starts.tolist(), len(given.points)])


def series(count: int) -> Iterator[Floats]:
    random = np.random.default_rng(71)
    kinds = ("lognormal", "bimodal", "autocorrelated", "drifting")
    for number in range(count):
        points, step = int(random.integers(40, 260)), float(random.choice([0.0, 0.02, 0.05, 0.3]))
        values = synthetic.series(kinds[number % 4], points, 0.01, random, step=step).values
        match number % 6:
            case 1:  # ties
                values = np.round(values, 2)
            case 2:  # counts
                values = np.round(values * 200)
            case 3:  # of both signs, judged as they are
                values = values - np.median(values)
            case 4:  # spikes
                values = np.where(random.random(points) < 0.03, 5 * values, values)
        yield values


def series_of_many_levels(count: int) -> Iterator[Floats]:
    """Long ones, with gaps in every third."""
    random = np.random.default_rng(74)
    for number in range(count):
        points = int(random.integers(150, 450))
        logs = synthetic.noise(synthetic.KINDS[number % 5], points, 0.01, random)
        for place in synthetic.places(points, 2 + number % 5, 6, random):
            logs[place:] += random.normal(0.0, 0.1)
        if number % 3 == 0:
            logs[random.random(points) < 0.2] = np.nan
        yield 1e-4 * np.exp(logs)


def test_the_fast_judge_finds_what_the_plain_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    every = [*series(144), *series_of_many_levels(30)]
    fast = [steps.changes(values) for values in every]
    assert sum(map(len, fast[:144])) > 60
    assert sum(map(len, fast[144:])) > 90
    monkeypatch.setattr(contrast, "_ranks", plain_ranks)
    monkeypatch.setattr(contrast, "strongest", plain_strongest)
    monkeypatch.setattr(steps, "strongest", plain_strongest)
    monkeypatch.setattr(segments, "best_shifts", plain_shifts)
    monkeypatch.setattr(segments, "likeliest", plain_likeliest)
    monkeypatch.setattr(jumps, "_medians_of_five", plain_medians_of_five)
    for module in (segments, steps):
        monkeypatch.setattr(module, "median", lambda values: float(np.median(values)))
    for values, found in zip(every, fast, strict=True):
        plain = steps.changes(values)
        assert [(s.index, s.before, s.after, s.interval) for s in found] == [
            (s.index, s.before, s.after, s.interval) for s in plain
        ]
        assert [s.confidence for s in found] == pytest.approx([s.confidence for s in plain])


def test_rows_without_jumps_are_told_together() -> None:
    random = np.random.default_rng(72)
    rows = random.normal(0.0, 1.0, (80, 90))
    rows[20:40, 50:] += np.linspace(1.0, 6.0, 20)[:, None]
    rows[40:60, 30:36] += 5.0
    rows[60:70] = np.round(rows[60:70])
    calm = jumps.without_jumps(rows, 4)
    has = np.array([bool(jumps.jumps(row, 4)) for row in rows])
    assert not (calm & has).any()
    assert calm[:20].sum() > 15
    assert has[20:60].sum() > 25


@pytest.mark.parametrize("apart", [1e-9, 1.0, 9.0])
def test_the_best_shift_of_one_series(apart: float) -> None:
    random = np.random.default_rng(73)
    shape = density.learn(random.normal(0, 1, 200), 1.0)
    values = np.concatenate((random.normal(0, 1, 50), random.normal(apart, 1, 50)))
    assert likeliest.best_shift(shape, values, 0.0, apart) == pytest.approx(
        plain_shift(shape, values, 0.0, apart)
    )


@pytest.mark.parametrize("apart", [300.0, 1e9, 1e140])
def test_no_level_between_two_far_apart_is_likelier_than_both(apart: float) -> None:
    random = np.random.default_rng(77)
    shape = density.learn(random.normal(0, 1, 200), 1.0)
    values = np.concatenate((random.normal(0, 1, 50), random.normal(apart, 1, 50)))
    given = likeliest.Stretches.joined([values], [np.ones(100)], [0])
    (found,) = likeliest.likeliest([shape], given, np.array([0.0]), np.array([apart]))
    between = np.linspace(0.0, apart, 999)
    plain = max(shape.log_likelihood(values - level).sum() for level in between)
    assert found >= plain - 1e-9 * abs(plain)
    assert found < shape.log_likelihood(values - np.repeat([0.0, apart], 50)).sum() - 100.0


@pytest.mark.parametrize("apart", [1e-9, 0.3, 2.0, 7.0, 90.0, 1e6, 1e14])
def test_many_stretches_are_looked_up_as_each_of_them(apart: float) -> None:
    random = np.random.default_rng(75)
    shapes = [density.learn(random.normal(0, one, 200), one) for one in (0.5, 1.0, 2.0)]
    owners = random.integers(0, 3, 40)
    points = [20.0 * random.standard_t(1.5, int(random.integers(3, 60))) for _ in owners]
    for number in range(0, 40, 2):
        points[number] = random.normal(0, 1, len(points[number]))
    weights = [random.uniform(0.25, 4.0, len(one)) for one in points]
    given = likeliest.Stretches.joined(points, weights, owners.tolist())
    assert likeliest.best_shifts(shapes, given, 5) == pytest.approx(plain_shifts(shapes, given, 5))
    lows, highs = np.full(40, -apart / 3), np.full(40, 2 * apart / 3)
    exact = plain_likeliest(shapes, given, lows, highs)
    assert likeliest.likeliest(shapes, given, lows, highs) == pytest.approx(exact)


def test_series_side_by_side_are_judged_as_alone() -> None:
    every = [*series(144), *series_of_many_levels(60)]
    one_by_one = [steps.find_steps(values) for values in every]
    assert lockstep.together(steps.steps_of(values) for values in every) == one_by_one
    # Those that ask nothing hold up nobody.
    quiet = [np.ones(3)] * 200
    together = lockstep.together(steps.steps_of(values) for values in (*quiet, *every, *quiet))
    assert together == [*([[]] * 200), *one_by_one, *([[]] * 200)]


@pytest.mark.parametrize("points", [59, 61, 300, 1999, 2001])
def test_the_strongest_contrast_is_told_in_full_where_it_counts(points: int) -> None:
    random = np.random.default_rng(points)
    for step in (0.0, 0.3, 1.0):
        values = random.normal(0, 1, points)
        values[points // 3 :] += step
        at, height = plain_strongest(values, 3)
        assert contrast.strongest(values, 3) == (at, pytest.approx(height))
        assert contrast.strongest(values, 3, 0.999 * height) == (at, pytest.approx(height))
        assert contrast.strongest(values, 3, 1.1 * height)[1] <= 1.1 * height


def test_equal_values_share_their_rank() -> None:
    random = np.random.default_rng(76)
    for values in (random.normal(0, 1, 50), random.integers(0, 9, 50) / 3.0, np.zeros(4)):
        assert (contrast._ranks(values) == plain_ranks(values)).all()


@pytest.mark.parametrize("points", [20, 40, 120, 470])
def test_the_noise_of_many_rows_is_that_of_each(points: int) -> None:
    rng = np.random.default_rng(points)
    logs = rng.normal(0, 0.01, (60, points))
    logs[10:20] = logs[10:20].round(2)  # ties
    logs[20:30] += rng.choice([0.0, 0.1], (10, points))  # modes
    logs[30:40] = 0.01 * rng.standard_t(1.5, (10, points))  # spikes
    logs[40:50] = 0.3 * logs[40:50].cumsum(axis=1)  # memory
    logs[50:58] = np.exp(rng.normal(0, 0.7, (8, points)))  # skewed
    logs[58], logs[59, 1:] = 0.0, 0.0  # constant, and but for one
    values = np.exp(logs)
    together = noise.classify_rows(values)
    assert together == [noise.classify(row) for row in values]
    assert len({one.kind for one in together}) >= (3 if points < 100 else 5)
    # A row is told the same beside whichever others.
    assert noise.classify_rows(values[::3]) == together[::3]
