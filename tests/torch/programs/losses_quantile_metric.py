"""Losses by hand beside those of the library: focal, dice, quantile, huber, triplet, contrastive, NT-Xent, label smoothing,
knowledge distillation, Tversky, Wing, Poisson, Gaussian NLL, ranking, cosine, multi-label, ordinal; reductions and weights.
"""

import itertools
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.modules.loss import _Loss, _WeightedLoss

logits = torch.linspace(-3, 3, 20).view(5, 4).sin().mul(2).requires_grad_()
target = torch.tensor([0, 3, 1, 2, 3])


def show(name, loss):
    (g,) = torch.autograd.grad(loss, logits, retain_graph=True)
    print(f"{name}: {loss.item():.5f}", g[0], g.abs().sum().item())


class FocalLoss(_WeightedLoss):
    def __init__(self, gamma=2.0, weight=None, reduction="mean"):
        super().__init__(weight=weight, reduction=reduction)
        self.gamma = gamma

    def forward(self, input, target):
        ce = F.cross_entropy(input, target, weight=self.weight, reduction="none")
        loss = (1 - torch.exp(-ce)) ** self.gamma * ce
        return (
            loss.mean()
            if self.reduction == "mean"
            else loss.sum()
            if self.reduction == "sum"
            else loss
        )


class LabelSmoothing(nn.Module):
    def __init__(self, eps=0.1):
        super().__init__()
        self.eps = eps

    def forward(self, x, t):
        lp = x.log_softmax(dim=-1)
        nll = -lp.gather(-1, t.unsqueeze(1)).squeeze(1)
        return ((1 - self.eps) * nll - self.eps * lp.mean(-1)).mean()


w = torch.tensor([0.5, 1.0, 2.0, 0.1])
show("focal", FocalLoss(weight=w)(logits, target))
show("smooth", LabelSmoothing()(logits, target))
show("smooth2", nn.CrossEntropyLoss(label_smoothing=0.1)(logits, target))
show("weighted", F.cross_entropy(logits, target, weight=w, label_smoothing=0.2))
show("soft", F.cross_entropy(logits, F.softmax(torch.arange(20.0).view(5, 4), 1)))
show("ignored", F.cross_entropy(logits, target.masked_fill(target == 3, -100)))
show("nll sum", F.nll_loss(F.log_softmax(logits, 1), target, reduction="sum"))
T = 3.0
teacher = logits.detach().flip(1)
show(
    "distil",
    F.kl_div(F.log_softmax(logits / T, 1), F.softmax(teacher / T, 1), reduction="batchmean")
    * T
    * T,
)
show(
    "distil log",
    F.kl_div(F.log_softmax(logits, 1), F.log_softmax(teacher, 1), log_target=True, reduction="sum"),
)
multi = F.one_hot(target, 4).float() + torch.eye(4)[[1, 1, 2, 2, 0]]
multi.clamp_(max=1)
show("multi", nn.MultiLabelSoftMarginLoss(weight=w)(logits, multi))
show("margin", nn.MultiMarginLoss(p=2, margin=0.5)(logits, target))
show("mlm", nn.MultiLabelMarginLoss()(logits, torch.tensor([[0, 2, -1, -1]] * 5)))
show("bce", nn.BCEWithLogitsLoss(pos_weight=w)(logits, multi))
show("bce2", F.binary_cross_entropy(logits.sigmoid(), multi, weight=w))
show("poisson", nn.PoissonNLLLoss(full=True)(logits, multi * 3))
show("gauss", nn.GaussianNLLLoss(full=True)(logits, multi, torch.full_like(multi, 0.3)))
show(
    "l1",
    nn.SmoothL1Loss(beta=0.7)(logits, multi)
    + nn.HuberLoss(delta=0.4)(logits, multi)
    + nn.L1Loss()(logits, multi),
)
show("softmargin", nn.SoftMarginLoss()(logits, multi * 2 - 1))
show("hinge", nn.HingeEmbeddingLoss(margin=1.2)(logits, multi * 2 - 1))


def dice_loss(p, t, smooth=1.0, alpha=0.5, beta=0.5):
    p, t = p.flatten(1), t.flatten(1)
    tp, fp, fn = (p * t).sum(1), (p * (1 - t)).sum(1), ((1 - p) * t).sum(1)
    return 1 - ((tp + smooth) / (tp + alpha * fp + beta * fn + smooth)).mean()


def quantile_loss(pred, y, qs):
    err = y.unsqueeze(-1) - pred
    q = torch.as_tensor(qs)
    return torch.maximum(q * err, (q - 1) * err).sum(-1).mean()


def wing(p, t, w=1.0, e=0.5):
    d = (p - t).abs()
    c = w - w * math.log(1 + w / e)
    return torch.where(d < w, w * torch.log1p(d / e), d - c).mean()


