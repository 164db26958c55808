"""`torchmetrics`, and losses of `pytorch-metric-learning`."""

import torch
import torchmetrics
from pytorch_metric_learning import losses
from shown import show, wave

shares, classes = torch.softmax(wave(20, 4, pace=1.7), -1), torch.arange(20) % 4
for name in ("Accuracy", "F1Score", "ConfusionMatrix", "AUROC", "CohenKappa", "AveragePrecision"):
    metric = getattr(torchmetrics, name)(task="multiclass", num_classes=4)
    metric.update(shares[:10], classes[:10])
    metric.update(shares[10:], classes[10:])
    show(name, metric.compute())
for name in ("MeanSquaredError", "R2Score", "PearsonCorrCoef", "SpearmanCorrCoef"):
    metric = getattr(torchmetrics, name)()
    metric.update(wave(20), wave(20, pace=0.5))
    show(name, metric.compute())
points, labels = wave(8, 4).requires_grad_(), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])
for kind in (losses.TripletMarginLoss, losses.NTXentLoss, losses.SupConLoss, losses.CircleLoss):
    points.grad = None
    loss = kind()(points, labels)
    loss.backward()
    show(kind.__name__, loss, points.grad)
