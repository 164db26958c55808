"""Graph convolutions and attention, a CRF, a recurrent translator, k-means, an ODE and a PINN."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(16)


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


N = 8
ei = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 0, 2], [1, 2, 3, 4, 5, 6, 7, 0, 4, 6]])
ei = torch.cat([ei, ei.flip(0)], 1)
X = rnd(N, 5)
Y = torch.tensor([0, 1, 0, 1, 0, 1, 0, 1])


class GCN(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.lin = nn.Linear(i, o, bias=False)
        self.bias = nn.Parameter(torch.empty(o))
        self.reset_parameters()

    def reset_parameters(self):
        self.lin.reset_parameters()
        self.bias.data.zero_()

    def forward(self, x, ei):
        loop = torch.arange(x.size(0), device=x.device).expand(2, -1)
        ei = torch.cat([ei, loop], 1)
        row, col = ei
        deg = torch.zeros(x.size(0)).scatter_add_(0, col, torch.ones(col.size(0)))
        d = deg.pow(-0.5)
        d[d == float("inf")] = 0
        norm = d[row] * d[col]
        x = self.lin(x)
        out = torch.zeros_like(x)
        return out.index_add_(0, col, norm.view(-1, 1) * x[row]) + self.bias


class GAT(nn.Module):
    def __init__(self, i, o, h):
        super().__init__()
        self.h, self.o = (h, o)
        self.W = nn.Parameter(torch.empty(i, h * o))
        self.a = nn.Parameter(torch.empty(1, h, 2 * o))
        nn.init.xavier_uniform_(self.W, gain=1.414)
        nn.init.xavier_uniform_(self.a)

    def forward(self, x, ei):
        z = (x @ self.W).view(-1, self.h, self.o)
        e = F.leaky_relu((torch.cat([z[ei[0]], z[ei[1]]], -1) * self.a).sum(-1), 0.2)
        mx = torch.full((x.size(0), self.h), float("-inf")).scatter_reduce(
            0, ei[1].unsqueeze(-1).expand_as(e), e, "amax"
        )
        ex = (e - mx[ei[1]]).exp()
        den = torch.zeros(x.size(0), self.h).index_add(0, ei[1], ex)
        al = ex / den[ei[1]]
        return torch.zeros_like(z).index_add(0, ei[1], al.unsqueeze(-1) * z[ei[0]]).flatten(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2, self.c3 = (GCN(5, 8), GAT(8, 3, 2), GCN(6, 2))

    def forward(self, x, ei):
        return F.log_softmax(self.c3(F.elu(self.c2(F.relu(self.c1(x, ei)), ei)), ei), dim=1)


m = fixed(Net())
o = torch.optim.Adam(m.parameters(), 0.02, weight_decay=0.0005)
tm = torch.zeros(N, dtype=torch.bool)
tm[:5] = True
for ep in range(5):
    o.zero_grad()
    out = m(X, ei)
    l = F.nll_loss(out[tm], Y[tm])
    l.backward()
    o.step()
    print(f"gnn {l:.5f} {(out.argmax(1)[~tm] == Y[~tm]).float().mean():.3f}")
A = torch.sparse_coo_tensor(ei, torch.ones(ei.size(1)), (N, N))
print(
    A.shape,
    A.is_sparse,
    A._nnz(),
    torch.sparse.mm(A, X).sum(),
    A.to_dense().sum(1),
    A.coalesce().indices().shape,
    (A @ X).mean(),
)
batch = torch.tensor([0, 0, 0, 1, 1, 1, 1, 1])
print(
    torch.zeros(2, 5).index_add(0, batch, X) / torch.bincount(batch).unsqueeze(1),
    torch.zeros(2, 5).scatter_reduce(
        0, batch.view(-1, 1).expand(-1, 5), X, "amin", include_self=False
    ),
)


def log_sum_exp(v, d):
    mx = v.max(d, keepdim=True).values
    return (mx + (v - mx).exp().sum(d, keepdim=True).log()).squeeze(d)


class CRF(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
        self.trans = nn.Parameter(torch.zeros(k, k))
        self.start = nn.Parameter(torch.zeros(k))
        self.end = nn.Parameter(torch.zeros(k))

    def nll(self, e, t, mask):
        B, T, _ = e.shape
        a = self.start + e[:, 0]
        s = self.start[t[:, 0]] + e[torch.arange(B), 0, t[:, 0]]
        for i in range(1, T):
            na = log_sum_exp(a.unsqueeze(2) + self.trans + e[:, i].unsqueeze(1), 1)
            a = torch.where(mask[:, i].unsqueeze(1), na, a)
            s = s + (self.trans[t[:, i - 1], t[:, i]] + e[torch.arange(B), i, t[:, i]]) * mask[:, i]
        last = mask.long().sum(1) - 1
        s = s + self.end[t.gather(1, last.unsqueeze(1)).squeeze(1)]
        return (log_sum_exp(a + self.end, 1) - s).mean()

    def decode(self, e):
        sc, hist = (self.start + e[0], [])
        for i in range(1, len(e)):
            v, idx = (sc.unsqueeze(1) + self.trans).max(0)
            sc = v + e[i]
            hist.append(idx)
        best = [(sc + self.end).argmax().item()]
        for h in reversed(hist):
            best.append(h[best[-1]].item())
        return best[::-1]


crf = fixed(CRF(3))
E = rnd(2, 5, 3).requires_grad_()
tg = torch.tensor([[0, 1, 2, 1, 0], [2, 2, 1, 0, 0]])
mk = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
l = crf.nll(E, tg, mk)
l.backward()
print(l, crf.trans.grad, E.grad[1, 3:].abs().sum(), crf.decode(E[0].detach()))


class Enc(nn.Module):
    def __init__(self, v, h):
        super().__init__()
        self.e = nn.Embedding(v, h)
        self.g = nn.GRU(h, h, batch_first=True)

    def forward(self, x):
        return self.g(self.e(x))


class Attn(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.Wa, self.Ua, self.Va = (nn.Linear(h, h), nn.Linear(h, h), nn.Linear(h, 1))

    def forward(self, q, k):
        s = self.Va(torch.tanh(self.Wa(q) + self.Ua(k))).squeeze(2).unsqueeze(1)
        w = F.softmax(s, dim=-1)
        return (torch.bmm(w, k), w)


class Dec(nn.Module):
    def __init__(self, v, h):
        super().__init__()
        self.e = nn.Embedding(v, h)
        self.at = Attn(h)
        self.g = nn.GRU(2 * h, h, batch_first=True)
        self.o = nn.Linear(h, v)

    def forward(self, eo, eh, tgt=None, n=4):
        i = torch.empty(eo.size(0), 1, dtype=torch.long).fill_(0)
        h = eh
        outs, ats = ([], [])
        for t in range(n):
            ctx, w = self.at(h.permute(1, 0, 2), eo)
            out, h = self.g(torch.cat((self.e(i), ctx), 2), h)
            lo = self.o(out)
            outs.append(lo)
            ats.append(w)
            i = tgt[:, t].unsqueeze(1) if tgt is not None else lo.topk(1)[1].squeeze(-1).detach()
        return (F.log_softmax(torch.cat(outs, 1), -1), h, torch.cat(ats, 1))


enc, dec = (fixed(Enc(9, 6)), fixed(Dec(9, 6)))
eo_, do_ = (torch.optim.Adam(enc.parameters(), 0.01), torch.optim.Adam(dec.parameters(), 0.01))
src, tgt = (
    torch.from_numpy(rng.integers(1, 9, (4, 6))),
    torch.from_numpy(rng.integers(1, 9, (4, 4))),
)
for ep in range(4):
    eo_.zero_grad()
    do_.zero_grad()
    o_, h_ = enc(src)
    d_, _, a_ = dec(o_, h_, tgt)
    l = nn.NLLLoss()(d_.view(-1, 9), tgt.view(-1))
    l.backward()
    eo_.step()
    do_.step()
    print(f"s2s {l.item():.5f}")
with torch.no_grad():
    d_, _, a_ = dec(*enc(src))
    print(d_.topk(1)[1].squeeze(-1), a_.sum(-1))
C = X[:2].clone()
for _ in range(4):
    d = torch.cdist(X, C)
    a = d.argmin(1)
    C = torch.stack([X[a == k].mean(0) if (a == k).any() else C[k] for k in range(2)])
print(a, C, torch.cdist(X, X).topk(3, largest=False).indices)
f = lambda t, y: torch.stack([y[1], -torch.sin(y[0])])
y = torch.tensor([1.0, 0.0])
for i in range(10):
    k1 = f(0, y)
    k2 = f(0, y + 0.05 * k1)
    k3 = f(0, y + 0.05 * k2)
    k4 = f(0, y + 0.1 * k3)
    y = y + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
print(y)
x_ = torch.linspace(0, 1, 10).unsqueeze(1).requires_grad_()
net = fixed(nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)))
lb = torch.optim.LBFGS(net.parameters(), max_iter=5, line_search_fn="strong_wolfe")


def closure():
    lb.zero_grad()
    u = net(x_)
    (du,) = torch.autograd.grad(u, x_, torch.ones_like(u), create_graph=True)
    (ddu,) = torch.autograd.grad(du, x_, torch.ones_like(du), create_graph=True)
    l = (
        (ddu + math.pi**2 * torch.sin(math.pi * x_)).pow(2).mean()
        + u[0].pow(2).sum()
        + u[-1].pow(2).sum()
    )
    l.backward()
    return l


for i in range(3):
    print(f"pinn {lb.step(closure).item():.4f}")
