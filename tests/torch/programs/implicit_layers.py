"""Functions with their own derivatives, differentiated twice, and layers that are defined by an
equation: a deep equilibrium model, implicit differentiation of an optimum, a gradient penalty.
"""

import numpy as np
import torch
import torch.nn as nn
from torch import autograd
from torch.autograd import Function, gradcheck, gradgradcheck


class Cube(Function):
    @staticmethod
    def forward(x):
        return x**3, 3 * x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        result, derivative = output
        ctx.save_for_backward(x, derivative)
        ctx.mark_non_differentiable()

    @staticmethod
    def backward(ctx, grad_output, grad_derivative):
        x, derivative = ctx.saved_tensors
        return grad_output * derivative + grad_derivative * 6 * x


class SoftThreshold(Function):
    @staticmethod
    def forward(ctx, x, threshold):
        ctx.save_for_backward(x, threshold)
        ctx.set_materialize_grads(False)
        return x.sign() * (x.abs() - threshold).clamp(min=0)

    @staticmethod
    def backward(ctx, grad):
        if grad is None:
            return None, None
        x, threshold = ctx.saved_tensors
        kept = (x.abs() > threshold).to(grad.dtype)
        d_x = d_t = None
        if ctx.needs_input_grad[0]:
            d_x = grad * kept
        if ctx.needs_input_grad[1]:
            d_t = (-x.sign() * kept * grad).sum_to_size(threshold.shape)
        return d_x, d_t


