"""Differential equations of `torchdiffeq`, flows of `normflows` and `nflows`, spikes of
`snntorch`.
"""

import normflows
import snntorch
import torch
from nflows import distributions, flows, transforms
from shown import filled, show, wave
from torch import nn
from torchdiffeq import odeint, odeint_adjoint


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2, bias=False)

    def forward(self, time, state):
        return torch.tanh(self.layer(state**3))


field = filled(Field(), 0.5)
times, state = torch.linspace(0, 2, 5), torch.tensor([[2.0, 0.0]])
for method in ("rk4", "euler", "midpoint", "dopri5"):
    path = odeint(field, state, times, method=method)
    show(method, path)
    if method != "dopri5":
        field.zero_grad()
        path.square().mean().backward()
        show("gradient", field.layer.weight.grad)
field.zero_grad()
odeint_adjoint(field, state, times, method="dopri5").square().mean().backward()
show("adjoint", field.layer.weight.grad)

layers = []
for _ in range(2):
    network = normflows.nets.MLP([1, 8, 2], init_zeros=False)
    layers += [
        normflows.flows.AffineCouplingBlock(network), normflows.flows.Permute(2, mode="swap")
    ]  # fmt: skip
flow = filled(normflows.NormalizingFlow(normflows.distributions.base.DiagGaussian(2), layers), 0.3)
loss = flow.forward_kld(wave(16, 2))
loss.backward()
show("coupling", loss, next(flow.parameters()).grad)
transform = transforms.CompositeTransform(
    [transforms.ReversePermutation(2), transforms.MaskedAffineAutoregressiveTransform(2, 8)]
)
masked = filled(flows.Flow(transform, distributions.StandardNormal([2])), 0.3)
loss = -masked.log_prob(wave(16, 2)).mean()
loss.backward()
show("autoregressive", loss, sum(each.grad.norm() for each in masked.parameters()))

first, second = filled(nn.Linear(4, 6), 0.9), filled(nn.Linear(6, 2), 0.9)
leaky, synaptic = snntorch.Leaky(beta=0.9), snntorch.Synaptic(alpha=0.8, beta=0.7)
membrane, (current, potential), total = leaky.init_leaky(), synaptic.init_synaptic(), 0
for time in range(6):
    spikes, membrane = leaky(first(wave(3, 4, start=time) + 1), membrane)
    _, current, potential = synaptic(second(spikes), current, potential)
    total = total + potential
total.square().mean().backward()
show("spikes", total, first.weight.grad, second.weight.grad)
