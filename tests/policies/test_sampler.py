import torch

from policies.flow.sampler import constant_timetable, sample


def test_equal_steps_end_at_the_action_for_every_row() -> None:
    table = constant_timetable(num_steps=4, horizon=3)
    torch.testing.assert_close(table[:, 0], torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]))
    assert (table == table[:, :1]).all()


def test_prefix_rows_are_finished_from_the_start() -> None:
    table = constant_timetable(num_steps=2, horizon=4, num_prefix_rows=2)
    assert table[:, :2].eq(1.0).all()
    assert table[0, 2:].eq(0.0).all()


def test_the_exact_velocity_of_a_point_is_followed_to_the_point() -> None:
    noise, action = torch.randn(2, 3, 2), torch.randn(2, 3, 2)
    table = constant_timetable(num_steps=5, horizon=3)
    rows = sample(lambda x, t: action - noise, noise=noise, timetable=table, prefix=torch.zeros(2, 0, 2))
    torch.testing.assert_close(rows, action)


def test_the_prefix_is_what_the_velocity_sees_and_what_comes_out() -> None:
    prefix = torch.randn(1, 2, 2)
    seen = []

    def velocity(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        seen.append((x[:, :2].clone(), t.clone()))
        return torch.full_like(x, 1e3)

    table = constant_timetable(num_steps=3, horizon=4, num_prefix_rows=2)
    rows = sample(velocity, noise=torch.randn(1, 4, 2), timetable=table, prefix=prefix)
    assert torch.equal(rows[:, :2], prefix)
    for rows_seen, t in seen:
        assert torch.equal(rows_seen, prefix)
        assert t[:, :2].eq(1.0).all()
        assert t[:, 2:].lt(1.0).all()


def test_rows_with_timetables_of_their_own_each_take_their_own_steps() -> None:
    table = torch.tensor([[0.0, 0.0], [1.0, 0.25], [1.0, 1.0]])
    noise = torch.zeros(1, 2, 1)
    rows = sample(lambda x, t: torch.ones_like(x), noise=noise, timetable=table, prefix=torch.zeros(1, 0, 1))
    torch.testing.assert_close(rows, torch.ones(1, 2, 1))
