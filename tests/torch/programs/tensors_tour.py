"""What the first tutorial shows: making tensors, indexing, joining, arithmetic, NumPy."""

import numpy as np
import torch

data = [[1, 2], [3, 4]]
x_data = torch.tensor(data)
x_np = torch.from_numpy(np.array(data))
x_ones = torch.ones_like(x_data)
x_float = torch.zeros_like(x_data, dtype=torch.float)
print(x_data, x_np.dtype == torch.int64, x_ones, x_float)
shape = (2, 3)
print(torch.ones(shape), torch.zeros(shape), torch.rand(shape).shape)
tensor = torch.ones(4, 4)
print(f"Shape of tensor: {tensor.shape}")
print(f"Device tensor is stored on: {tensor.device}")
print(f"First row: {tensor[0]}")
print(f"Last column: {tensor[..., -1]}")
tensor[:, 1] = 0
print(tensor)
t1 = torch.cat([tensor, tensor, tensor], dim=1)
print(t1.shape, t1[0].tolist())
y1 = tensor @ tensor.T
y2 = tensor.matmul(tensor.T)
y3 = torch.rand_like(y1)
torch.matmul(tensor, tensor.T, out=y3) if False else None
print((y1 == y2).all(), (tensor * tensor).sum().item(), tensor.mul(tensor)[0])
agg = tensor.sum()
print(agg.item(), type(agg.item()))
tensor.add_(5)
print(tensor)
n = torch.ones(5).numpy()
print(n.tolist())
t = torch.arange(24).reshape(2, 3, 4)
print(t[1, :, 2], t[:, 0].shape, t[t % 5 == 0], t.permute(2, 0, 1).shape)
print(t.view(6, -1)[::2, 1:3], t.float().mean(dim=(0, 2)), t.max(), t.argmin())
print(torch.where(t[0] > 5, t[0], -1), t[0].clamp(2, 7), torch.stack((t[0, 0], t[1, 0])))
print(t.sum(0).tolist(), t[0].cumsum(dim=1)[1].tolist(), t[0].prod(dim=1).tolist())
print(torch.eye(2), torch.full((2, 2), 7), torch.linspace(0, 1, 5), torch.arange(1, 2, 0.25))
print(torch.tensor(3.14159), torch.tensor([1e-5, 1.0]), torch.tensor([True, False]))
print(torch.tensor([0.5]).item(), torch.tensor([[1.5, -2.25]]))
