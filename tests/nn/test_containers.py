"""Subclasses of containers: what belongs to them, and what they call."""

from __future__ import annotations

from tilegrad import Tensor, nn


class Tower(nn.ModuleList):
    """Layers, with a norm behind them."""

    def __init__(self) -> None:
        super().__init__([nn.Linear(2, 2, bias=False)])
        self.norm = nn.LayerNorm(2)
        self.gain = Tensor.ones(2, requires_grad=True)


def test_attributes_of_a_list_of_modules_are_trained() -> None:
    tower = Tower()
    names = ["gain", "0.weight", "norm.weight", "norm.bias"]
    assert list(tower.state_dict()) == names
    assert [name for name, _ in tower.named_parameters()] == names
    assert list(nn.state.get_state_dict(tower)) == names
    # A plain list has none.
    assert list(nn.state.get_state_dict([Tensor.ones(1)])) == ["0"]


class Scaled(nn.Sequential):
    """Layers, one of them a function, and attributes that are no layers."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(2, 2), Tensor.relu)
        self.channels = 2
        self.act = Tensor.exp


def test_what_was_not_added_is_no_layer() -> None:
    block = Scaled()
    x = Tensor([[1.0, -2.0]])
    weight, bias = block[0].weight.numpy(), block[0].bias.numpy()
    want = (x.numpy() @ weight.T + bias).clip(0)
    assert len(block) == 2
    assert abs(block(x).numpy() - want).max() < 1e-6
    block[1] = nn.Identity()
    assert len(block) == 2 and isinstance(block.pop(), nn.Identity)
    block.insert(0, Tensor.relu)
    assert [callable(each) for each in block] == [True, True]
    assert abs(block(x).numpy() - (x.numpy().clip(0) @ weight.T + bias)).max() < 1e-6
