"""Loops as they are written: rates found, gradients gathered, averages, GAN, VAE, graphs, seq2seq."""

import collections
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def fill(m, s=0.4):
    with torch.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(torch.sin(torch.arange(p.numel()).float() * 1.3 + i).reshape(p.shape) * s)
    return m


X = torch.cos(torch.arange(240.0)).reshape(40, 6)
Y = (X[:, 0] * X[:, 1] > 0).long()
R = X.sum(1, keepdim=True)
# LR finder
m = fill(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)))
state = copy.deepcopy(m.state_dict())
opt = torch.optim.SGD(m.parameters(), lr=1e-3)
lam = lambda s: math.exp(s * math.log(1e3) / 10)
sch = torch.optim.lr_scheduler.LambdaLR(opt, lam)
lrs, losses, avg = [], [], 0.0
for i in range(10):
    opt.zero_grad()
    loss = F.cross_entropy(m(X), Y)
    loss.backward()
    opt.step()
    avg = 0.9 * avg + 0.1 * loss.item()
    losses.append(avg / (1 - 0.9 ** (i + 1)))
    lrs.append(sch.get_last_lr()[0])
    sch.step()
print([f"{a:.4g}:{b:.4f}" for a, b in zip(lrs, losses)])
m.load_state_dict(state)
# accumulation + clipping + EMA
ema = copy.deepcopy(m)
[p.requires_grad_(False) for p in ema.parameters()]
opt = torch.optim.AdamW(m.parameters(), lr=1e-2, weight_decay=0.01)
loader = DataLoader(TensorDataset(X, Y), batch_size=5)
for epoch in range(2):
    run = 0.0
    correct = 0
    for step, (xb, yb) in enumerate(loader):
        out = m(xb)
        loss = F.cross_entropy(out, yb) / 2
        loss.backward()
        run += loss.item() * 2
        correct += (out.argmax(1) == yb).sum().item()
        if (step + 1) % 2 == 0:
            norm = nn.utils.clip_grad_norm_(m.parameters(), 0.5)
            opt.step()
            opt.zero_grad()
            with torch.no_grad():
                for e, p in zip(ema.parameters(), m.parameters()):
                    e.mul_(0.9).add_(p, alpha=0.1)
    print(
        f"epoch {epoch}: loss {run / len(loader):.4f} acc {100.0 * correct / len(loader.dataset):.1f}% norm {norm:.4f}"
    )
m.eval()
with torch.no_grad():
    logits = torch.cat([ema(xb) for xb, _ in loader])
    print(logits.softmax(1)[:2], logits.argmax(1)[:10], F.cross_entropy(logits, Y))
# param groups without decay, freeze, discriminative lr
m.train()
decay = [p for n, p in m.named_parameters() if p.ndim > 1]
no = [p for n, p in m.named_parameters() if p.ndim == 1]
opt = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": no, "weight_decay": 0.0}], lr=1e-2
)
m[0].requires_grad_(False)
F.cross_entropy(m(X), Y).backward()
opt.step()
print(m[0].weight.grad, m[2].bias.grad, sum(p.numel() for p in m.parameters() if p.requires_grad))
# siamese / triplet / contrastive
enc = fill(nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)))
opt = torch.optim.Adam(enc.parameters(), lr=0.02)
for i in range(4):
    a, b = enc(X[:20]), enc(X[20:])
    same = (Y[:20] == Y[20:]).float()
    d = F.pairwise_distance(a, b)
    loss = (same * d.pow(2) + (1 - same) * torch.clamp(1.0 - d, min=0.0).pow(2)).mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    print(f"{loss.item():.5f}")
z = F.normalize(enc(X[:8]))
sim = z @ z.T / 0.5
sim.fill_diagonal_(-1e9) if False else None
lab = torch.arange(8).roll(4)
print(F.cross_entropy(sim.masked_fill(torch.eye(8, dtype=torch.bool), float("-inf")), lab))


# VAE with fixed noise
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Linear(6, 8)
        self.mu = nn.Linear(8, 2)
        self.lv = nn.Linear(8, 2)
        self.d = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 6), nn.Sigmoid())

    def forward(self, x, eps):
        h = F.relu(self.e(x))
        mu, lv = self.mu(h), self.lv(h)
        return self.d(mu + eps * torch.exp(0.5 * lv)), mu, lv


