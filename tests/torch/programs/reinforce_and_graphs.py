"""Policy gradients, distributions, graph layers by scatter, and Q-learning with a target."""

from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    MultivariateNormal,
    Normal,
    kl_divergence,
)

rng = np.random.default_rng(4)


def T(*s):
    return torch.tensor(rng.normal(size=s), dtype=torch.float32)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine = nn.Linear(4, 8)
        self.drop = nn.Dropout(p=0.0)
        self.pi, self.v = (nn.Linear(8, 2), nn.Linear(8, 1))
        self.saved, self.rewards = ([], [])

    def forward(self, x):
        x = F.relu(self.drop(self.affine(x)))
        return (F.softmax(self.pi(x), dim=-1), self.v(x))


pol = Policy()
for p in pol.parameters():
    p.data = T(*p.shape) * 0.4
opt = torch.optim.Adam(pol.parameters(), lr=0.03)
eps = np.finfo(np.float32).eps.item()
Saved = namedtuple("Saved", ["log_prob", "value"])
for ep in range(3):
    state = rng.normal(size=4)
    for t in range(6):
        probs, v = pol(torch.from_numpy(state).float())
        m = Categorical(probs)
        a = torch.tensor(int(rng.integers(2)))
        pol.saved.append(Saved(m.log_prob(a), v))
        pol.rewards.append(float(a) + t * 0.1)
        state = rng.normal(size=4) + a.item()
    R, returns = (0, deque())
    for r in pol.rewards[::-1]:
        R = r + 0.99 * R
        returns.appendleft(R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    pl, vl = ([], [])
    for (lp, v), R in zip(pol.saved, returns):
        adv = R - v.item()
        pl.append(-lp * adv)
        vl.append(F.smooth_l1_loss(v, torch.tensor([R])))
    loss = torch.stack(pl).sum() + torch.stack(vl).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(ep, loss, returns)
    del pol.rewards[:]
    del pol.saved[:]
c = Categorical(logits=torch.tensor([1.0, 2.0, 3.0]))
print(c, c.probs, c.entropy(), c.log_prob(torch.arange(3)))
n = Normal(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0]))
print(
    n,
    n.log_prob(torch.tensor(0.5)),
    n.entropy(),
    kl_divergence(n, Normal(0.0, 1.0)),
    n.cdf(torch.tensor(0.0)),
    n.icdf(torch.tensor(0.3)),
)
print(
    Beta(2.0, 3.0).mean,
    Bernoulli(torch.tensor(0.3)).variance,
    MultivariateNormal(torch.zeros(2), torch.eye(2) * 2).log_prob(torch.ones(2)),
    n.sample((3,)).shape,
    n.rsample().requires_grad,
)
src = torch.tensor([0, 1, 2, 3, 0, 2])
dst = torch.tensor([1, 2, 3, 0, 2, 1])
x = T(4, 3)
y = torch.tensor([0, 1, 0, 1])
edge = torch.stack([src, dst])
print(edge, edge.t().contiguous().shape)


class GCN(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.lin = nn.Linear(i, o, bias=False)
        self.bias = nn.Parameter(torch.zeros(o))

    def forward(self, x, e):
        loops = torch.arange(x.size(0)).repeat(2, 1)
        e = torch.cat([e, loops], 1)
        row, col = e
        deg = torch.zeros(x.size(0)).scatter_add_(0, col, torch.ones(col.numel()))
        dis = deg.pow(-0.5)
        norm = dis[row] * dis[col]
        h = self.lin(x)
        out = torch.zeros_like(h).index_add(0, col, norm.unsqueeze(-1) * h[row])
        return out + self.bias


class GAT(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.w = nn.Parameter(T(i, o))
        self.a = nn.Parameter(T(2 * o))

    def forward(self, x, e):
        h = x @ self.w
        s, d = e
        z = F.leaky_relu(torch.cat([h[s], h[d]], -1) @ self.a, 0.2)
        mx = torch.full((x.size(0),), -float("inf")).scatter_reduce(0, d, z, reduce="amax")
        w = (z - mx[d]).exp()
        den = torch.zeros(x.size(0)).index_add_(0, d, w)
        al = w / den[d]
        return torch.zeros_like(h).scatter_add_(
            0, d[:, None].expand(-1, h.size(1)), al[:, None] * h[s]
        )


net = nn.ModuleList([GCN(3, 5), GAT(5, 2)])
for n_, p in net.named_parameters():
    p.data = T(*p.shape) * 0.5
opt = torch.optim.Adam(net.parameters(), lr=0.05)
for i in range(5):
    out = net[1](F.elu(net[0](x, edge)), edge)
    loss = F.cross_entropy(out, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(i, f"{loss:.5f}", (out.argmax(1) == y).float().mean())
print(net)
adj = torch.zeros(4, 4)
adj[src, dst] = 1
print(adj, adj.nonzero(), adj.sum(1), torch.matrix_power(adj, 3), (adj + adj.T > 0).int())
q, tq = (nn.Linear(4, 3), nn.Linear(4, 3))
q.weight.data = T(3, 4)
q.bias.data.zero_()
tq.load_state_dict(q.state_dict())
mem = [(T(4), int(rng.integers(3)), float(rng.normal()), T(4) if i % 3 else None) for i in range(8)]
o = torch.optim.SGD(q.parameters(), 0.1)
for i in range(3):
    s, a, r, ns = zip(*mem)
    mask = torch.tensor(tuple(map(lambda v: v is not None, ns)), dtype=torch.bool)
    nns = torch.cat([v[None] for v in ns if v is not None])
    qs = q(torch.stack(s)).gather(1, torch.tensor(a).unsqueeze(1))
    nv = torch.zeros(8)
    with torch.no_grad():
        nv[mask] = tq(nns).max(1).values
    loss = nn.SmoothL1Loss()(qs, (nv * 0.9 + torch.tensor(r)).unsqueeze(1))
    o.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(q.parameters(), 1)
    o.step()
    sd = tq.state_dict()
    for k in sd:
        sd[k] = q.state_dict()[k] * 0.5 + sd[k] * 0.5
    tq.load_state_dict(sd)
    print(loss, tq.weight[0])
