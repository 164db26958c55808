"""An ODE integrated by Runge-Kutta, and its parameters learned through the solver."""

import torch

truth = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])


def rk4(f, y, t, dt):
    k1 = f(t, y)
    k2 = f(t + dt / 2, y + dt * k1 / 2)
    k3 = f(t + dt / 2, y + dt * k2 / 2)
    k4 = f(t + dt, y + dt * k3)
    return y + dt * (k1 + 2 * k2 + 2 * k3 + k4) / 6


def odeint(f, y0, times):
    out, y = [y0], y0
    for a, b in zip(times[:-1], times[1:]):
        y = rk4(f, y, a, b - a)
        out.append(y)
    return torch.stack(out)


times = torch.linspace(0.0, 1.0, 6)
y0 = torch.tensor([[2.0, 0.0]])
with torch.no_grad():
    path = odeint(lambda t, y: y @ truth, y0, times)
print(path[-1].flatten().tolist())
A = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], requires_grad=True)
optimizer = torch.optim.Adam([A], lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    loss = (odeint(lambda t, y: y @ A, y0, times) - path).abs().mean()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.5f}")
print([round(v, 4) for v in A.detach().flatten().tolist()])
