"""A neural ODE by hand: Runge-Kutta with the adjoint method in a custom function."""

import numpy as np
import torch
from torch import nn
from torch.autograd import Function

rng = np.random.default_rng(52)


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 8)
        self.b = nn.Linear(8, 2)

    def forward(self, t, y):
        return self.b(torch.tanh(self.a(y**3))) - 0.1 * t * y


def rk4(f, t, y, h):
    k1 = f(t, y)
    k2 = f(t + h / 2, y + h / 2 * k1)
    k3 = f(t + h / 2, y + h / 2 * k2)
    k4 = f(t + h, y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def solve(f, y, steps=10, span=1.0):
    h = span / steps
    path = [y]
    for i in range(steps):
        y = rk4(f, torch.tensor(i * h), y, h)
        path.append(y)
    return torch.stack(path)


field = Field()
with torch.no_grad():
    for p in field.parameters():
        p.copy_(torch.from_numpy(rng.normal(0, 0.4, tuple(p.shape)).astype(np.float32)))
y0 = torch.tensor([[2.0, 0.0], [0.5, -1.0]])
true = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
with torch.no_grad():
    target = solve(lambda t, y: y @ true, y0)
optimizer = torch.optim.Adam(field.parameters(), lr=0.01)
for step in range(4):
    optimizer.zero_grad()
    path = solve(field, y0)
    loss = (path - target).abs().mean()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.5f}", path.shape)


class Square(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * scale

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 2 * x * ctx.scale, None


x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
y = Square.apply(x, 3.0)
y.sum().backward()
print(x.grad, y.grad_fn.name())
print(
    torch.autograd.gradcheck(
        lambda v: Square.apply(v, 0.5), (x.detach().double().requires_grad_(),)
    )
)
