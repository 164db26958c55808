"""Boxes: intersection over union, matching, a focal loss and non-maximum suppression by hand."""

import numpy as np
import torch
import torch.nn.functional as F

rng = np.random.default_rng(50)


def boxes(count):
    corner = rng.uniform(0, 8, (count, 2))
    return torch.tensor(np.c_[corner, corner + rng.uniform(1, 4, (count, 2))], dtype=torch.float32)


def box_iou(a, b):
    area_a = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    area_b = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    lt = torch.max(a[:, None, :2], b[:, :2])
    rb = torch.min(a[:, None, 2:], b[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[:, :, 0] * wh[:, :, 1]
    return inter / (area_a[:, None] + area_b - inter)


def nms(boxes, scores, threshold):
    order = scores.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        keep.append(order[0].item())
        if order.numel() == 1:
            break
        iou = box_iou(boxes[order[:1]], boxes[order[1:]])[0]
        order = order[1:][iou <= threshold]
    return keep


anchors, truth = boxes(12), boxes(3)
iou = box_iou(anchors, truth)
matched, index = iou.max(dim=1)
best, _ = iou.max(dim=0)
print([round(v, 4) for v in best.tolist()], index.tolist())
labels = (matched >= 0.2).float()
logits = torch.tensor(rng.normal(size=12), dtype=torch.float32, requires_grad=True)
p = torch.sigmoid(logits)
ce = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
p_t = p * labels + (1 - p) * (1 - labels)
focal = ((0.25 * labels + 0.75 * (1 - labels)) * ce * (1 - p_t) ** 2).sum() / labels.sum().clamp(
    min=1
)
focal.backward()
print(f"{focal.item():.5f} {logits.grad.norm().item():.5f}")
delta = torch.zeros(12, 4, requires_grad=True)
regression = F.smooth_l1_loss(anchors + delta, truth[index], reduction="none")[labels.bool()].sum()
if regression.requires_grad:
    (regression + delta.sum() * 0).backward()
print(f"{regression.item():.4f} {delta.grad.abs().sum().item():.4f}")
print(nms(anchors, torch.tensor(rng.random(12), dtype=torch.float32), 0.1))
