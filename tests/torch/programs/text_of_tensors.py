"""How tensors, sizes, dtypes and modules look in strings."""

import torch
from torch import nn

torch.set_printoptions(precision=4)
print(torch.arange(12).reshape(3, 4))
print(torch.tensor([1e-8, 1.0, 1e8]), torch.tensor([0.1, 100.25]), torch.tensor([1.0, 2.0]))
print(torch.tensor([True, False]), torch.tensor(3), torch.tensor(2.5), torch.tensor([]))
print(torch.tensor([float("nan"), float("inf"), -1.5]), torch.zeros(2, 0))
print(torch.ones(2, 2, dtype=torch.float64), torch.ones(2, dtype=torch.float16))
print(torch.ones(2, dtype=torch.int32), torch.ones(2, dtype=torch.uint8))
print(torch.linspace(0, 1, 1200))
print(torch.ones(2, requires_grad=True) * 2, torch.ones(1, requires_grad=True).sum())
print(
    f"{torch.tensor(3.14159):.2f} {torch.tensor(7):>5d} {torch.tensor(0.5):.1%}", torch.Size([2, 3])
)
print(str(torch.float32), repr(torch.int64), torch.device("cuda:1"), torch.device("cpu"))
print(nn.Parameter(torch.tensor([1.0, -2.0])))
print(torch.tensor([1 + 2j, -0.5j]), torch.tensor([[1.5, -2.25], [1000.0, 0.001]]))
torch.set_printoptions(precision=2, sci_mode=False)
print(torch.tensor([1e-5, 123456.789]))
torch.set_printoptions(profile="default")
torch.set_printoptions(threshold=5, edgeitems=1)
print(torch.arange(20).reshape(4, 5))
torch.set_printoptions(profile="default")
print(torch.tensor([[1, 2], [3, 4]]).tolist(), torch.tensor(5).item(), len(torch.zeros(4, 2)))
print(nn.TransformerEncoderLayer(8, 2, 16))
print(
    nn.Sequential(
        nn.Conv2d(1, 2, 3, bias=False), nn.Dropout(0.1), nn.LSTM(2, 3, 2, batch_first=True)
    )
)
print(torch.tensor([-1, 10, 100]), torch.tensor([[0.0]]), -torch.zeros(2))
print(f"{torch.Size([1])} {torch.tensor(4):d} {torch.tensor(2.0):.3f}")
print([torch.tensor(1.0), torch.tensor([2])], {"a": torch.tensor(1)}, (torch.tensor(True),))
print(torch.tensor(1.23456789e-7), torch.tensor(123456789.0), torch.tensor([1e10, 1.0]))
print(torch.full((2, 3), 7.0), torch.eye(3, dtype=torch.int8), torch.tensor([[[1.0]], [[2.0]]]))
