"""Skip-grams, a character GRU, a masked language model with two groups, beam search, rotary positions."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(22)


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


text = "to be or not to be that is the question whether tis nobler in the mind to suffer"
words = text.split()
vocab = {w: i for i, w in enumerate(sorted(set(words)))}
ids = torch.tensor([vocab[w] for w in words])
V = len(vocab)
print(V, ids)
pairs = [
    (ids[i], ids[j])
    for i in range(len(ids))
    for j in range(max(0, i - 2), min(len(ids), i + 3))
    if i != j
]
c, t = map(torch.stack, zip(*pairs))
freq = torch.bincount(ids, minlength=V).float().pow(0.75)
freq /= freq.sum()
print(c.shape, freq[:4])


class SG(nn.Module):
    def __init__(self, V, d):
        super().__init__()
        self.i, self.o = (nn.Embedding(V, d), nn.Embedding(V, d))
        nn.init.uniform_(self.i.weight, -0.5 / d, 0.5 / d)
        nn.init.zeros_(self.o.weight)

    def forward(self, c, t, n):
        e = self.i(c)
        pos = (e * self.o(t)).sum(1)
        neg = torch.bmm(self.o(n), e.unsqueeze(2)).squeeze(2)
        return -(F.logsigmoid(pos) + F.logsigmoid(-neg).sum(1)).mean()


sg = fixed(SG(V, 6))
o = torch.optim.SparseAdam([]) if False else torch.optim.Adam(sg.parameters(), 0.05)
for ep in range(4):
    n = torch.from_numpy(
        rng.choice(V, (len(c), 3), p=freq.double().div(freq.double().sum()).numpy())
    )
    o.zero_grad()
    l = sg(c, t, n)
    l.backward()
    o.step()
    print(f"{l.item():.5f}")
w = F.normalize(sg.i.weight.detach())
sim = w @ w.T
sim.fill_diagonal_(-1)
print(sim.max(1).values[:4])
chars = sorted(set(text))
stoi = {ch: i for i, ch in enumerate(chars)}
data = torch.tensor([stoi[ch] for ch in text])
C = len(chars)


class CharRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(C, 6)
        self.r = nn.GRU(6, 10, 2, batch_first=True)
        self.f = nn.Linear(10, C)

    def forward(self, x, h=None):
        y, h = self.r(self.e(x), h)
        return (self.f(y), h)


m = fixed(CharRNN())
o = torch.optim.Adam(m.parameters(), 0.01)
h = None
for s in range(0, 60, 15):
    x, y = (data[s : s + 15][None], data[s + 1 : s + 16][None])
    h = h.detach() if h is not None else None
    out, h = m(x, h)
    l = F.cross_entropy(out.view(-1, C), y.view(-1))
    o.zero_grad()
    l.backward()
    nn.utils.clip_grad_norm_(m.parameters(), 0.25)
    o.step()
    print(f"{l:.5f} ppl {l.exp():.3f}")
with torch.no_grad():
    x = torch.tensor([[0]])
    h = None
    s = []
    for _ in range(8):
        lo, h = m(x, h)
        p = (lo[0, -1] / 0.7).softmax(-1)
        x = p.argmax().view(1, 1)
        s.append(x.item())
    print(s)
    p, i = torch.sort(p, descending=True)
    cum = p.cumsum(0)
    mask = cum - p > 0.5
    p[mask] = 0.0
    p.div_(p.sum())
    print(p[:4], i[:4])


class Bert(nn.Module):
    def __init__(self, V, d=8, L=12):
        super().__init__()
        self.tok, self.pos, self.seg = (
            nn.Embedding(V + 3, d, padding_idx=0),
            nn.Embedding(L, d),
            nn.Embedding(2, d),
        )
        self.norm = nn.LayerNorm(d, eps=1e-12)
        self.register_buffer("position_ids", torch.arange(L).expand((1, -1)), persistent=False)
        self.enc = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d, 2, 16, 0.0, "gelu", batch_first=True),
            2,
            enable_nested_tensor=False,
        )
        self.cls = nn.Linear(d, 2)
        self.mlm = nn.Linear(d, V + 3)
        self.mlm.weight = self.tok.weight

    def forward(self, ids, seg, am):
        e = self.norm(self.tok(ids) + self.pos(self.position_ids[:, : ids.size(1)]) + self.seg(seg))
        hs = self.enc(e, src_key_padding_mask=am == 0)
        return (self.cls(torch.tanh(hs[:, 0])), self.mlm(hs))


b = fixed(Bert(V))
B, L = (4, 10)
ids_ = torch.from_numpy(rng.integers(3, V + 3, (B, L)))
am = torch.ones(B, L, dtype=torch.long)
am[1, 7:] = 0
am[2, 5:] = 0
ids_ = ids_.masked_fill(am == 0, 0)
seg = (torch.arange(L) >= 5).long().expand(B, L)
lab = ids_.clone()
mk_ = torch.from_numpy(rng.random((B, L)) < 0.3) & am.bool()
lab[~mk_] = -100
inp = ids_.masked_fill(mk_, 2)
nsp = torch.tensor([0, 1, 1, 0])
nd = ["bias", "norm"]
groups = [
    {
        "params": [p for n, p in b.named_parameters() if not any(k in n for k in nd)],
        "weight_decay": 0.01,
    },
    {
        "params": [p for n, p in b.named_parameters() if any(k in n for k in nd)],
        "weight_decay": 0.0,
    },
]
o = torch.optim.AdamW(groups, lr=0.001, eps=1e-08)
sch = torch.optim.lr_scheduler.LambdaLR(o, lambda s: min((s + 1) / 2, max(0.0, (6 - s) / 4)))
for i in range(5):
    c_, ml = b(inp, seg, am)
    l = F.cross_entropy(c_, nsp) + F.cross_entropy(ml.view(-1, V + 3), lab.view(-1))
    l.backward()
    gn = nn.utils.clip_grad_norm_(b.parameters(), 1.0, norm_type=2.0, error_if_nonfinite=True)
    o.step()
    sch.step()
    o.zero_grad()
    print(f"{l:.5f} {gn:.4f} {sch.get_last_lr()}")


@torch.inference_mode()
def beam(step, start, k, n):
    seqs, sc = (torch.tensor([[start]]), torch.zeros(1))
    for _ in range(n):
        lp = torch.log_softmax(step(seqs), -1)
        tot = (sc[:, None] + lp).view(-1)
        sc, ix = tot.topk(min(k, tot.numel()))
        seqs = torch.cat(
            [
                seqs[torch.div(ix, lp.size(1), rounding_mode="floor")],
                (ix % lp.size(1)).unsqueeze(1),
            ],
            1,
        )
    return (seqs, sc)


print(beam(lambda s: m(s)[0][:, -1], 1, 3, 5))
am4 = am[:, None, None, :].to(torch.float32)
ext = (1.0 - am4) * torch.finfo(torch.float32).min
print(ext[1, 0, 0, -4:], ext.shape)
tri = torch.tril(torch.ones(4, 4)).view(1, 1, 4, 4)
att = rnd(1, 1, 4, 4).masked_fill(tri[:, :, :4, :4] == 0, float("-inf")).softmax(-1)
print(att[0, 0])
lens = am.sum(1)
print(
    lens,
    torch.arange(L)[None] < lens[:, None],
    nn.utils.rnn.pad_sequence(
        [torch.ones(i) for i in (1, 3)],
        padding_value=-1.0,
        padding_side="left" if False else "right",
    ),
)
bleu = torch.tensor([[1, 2, 3]]).unfold(1, 2, 1)
print(bleu)
al = 1.0 / 10 ** (torch.arange(0, 4).float() / 4)
rot = torch.outer(torch.arange(3.0), al)
q = rnd(1, 3, 8)
q1, q2 = q.chunk(2, -1)
print(torch.cat([q1 * rot.cos() - q2 * rot.sin(), q2 * rot.cos() + q1 * rot.sin()], -1).sum())
