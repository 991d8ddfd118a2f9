import torch

from policies.flow.model import FlowTransformer, ModelConfig, num_parameters

CONFIG = ModelConfig(state_dim=5, num_tasks=2, action_dim=3, horizon=6, width=32, num_layers=2)


def make_model() -> FlowTransformer:
    torch.manual_seed(0)
    model = FlowTransformer(CONFIG).eval()
    with torch.no_grad():  # the last layer starts at zero, which would hide everything
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return model


def test_equal_times_for_all_rows_act_as_one_time() -> None:
    model, rows = make_model(), torch.randn(2, 6, 3)
    context = model.encode(torch.randn(2, 5), torch.tensor([0, 1]))
    t = torch.tensor([0.3, 0.7])
    per_row = model.velocity(rows, t[:, None].expand(2, 6), context)
    for i in range(2):
        one = model.velocity(rows[i : i + 1], t[i].expand(1, 6), context[i : i + 1])
        torch.testing.assert_close(per_row[i : i + 1], one)


def test_the_time_of_one_row_reaches_the_velocity_of_every_row() -> None:
    model, rows = make_model(), torch.randn(1, 6, 3)
    context = model.encode(torch.randn(1, 5), torch.tensor([0]))
    t = torch.full((1, 6), 0.5)
    t_one_clean = t.clone()
    t_one_clean[0, 0] = 1.0
    change = (model.velocity(rows, t, context) - model.velocity(rows, t_one_clean, context)).abs()
    assert (change[0].amax(dim=1) > 1e-4).all()


def test_a_checkpoint_of_default_size_stays_under_four_and_a_half_megabytes() -> None:
    config = ModelConfig(state_dim=25, num_tasks=2, action_dim=8, horizon=32)
    assert 4 * num_parameters(FlowTransformer(config)) < 4.5e6