show("dice", dice_loss(logits.sigmoid(), multi))
show("tversky", dice_loss(logits.sigmoid(), multi, alpha=0.3, beta=0.7))
show("quantile", quantile_loss(logits[:, :3], torch.arange(5.0), [0.1, 0.5, 0.9]))
show("wing", wing(logits, multi))
show("log cosh", (logits - multi).cosh().log().mean())
show("ordinal", F.mse_loss(logits.cumsum(1).sigmoid().sum(1), target.float()))
show("charbonnier", torch.hypot(logits - multi, torch.tensor(1e-3)).mean())
show("total variation", logits.diff(dim=0).abs().mean() + logits.diff(dim=1).square().mean())

emb = logits / logits.norm(dim=1, keepdim=True)
show("triplet", nn.TripletMarginLoss(margin=0.5, p=2)(emb[:3], emb[1:4], emb[2:5]))
show(
    "triplet cos",
    nn.TripletMarginWithDistanceLoss(
        distance_function=lambda a, b: 1 - F.cosine_similarity(a, b), swap=True
    )(emb[:3], emb[1:4], emb[2:5]),
)
show("cosine", nn.CosineEmbeddingLoss(margin=0.1)(emb[:4], emb[1:], torch.tensor([1, -1, 1, -1])))
show(
    "ranking",
    nn.MarginRankingLoss(margin=0.2)(logits[:, 0], logits[:, 1], torch.tensor([1.0, -1, 1, 1, -1])),
)


def batch_hard(e, y, margin=0.3):
    d = torch.cdist(e, e)
    same = y[:, None] == y[None]
    pos = (d * same).max(1).values
    neg = d.masked_fill(same, float("inf")).min(1)[0]
    return F.relu(pos - neg + margin).mean()


def ntxent(a, b, t=0.5):
    z = F.normalize(torch.cat([a, b]), dim=1)
    sim = (z @ z.T / t).fill_diagonal_(-9e15)
    n = len(a)
    labels = torch.cat([torch.arange(n) + n, torch.arange(n)])
    return F.cross_entropy(sim, labels)


def supcon(e, y, t=0.2):
    sim = e @ e.t() / t
    eye = torch.eye(len(e), dtype=torch.bool)
    pos = (y[:, None] == y) & ~eye
    lp = sim - torch.logsumexp(sim.masked_fill(eye, -torch.inf), 1, keepdim=True)
    count = pos.sum(1)
    return -(lp.masked_fill(~pos, 0).sum(1)[count > 0] / count[count > 0]).mean()


def arcface(e, w, y, s=8.0, m=0.3):
    cos = F.linear(e, F.normalize(w)).clamp(-1 + 1e-6, 1 - 1e-6)
    theta = torch.acos(cos)
    hot = F.one_hot(y, w.size(0)).bool()
    return F.cross_entropy(s * torch.where(hot, torch.cos(theta + m), cos), y)


show("hard", batch_hard(emb, target % 2))
show("ntxent", ntxent(emb[:2], emb[2:4]))
show("supcon", supcon(emb, target % 2))
show("arcface", arcface(emb, torch.arange(16.0).view(4, 4).cos(), target))
show(
    "center",
    (emb - torch.zeros(4, 4).index_add(0, target, emb.detach())[target]).square().sum(1).mean(),
)
mmd = lambda a, b: sum(
    (torch.exp(-(torch.cdist(p, q) ** 2))).mean() * s
    for (p, q), s in zip([(a, a), (b, b), (a, b)], (1, 1, -2))
)
show("mmd", mmd(emb[:3], emb[3:]))
show(
    "barlow",
    (
        lambda c: (
            (torch.diagonal(c) - 1).pow(2).sum()
            + 5e-3 * (c.pow(2).sum() - torch.diagonal(c).pow(2).sum())
        )
    )(F.normalize(emb[:3], dim=0).T @ F.normalize(emb[1:4], dim=0)),
)
show("crps", (torch.distributions.Normal(0.0, 1.0).cdf(logits) - 0.5).square().mean())
show("perplexity", torch.exp(F.cross_entropy(logits, target)))
for r, (a, b) in itertools.product(
    ("none", "mean", "sum"), [(nn.MSELoss, multi), (nn.L1Loss, multi)]
):
    v = a(reduction=r)(logits, b)
    print(r, a.__name__, v.shape, v.sum().item())
seg = torch.linspace(-1, 1, 2 * 3 * 4 * 4).view(2, 3, 4, 4).cos()
lab = torch.arange(32).view(2, 4, 4) % 3
print(
    F.cross_entropy(seg, lab, reduction="none").shape,
    F.cross_entropy(seg, lab),
    nn.NLLLoss(ignore_index=1)(seg.log_softmax(1), lab),
    F.ctc_loss is not None,
    _Loss in FocalLoss.__mro__,
)
conf = torch.zeros(3, 3, dtype=torch.long)
pred = seg.argmax(1)
conf.index_put_((lab.flatten(), pred.flatten()), torch.tensor(1), accumulate=True)
iou = conf.diag() / (conf.sum(0) + conf.sum(1) - conf.diag())
print(conf, iou, iou.nanmean())
