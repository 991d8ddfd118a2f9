import torch
from torch import Tensor

from policies.flow.sampler import (
    PreviousRows,
    constant_timetable,
    denoise,
    horizon_aware_timetable,
    integrate,
)
from robot_runtime.core.method.sampler_parts import (
    ClampedPrefix,
    ConstantSchedule,
    HorizonAwareSchedule,
    LambdaMaskedPrefix,
    PrefixPreservedStart,
    RtcGuidance,
    SamplerPart,
)

H, D = 6, 2


def previous_rows(planned: list[int], committed: list[int], horizon: int = H) -> PreviousRows:
    rows = torch.randn(len(planned), horizon, D, generator=torch.Generator().manual_seed(5))
    for item, n in zip(rows, planned, strict=True):
        item[n:] = 0.0
    return PreviousRows(rows=rows, num_rows=torch.tensor(planned), num_committed=torch.tensor(committed))


class Recorded:
    """A velocity field that bends, and what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[Tensor, Tensor, Tensor | None]] = []

    def __call__(self, x: Tensor, t: Tensor, is_prefix: Tensor | None) -> Tensor:
        self.calls.append((x.clone(), t.clone(), is_prefix))
        return torch.tanh(x.flip(1) - 0.5 * x) + t[..., None]


def run(part: SamplerPart, previous: PreviousRows, *, num_steps: int = 4) -> tuple[list[Tensor], Recorded]:
    velocity = Recorded()
    noise = torch.randn(previous.rows.shape, generator=torch.Generator().manual_seed(1))
    steps = denoise(part, velocity, noise=noise, previous=previous, num_steps=num_steps)
    return [x.detach() for x in steps], velocity


def nothing_kept(x: Tensor) -> dict[str, Tensor]:
    return {"kept": torch.zeros_like(x), "is_kept": torch.zeros(x.shape[:2], dtype=torch.bool)}


def test_equal_steps_end_at_the_action_for_every_row() -> None:
    table = constant_timetable(num_steps=4, is_finished=torch.zeros(2, 3, dtype=torch.bool))
    torch.testing.assert_close(table[:, 1, 0], torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]).double())
    assert (table == table[:, :1, :1]).all()


def test_prefix_rows_are_finished_from_the_start() -> None:
    committed = previous_rows([3, 2], [2, 0]).is_committed
    table = constant_timetable(num_steps=2, is_finished=committed)
    assert table[:, 0, :2].eq(1.0).all()
    assert table[0, 0, 2:].eq(0.0).all()
    assert table[0, 1].eq(0.0).all()


def test_the_exact_velocity_of_a_point_is_followed_to_the_point() -> None:
    noise, action = torch.randn(2, 3, 2), torch.randn(2, 3, 2)
    table = constant_timetable(num_steps=5, is_finished=torch.zeros(2, 3, dtype=torch.bool))
    *_, rows = integrate(lambda x, t: action - noise, start=noise, timetable=table, **nothing_kept(noise))
    torch.testing.assert_close(rows, action)


def test_a_clamped_prefix_is_finished_for_the_network_and_untouched_in_the_answer() -> None:
    previous = previous_rows([4, 6], [2, 5])
    steps, velocity = run(ClampedPrefix(), previous)
    committed = previous.is_committed
    for x in steps:
        assert torch.equal(x[committed], previous.rows[committed])
    for x, t, told in velocity.calls:
        assert torch.equal(x[committed], previous.rows[committed])
        assert t[committed].eq(1.0).all()
        assert t[~committed].lt(1.0).all()
        assert told is None


def test_a_lambda_masked_prefix_is_clean_under_one_time_for_all_rows() -> None:
    previous = previous_rows([4, 6], [2, 5])
    steps, velocity = run(LambdaMaskedPrefix(), previous)
    committed = previous.is_committed
    for x in steps:  # a velocity of zero on the prefix, whatever the network says
        assert torch.equal(x[committed], previous.rows[committed])
    for k, (x, t, told) in enumerate(velocity.calls):
        assert torch.equal(x[committed], previous.rows[committed])
        assert t.eq(k / 4).all()
        assert told is not None
        assert torch.equal(told, committed)


def test_a_preserved_prefix_starts_from_the_previous_chunk_as_published() -> None:
    """REMAC: x <- m (x + v / n) + (1 - m) A_prev from the shifted chunk and zeros, row by row."""
    previous, num_steps = previous_rows([4, 6], [2, 5]), 4
    steps, velocity = run(PrefixPreservedStart(), previous, num_steps=num_steps)
    field, x = Recorded(), previous.rows.clone()
    for k in range(num_steps):
        v = field(x, torch.full((2, H), k / num_steps), previous.is_committed)
        for item, d in enumerate([2, 5]):
            for row in range(H):
                after = x[item, row] + v[item, row] / num_steps
                x[item, row] = previous.rows[item, row] if row < d else after
    torch.testing.assert_close(steps[-1], x)
    assert all(told is not None and torch.equal(told, previous.is_committed) for *_, told in velocity.calls)


def test_without_a_previous_chunk_a_preserved_prefix_starts_from_noise() -> None:
    previous = previous_rows([0, 4], [0, 2])
    steps, velocity = run(PrefixPreservedStart(), previous)
    constant, _ = run(ConstantSchedule(), previous)
    assert torch.equal(steps[-1][0], constant[-1][0])
    assert torch.equal(velocity.calls[0][0][1], previous.rows[1])


def test_rows_with_timetables_of_their_own_each_take_their_own_steps() -> None:
    table = torch.tensor([[0.0, 0.0], [1.0, 0.25], [1.0, 1.0]])[:, None]
    noise = torch.zeros(1, 2, 1)
    *_, rows = integrate(lambda x, t: torch.ones_like(x), start=noise, timetable=table, **nothing_kept(noise))
    torch.testing.assert_close(rows, torch.ones(1, 2, 1))


def test_the_horizon_aware_table_gives_every_item_its_own_delay() -> None:
    part = HorizonAwareSchedule(num_steps=10)
    table = horizon_aware_timetable(part, num_committed=torch.tensor([3, 0]), horizon=50)
    assert table.shape == (11, 2, 50)
    assert table[0, 0, :3].eq(1.0).all()
    assert table[0, 0, 3:].eq(0.0).all()
    assert table[1, 0, 3] == 1.0
    assert table[1, 1, 0] == 1.0
    assert table[1, 1, 1] < 1.0


def test_a_row_of_the_horizon_aware_schedule_stays_as_it_is_once_finished() -> None:
    previous = previous_rows([4, 6], [1, 3])
    steps, velocity = run(HorizonAwareSchedule(num_steps=8), previous)
    for item, d in enumerate([1, 3]):
        assert torch.equal(steps[0][item, :d], previous.rows[item, :d])
        assert torch.equal(steps[0][item, d], steps[-1][item, d])  # the first open row needs one call
        assert velocity.calls[1][1][item, d] == 1.0
        assert not torch.equal(steps[-2][item, -1], steps[-1][item, -1])  # the last row needs all


def test_equal_finish_times_for_all_rows_are_the_constant_schedule() -> None:
    """With u0 = 0 every open row finishes at 1, which is a clamped prefix."""
    previous = previous_rows([4, 6], [2, 5])
    horizon_aware, _ = run(HorizonAwareSchedule(u0=0.0, num_steps=4), previous)
    clamped, _ = run(ClampedPrefix(), previous)
    torch.testing.assert_close(horizon_aware[-1], clamped[-1])


def test_without_a_previous_chunk_guidance_changes_nothing() -> None:
    previous = previous_rows([0, 4], [0, 2])
    guided, _ = run(RtcGuidance(), previous)
    constant, _ = run(ConstantSchedule(), previous)
    assert torch.equal(guided[-1][0], constant[-1][0])
    assert not torch.equal(guided[-1][1], constant[-1][1])