v = fill(VAE())
opt = torch.optim.RMSprop(v.parameters(), lr=1e-2)
eps = torch.sin(torch.arange(80.0)).reshape(40, 2)
T = (X + 1) / 2
for i in range(4):
    rec, mu, lv = v(T, eps)
    bce = F.binary_cross_entropy(rec, T, reduction="sum")
    kld = -0.5 * torch.sum(1 + lv - mu.pow(2) - lv.exp())
    opt.zero_grad()
    (bce + kld).backward()
    opt.step()
    print(f"{(bce + kld).item() / len(X):.4f} {kld.item():.4f}")
# GAN
G, Dn = (
    fill(nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 6), nn.Tanh())),
    fill(nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))),
)
og, od = (
    torch.optim.Adam(G.parameters(), 2e-3, betas=(0.5, 0.999)),
    torch.optim.Adam(Dn.parameters(), 2e-3, betas=(0.5, 0.999)),
)
crit = nn.BCEWithLogitsLoss()
real, fake = torch.ones(40, 1), torch.zeros(40, 1)
for i in range(3):
    od.zero_grad()
    gz = G(eps)
    ld = crit(Dn(X), real) + crit(Dn(gz.detach()), fake)
    ld.backward()
    od.step()
    og.zero_grad()
    lg = crit(Dn(gz), real)
    lg.backward()
    og.step()
    print(f"{ld.item():.5f} {lg.item():.5f}")
al = torch.full((40, 1), 0.3)
it = (al * X + (1 - al) * G(eps).detach()).requires_grad_()
gr = torch.autograd.grad(Dn(it).sum(), it, create_graph=True)[0]
gp = ((gr.norm(2, dim=1) - 1) ** 2).mean()
gp.backward()
print(gp, Dn[0].weight.grad.norm())
# GNN
edge = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
A = torch.zeros(4, 4)
A[edge[0], edge[1]] = 1
A = A + A.t() + torch.eye(4)
dinv = A.sum(1).pow(-0.5)
An = dinv[:, None] * A * dinv
W1, W2 = fill(nn.Linear(6, 5)), fill(nn.Linear(5, 2))
out = An @ W2(F.relu(An @ W1(X[:4])))
print(F.log_softmax(out, 1))
agg = torch.zeros(4, 6).index_add_(0, edge[1], X[edge[0]])
print(agg[:2, :3], torch.zeros(4).scatter_add(0, edge[1], torch.ones(5)))
sc = torch.zeros(4, 6).scatter_reduce(
    0, edge[1][:, None].expand(-1, 6), X[edge[0]], "mean", include_self=False
)
print(sc[0])
att = (X[edge[0]] * X[edge[1]]).sum(1)
ex = (att - att.max()).exp()
print(ex / torch.zeros(4).index_add(0, edge[1], ex)[edge[1]])


# seq2seq with attention
class Enc(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(7, 4)
        self.gru = nn.GRU(4, 5, batch_first=True)

    def forward(self, s):
        return self.gru(self.emb(s))


class Dec(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(7, 4)
        self.Wa, self.Ua, self.Va = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 1)
        self.gru = nn.GRU(9, 5, batch_first=True)
        self.out = nn.Linear(5, 7)

    def forward(self, enc, h, tgt, forced):
        tok, outs = torch.zeros(enc.size(0), 1, dtype=torch.long), []
        for i in range(tgt.size(1)):
            q = h.permute(1, 0, 2)
            sc = self.Va(torch.tanh(self.Wa(q) + self.Ua(enc))).squeeze(2).unsqueeze(1)
            c = torch.bmm(F.softmax(sc, -1), enc)
            o, h = self.gru(torch.cat((self.emb(tok), c), 2), h)
            o = self.out(o)
            outs.append(o)
            tok = tgt[:, i : i + 1] if forced else o.topk(1)[1].squeeze(-1).detach()
        return torch.cat(outs, 1)


e, d = fill(Enc()), fill(Dec())
src = torch.arange(10).reshape(2, 5) % 7
tgt = src.flip(1)[:, :3]
opt = torch.optim.NAdam([*e.parameters(), *d.parameters()], lr=0.02)
for i in range(3):
    eo, h = e(src)
    o = d(eo, h, tgt, i < 2)
    loss = F.nll_loss(F.log_softmax(o, -1).view(-1, 7), tgt.reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(f"{loss.item():.5f}")
hist = collections.defaultdict(list)
best, wait = float("inf"), 0
for ep, val in enumerate([1.0, 0.8, 0.9, 0.95]):
    hist["val"].append(torch.tensor(val))
    wait = 0 if val < best else wait + 1
    best = min(best, val)
    if wait >= 2:
        print("stop", ep)
        break
print(torch.stack(hist["val"]).mean(), best)
