"""DQN with a replay memory and a slow target, PPO with advantages, and distributions by their texts."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(11)


def rnd(*s):
    return torch.from_numpy(rng.standard_normal(s).astype(np.float32))


@torch.no_grad()
def fixed(model):
    for k, p in enumerate(model.parameters()):
        p.copy_(
            torch.sin(torch.arange(p.numel(), dtype=torch.float32) * 0.7 + k).view_as(p)
            * (0.5 / math.sqrt(max(1, p.shape[-1] if p.ndim else 1)))
        )
    return model


from collections import deque, namedtuple

from torch.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    Independent,
    MultivariateNormal,
    Normal,
    TanhTransform,
    TransformedDistribution,
    kl_divergence,
)

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class ReplayMemory:
    def __init__(self, n):
        self.memory = deque([], maxlen=n)

    def push(self, *a):
        self.memory.append(Transition(*a))

    def sample(self, n):
        return [self.memory[i] for i in rng.choice(len(self.memory), n, replace=False)]

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n, a):
        super().__init__()
        self.layer1 = nn.Linear(n, 16)
        self.layer2 = nn.Linear(16, 16)
        self.layer3 = nn.Linear(16, a)

    def forward(self, x):
        return self.layer3(F.relu(self.layer2(F.relu(self.layer1(x)))))


device = torch.device(
    "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
)
policy, target = (fixed(DQN(4, 2)).to(device), DQN(4, 2).to(device))
target.load_state_dict(policy.state_dict())
opt = torch.optim.AdamW(policy.parameters(), lr=0.001, amsgrad=True)
mem = ReplayMemory(100)
for i in range(60):
    s = torch.tensor(rng.standard_normal(4), dtype=torch.float32, device=device).unsqueeze(0)
    a = (
        policy(s).max(1).indices.view(1, 1)
        if i % 3
        else torch.tensor([[int(rng.integers(2))]], device=device, dtype=torch.long)
    )
    ns = (
        None
        if i % 7 == 0
        else torch.tensor(rng.standard_normal(4), dtype=torch.float32).unsqueeze(0)
    )
    mem.push(s, a, ns, torch.tensor([float(a.item())]))
for step in range(5):
    batch = Transition(*zip(*mem.sample(16)))
    mask = torch.tensor(
        tuple(map(lambda s: s is not None, batch.next_state)), device=device, dtype=torch.bool
    )
    nfs = torch.cat([s for s in batch.next_state if s is not None])
    sb, ab, rb = (torch.cat(batch.state), torch.cat(batch.action), torch.cat(batch.reward))
    q = policy(sb).gather(1, ab)
    nv = torch.zeros(16, device=device)
    with torch.no_grad():
        nv[mask] = target(nfs).max(1).values
    loss = nn.SmoothL1Loss()(q, (nv * 0.99 + rb).unsqueeze(1))
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy.parameters(), 100)
    opt.step()
    tsd, psd = (target.state_dict(), policy.state_dict())
    for k in psd:
        tsd[k] = psd[k] * 0.05 + tsd[k] * 0.95
    target.load_state_dict(tsd)
    print(step, f"{loss.item():.6f}", mask.sum().item(), f"{target.layer1.weight.sum():.5f}")
pi = fixed(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)))
vf = fixed(nn.Linear(4, 1))
o = torch.optim.Adam([*pi.parameters(), *vf.parameters()], 0.01)
obs, act, rew, done = (
    rnd(20, 4),
    torch.from_numpy(rng.integers(0, 3, 20)),
    rnd(20),
    torch.from_numpy(rng.random(20) < 0.1),
)
with torch.no_grad():
    old = Categorical(logits=pi(obs)).log_prob(act)
    v = vf(obs).squeeze(-1)
adv = torch.zeros_like(rew)
last = 0.0
for t in reversed(range(20)):
    nt = 1.0 - done[t].float()
    nv = v[t + 1] if t < 19 else 0.0
    delta = rew[t] + 0.99 * nv * nt - v[t]
    adv[t] = last = delta + 0.99 * 0.95 * nt * last
ret = adv + v
adv = (adv - adv.mean()) / (adv.std() + 1e-08)
print(adv[:5], ret.mean())
for ep in range(3):
    for idx in torch.arange(20).split(10):
        d = Categorical(logits=pi(obs[idx]))
        ratio = (d.log_prob(act[idx]) - old[idx]).exp()
        s1, s2 = (ratio * adv[idx], ratio.clamp(0.8, 1.2) * adv[idx])
        loss = (
            -torch.min(s1, s2).mean()
            + 0.5 * F.mse_loss(vf(obs[idx]).squeeze(-1), ret[idx])
            - 0.01 * d.entropy().mean()
        )
        o.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(pi.parameters(), 0.5)
        o.step()
    print(
        ep,
        f"{loss.item():.6f} {(ratio - 1 - ratio.log()).mean().item():.3e} {((ratio - 1).abs() > 0.2).float().mean():.2f}",
    )
mu, ls = (rnd(3, 2).requires_grad_(), torch.zeros(2, requires_grad=True))
d = Independent(Normal(mu, ls.exp()), 1)
a = rnd(3, 2)
lp = d.log_prob(a)
lp.sum().backward()
print(lp, d.entropy(), mu.grad, ls.grad, d, d.batch_shape, d.event_shape)
sq = TransformedDistribution(Normal(mu, 1.0), [TanhTransform(cache_size=1)])
print(
    sq.log_prob(torch.tensor([[0.1, -0.3], [0.9, 0.0], [0.2, 0.2]])),
    kl_divergence(Normal(mu, 1.0), Normal(0.0, 2.0)).sum(),
    kl_divergence(Categorical(logits=mu), Categorical(probs=torch.tensor([0.3, 0.7]))),
)
b = Beta(torch.tensor([2.0, 3.0]), torch.tensor([1.0, 4.0]))
print(b.mean, b.variance, b.log_prob(torch.tensor([0.3, 0.6])), b.entropy(), b)
m = MultivariateNormal(torch.zeros(2), torch.tensor([[2.0, 0.5], [0.5, 1.0]]))
print(m.log_prob(torch.ones(2)), m.entropy(), m.covariance_matrix, m.rsample((5,)).shape, m)
print(
    Bernoulli(probs=torch.tensor([0.2, 0.7])),
    Bernoulli(logits=torch.tensor([0.0, 1.0])).log_prob(torch.ones(2)),
    Categorical(torch.tensor([1.0, 3.0])),
    Categorical(torch.tensor([1.0, 3.0])).probs,
    Normal(0.0, 1.0).cdf(torch.tensor(0.5)),
    Normal(0.0, 1.0).icdf(torch.tensor(0.7)),
    Normal(torch.zeros(2), 1).sample((3,)).shape,
    Categorical(logits=torch.zeros(2, 4)).sample([5]).shape,
)
try:
    Normal(0.0, -1.0)
except ValueError:
    print("ValueError")