class Sinc(Function):
    """sin(x)/x with a backward that is a Function itself."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x == 0, torch.ones_like(x), x.sin() / x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return SincBackward.apply(g, x)


class SincBackward(Function):
    @staticmethod
    def forward(ctx, g, x):
        ctx.save_for_backward(g, x)
        return g * (x * x.cos() - x.sin()) / x**2

    @staticmethod
    def backward(ctx, gg):
        g, x = ctx.saved_tensors
        first = (x * x.cos() - x.sin()) / x**2
        second = (-(x**2) * x.sin() - 2 * x * x.cos() + 2 * x.sin()) / x**3
        return gg * first, gg * g * second


rng = np.random.RandomState(0)
x = torch.tensor(rng.randn(5), requires_grad=True)
y, d = Cube.apply(x)
(g,) = autograd.grad(y.sum(), x, create_graph=True)
(gg,) = autograd.grad((g * d).sum(), x)
print("cube", [f"{v:.4f}" for v in gg.tolist()], torch.allclose(gg, 36 * x.detach() ** 3))
print(
    "checks",
    gradcheck(Sinc.apply, (x + 3,)),
    gradgradcheck(Sinc.apply, (x.detach() + 3).requires_grad_()),
)
t = torch.tensor([0.4], dtype=torch.float64, requires_grad=True)
out = SoftThreshold.apply(x, t)
out.pow(2).sum().backward(retain_graph=True)
print("soft", f"{x.grad.norm():.5f} {t.grad.item():.5f}", out.grad_fn.name()[:13])
(h,) = autograd.grad(Sinc.apply(x).sum(), x, create_graph=True)
(h2,) = autograd.grad(h.sum(), x, create_graph=True)
(h3,) = autograd.grad(h2.sum(), x)
print("sinc", [f"{v:.5f}" for v in h2.tolist()], f"{h3.norm():.5f}")


class ResNetCell(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w, self.u = nn.Linear(n, n, bias=False), nn.Linear(n, n)
        self.norm = nn.LayerNorm(n)

    def forward(self, z, x):
        return self.norm(torch.tanh(self.w(z) + self.u(x)))


def anderson(f, x0, m=4, lam=1e-4, max_iter=40, tol=1e-6, beta=1.0):
    """Anderson acceleration of a fixed-point iteration."""
    bsz, n = x0.shape
    xs = torch.zeros(bsz, m, n, dtype=x0.dtype)
    fs = torch.zeros(bsz, m, n, dtype=x0.dtype)
    xs[:, 0], fs[:, 0] = x0, f(x0)
    xs[:, 1], fs[:, 1] = fs[:, 0], f(fs[:, 0])
    h = torch.zeros(bsz, m + 1, m + 1, dtype=x0.dtype)
    h[:, 0, 1:] = h[:, 1:, 0] = 1
    y = torch.zeros(bsz, m + 1, 1, dtype=x0.dtype)
    y[:, 0] = 1
    for k in range(2, max_iter):
        n_now = min(k, m)
        g = fs[:, :n_now] - xs[:, :n_now]
        h[:, 1 : n_now + 1, 1 : n_now + 1] = (
            torch.bmm(g, g.transpose(1, 2)) + lam * torch.eye(n_now, dtype=x0.dtype)[None]
        )
        alpha = torch.linalg.solve(h[:, : n_now + 1, : n_now + 1], y[:, : n_now + 1])[
            :, 1 : n_now + 1, 0
        ]
        xs[:, k % m] = (
            beta * (alpha[:, None] @ fs[:, :n_now])[:, 0]
            + (1 - beta) * (alpha[:, None] @ xs[:, :n_now])[:, 0]
        )
        fs[:, k % m] = f(xs[:, k % m])
        residual = (fs[:, k % m] - xs[:, k % m]).norm().item() / (1e-5 + fs[:, k % m].norm().item())
        if residual < tol:
            break
    return xs[:, k % m], k


class DEQ(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f, self.iterations = f, []

    def forward(self, x):
        with torch.no_grad():
            z, k = anderson(lambda z: self.f(z, x), torch.zeros_like(x))
            self.iterations.append(k)
        z = self.f(z, x)
        z0 = z.clone().detach().requires_grad_()
        f0 = self.f(z0, x)

        def backward_hook(grad):
            g, _ = anderson(lambda y: autograd.grad(f0, z0, y, retain_graph=True)[0] + grad, grad)
            return g

        if z.requires_grad:
            z.register_hook(backward_hook)
        return z


cell = ResNetCell(6).double()
with torch.no_grad():
    for p in cell.parameters():
        p.copy_(torch.from_numpy(rng.randn(*p.shape) * 0.2 + (1 if p is cell.norm.weight else 0)))
    cell.w.weight *= 0.3
deq, head = DEQ(cell), nn.Linear(6, 1).double()
nn.init.constant_(head.weight, 0.3)
nn.init.zeros_(head.bias)
inputs = torch.from_numpy(rng.randn(7, 6))
wanted = inputs.prod(1, keepdim=True).tanh()
optimizer = torch.optim.Adam([*deq.parameters(), *head.parameters()], lr=1e-2)
for step in range(4):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(head(deq(inputs)), wanted)
    loss.backward()
    print(f"deq {step} {loss.item():.5f}", [f"{p.grad.norm():.4f}" for p in cell.parameters()])
    optimizer.step()
z = torch.zeros_like(inputs)
for _ in range(60):
    z = cell(z, inputs)
explicit = autograd.grad(nn.functional.mse_loss(head(z), wanted), cell.w.weight)[0]
optimizer.zero_grad()
nn.functional.mse_loss(head(deq(inputs)), wanted).backward()
print("explicit", torch.allclose(explicit, cell.w.weight.grad, rtol=1e-3, atol=1e-6))

# The penalty of a ridge regression chosen by the derivative of its solution.
a, b = torch.from_numpy(rng.randn(12, 4)), torch.from_numpy(rng.randn(12))
va, vb = torch.from_numpy(rng.randn(8, 4)), torch.from_numpy(rng.randn(8))
log_penalty = torch.zeros((), dtype=torch.double, requires_grad=True)
for step in range(4):
    gram = a.T @ a + log_penalty.exp() * torch.eye(4, dtype=a.dtype)
    w = torch.cholesky_solve((a.T @ b)[:, None], torch.linalg.cholesky(gram)).squeeze(-1)
    validation = (va @ w - vb).pow(2).mean()
    (d,) = autograd.grad(validation, [log_penalty])
    direct = -torch.linalg.solve(gram, log_penalty.exp() * w).dot(2 * va.T @ (va @ w - vb) / 8)
    log_penalty.data.sub_(d, alpha=5.0)
    print(f"ridge {step} {validation.item():.5f} {d.item():.6f} {torch.isclose(d, direct).item()}")

critic = nn.Sequential(nn.Linear(2, 8), nn.SiLU(), nn.Linear(8, 1))
for p in critic.parameters():
    p.data = torch.from_numpy(rng.randn(*p.shape).astype(np.float32)) * 0.5
real = torch.from_numpy(rng.randn(6, 2).astype(np.float32))
fake = real.flip(0) * 2
mixed = torch.lerp(real, fake, torch.linspace(0, 1, 6)[:, None]).requires_grad_(True)
slope = autograd.grad(
    critic(mixed), mixed, torch.ones(6, 1), create_graph=True, retain_graph=True, only_inputs=True
)[0]
penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean() * 10
(critic(fake).mean() - critic(real).mean() + penalty).backward()
print(f"penalty {penalty:.5f}", [f"{p.grad.norm():.4f}" for p in critic.parameters()])
