"""Every loss on the same numbers, with its gradient."""

import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(34)
x = torch.tensor(rng.normal(size=(6, 4)), dtype=torch.float32)
y = torch.tensor(rng.normal(size=(6, 4)), dtype=torch.float32)
classes = torch.tensor([0, 3, 1, 2, 2, 0])
signs = torch.tensor(rng.choice([-1.0, 1.0], 6), dtype=torch.float32)
probabilities = torch.sigmoid(y)
weight = torch.tensor([1.0, 2.0, 0.5, 1.5])


def show(name, function):
    leaf = x.clone().requires_grad_()
    loss = function(leaf)
    loss.sum().backward()
    print(f"{name} {loss.mean().item():.5f} {leaf.grad.abs().sum().item():.5f}")


show("mse", lambda t: nn.MSELoss()(t, y))
show("l1", lambda t: nn.L1Loss(reduction="sum")(t, y))
show("smooth", lambda t: nn.SmoothL1Loss(beta=0.7)(t, y))
show("huber", lambda t: nn.HuberLoss(delta=0.5, reduction="none")(t, y))
show("ce", lambda t: nn.CrossEntropyLoss(weight=weight, label_smoothing=0.1)(t, classes))
show("ce soft", lambda t: nn.CrossEntropyLoss()(t, probabilities / probabilities.sum(1, True)))
show("ce ignore", lambda t: nn.CrossEntropyLoss(ignore_index=2)(t, classes))
show("nll", lambda t: nn.NLLLoss(weight=weight, reduction="none")(t.log_softmax(1), classes))
show("bce", lambda t: nn.BCELoss()(torch.sigmoid(t), probabilities))
show("bcel", lambda t: nn.BCEWithLogitsLoss(pos_weight=weight)(t, probabilities))
show("kl", lambda t: nn.KLDivLoss(reduction="batchmean")(t.log_softmax(1), y.softmax(1)))
show("poisson", lambda t: nn.PoissonNLLLoss()(t, y.abs().round()))
show("gaussian", lambda t: nn.GaussianNLLLoss()(t, y, torch.full((6, 4), 0.5)))
show("margin", lambda t: nn.MarginRankingLoss(margin=0.3)(t[:, 0], t[:, 1], signs))
show("hinge", lambda t: nn.HingeEmbeddingLoss()(t[:, 0], signs))
show("multi", lambda t: nn.MultiMarginLoss()(t, classes))
show("multilabel", lambda t: nn.MultiLabelSoftMarginLoss()(t, probabilities.round()))
show("soft", lambda t: nn.SoftMarginLoss()(t[:, 0], signs))
show("cosine", lambda t: nn.CosineEmbeddingLoss(margin=0.1)(t, y, signs))
show("triplet", lambda t: nn.TripletMarginLoss(swap=True)(t, y, y.flip(0)))
log_probs = torch.tensor(rng.normal(size=(7, 2, 5)), dtype=torch.float32).log_softmax(2)
targets = torch.tensor([[1, 2, 3], [2, 2, 4]])
ctc = nn.CTCLoss()(log_probs, targets, torch.tensor([7, 6]), torch.tensor([3, 2]))
print(f"ctc {ctc.item():.5f}")
