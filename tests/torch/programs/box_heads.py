"""The heads of a two-stage detector, written with plain tensor operations: anchors, box coding,
matching, non-maximum suppression by class, RoI align by grid_sample, masks chosen by class.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

BBOX_XFORM_CLIP = math.log(1000.0 / 16)


def box_area(boxes: Tensor) -> Tensor:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def box_iou(a: Tensor, b: Tensor) -> Tensor:
    lt = torch.max(a[:, None, :2], b[:, :2])
    rb = torch.min(a[:, None, 2:], b[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[:, :, 0] * wh[:, :, 1]
    return inter / (box_area(a)[:, None] + box_area(b) - inter)


def generalized_iou(a: Tensor, b: Tensor) -> Tensor:
    x1, y1, x2, y2 = a.unbind(dim=-1)
    x1g, y1g, x2g, y2g = b.unbind(dim=-1)
    inter = (torch.min(x2, x2g) - torch.max(x1, x1g)).clamp(0) * (
        torch.min(y2, y2g) - torch.max(y1, y1g)
    ).clamp(0)
    union = (x2 - x1) * (y2 - y1) + (x2g - x1g) * (y2g - y1g) - inter
    hull = (torch.max(x2, x2g) - torch.min(x1, x1g)) * (torch.max(y2, y2g) - torch.min(y1, y1g))
    return inter / union - (hull - union) / hull


def nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    order = scores.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        i = order[0]
        keep.append(i.item())
        if order.numel() == 1:
            break
        iou = box_iou(boxes[i].unsqueeze(0), boxes[order[1:]]).squeeze(0)
        order = order[1:][iou <= threshold]
    return torch.as_tensor(keep, dtype=torch.int64)


def batched_nms(boxes, scores, labels, threshold):
    offsets = labels.to(boxes) * (boxes.max() + 1)
    return nms(boxes + offsets[:, None], scores, threshold)


def anchors_of(size, stride, scales, ratios):
    scales, ratios = torch.as_tensor(scales), torch.as_tensor(ratios)
    h = (torch.sqrt(ratios)[:, None] * scales[None, :]).view(-1)
    w = ((1 / torch.sqrt(ratios))[:, None] * scales[None, :]).view(-1)
    base = torch.stack([-w, -h, w, h], dim=1) / 2
    shift = (torch.arange(0, size, dtype=torch.float32) + 0.5) * stride
    y, x = torch.meshgrid(shift, shift, indexing="ij")
    shifts = torch.stack((x, y, x, y), dim=-1).reshape(-1, 4)
    return (shifts[:, None] + base[None]).reshape(-1, 4)


def encode(reference: Tensor, proposals: Tensor) -> Tensor:
    size, size_r = proposals[:, 2:] - proposals[:, :2], reference[:, 2:] - reference[:, :2]
    centre, centre_r = proposals[:, :2] + 0.5 * size, reference[:, :2] + 0.5 * size_r
    return torch.cat(((centre_r - centre) / size, torch.log(size_r / size)), dim=1)


def decode(codes: Tensor, boxes: Tensor) -> Tensor:
    size = boxes[:, 2:] - boxes[:, :2]
    centre = boxes[:, :2] + 0.5 * size
    codes = codes.reshape(codes.shape[0], -1, 4)
    middle = codes[..., :2] * size[:, None] + centre[:, None]
    half = torch.exp(codes[..., 2:].clamp(max=BBOX_XFORM_CLIP)) * size[:, None] * 0.5
    return torch.cat((middle - half, middle + half), dim=-1)


class Matcher:
    BELOW, BETWEEN = -1, -2

    def __init__(self, high, low):
        self.high, self.low = high, low

    def __call__(self, quality):
        values, matches = quality.max(dim=0)
        every = matches.clone()
        matches[values < self.low] = self.BELOW
        matches[(values >= self.low) & (values < self.high)] = self.BETWEEN
        best, _ = quality.max(dim=1)
        _, forced = torch.where(quality == best[:, None])
        matches[forced] = every[forced]
        return matches


def roi_align(features: Tensor, boxes: Tensor, size: int, scale: float) -> Tensor:
    height, width = features.shape[-2:]
    boxes = boxes * scale
    steps = (torch.arange(size) + 0.5) / size
    x = boxes[:, 0, None] + steps * (boxes[:, 2] - boxes[:, 0])[:, None]
    y = boxes[:, 1, None] + steps * (boxes[:, 3] - boxes[:, 1])[:, None]
    x, y = 2 * x / width - 1, 2 * y / height - 1
    where = torch.stack(
        (x[:, None, :].expand(-1, size, -1), y[:, :, None].expand(-1, -1, size)), -1
    )
    return F.grid_sample(
        features.expand(len(boxes), -1, -1, -1), where, align_corners=False, padding_mode="border"
    )


class Heads(nn.Module):
    def __init__(self, classes=3, per_place=4):
        super().__init__()
        self.classes = classes
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.GELU(), nn.Conv2d(8, 12, 3, 2, 1), nn.GELU()
        )
        self.objectness = nn.Conv2d(12, per_place, 1)
        self.shift = nn.Conv2d(12, per_place * 4, 1)
        self.box = nn.Linear(12 * 16, classes + classes * 4)
        self.mask = nn.Sequential(
            nn.Conv2d(12, 8, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(8, classes, 2, stride=2)
        )
        rng = np.random.RandomState(0)
        for p in self.parameters():
            nn.init.zeros_(p)
            p.data.add_(torch.from_numpy(rng.randn(*p.shape) * 0.1))

    def proposals(self, image):
        f = self.body(image)
        codes = self.shift(f).view(1, -1, 4, *f.shape[-2:]).permute(0, 3, 4, 1, 2).reshape(-1, 4)
        return f, self.objectness(f).permute(0, 2, 3, 1).flatten(), codes


rng = np.random.RandomState(4)
image = torch.from_numpy(rng.rand(1, 3, 32, 32).astype(np.float32))
truth = torch.tensor([[2.0, 3.0, 14.0, 15.0], [16.0, 10.0, 30.0, 28.0], [5.0, 20.0, 12.0, 31.0]])
kinds = torch.tensor([1, 2, 1])
for i, (x0, y0, x1, y1) in enumerate(truth.int().tolist()):
    image[0, kinds[i], y0:y1, x0:x1] += 1.5
anchors = anchors_of(8, 4, [8.0, 16.0], [0.5, 2.0])
matches = Matcher(0.5, 0.3)(box_iou(truth, anchors))
print("anchors", tuple(anchors.shape), f"{anchors.sum():.3f}")
print("matched", [int((matches == k).sum()) for k in range(-2, 3)])

model = Heads()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1.0, (i + 1) / 4))
for step in range(6):
    f, objectness, codes = model.proposals(image)
    used = torch.where(matches != Matcher.BETWEEN)[0]
    positive = torch.nonzero(matches >= 0).squeeze(1)
    loss_objectness = F.binary_cross_entropy_with_logits(
        objectness[used], (matches[used] >= 0).float()
    )
    wanted = encode(truth[matches[positive]], anchors[positive])
    loss_codes = (
        F.smooth_l1_loss(codes[positive], wanted, beta=1 / 9, reduction="sum") / used.numel()
    )
    with torch.no_grad():
        decoded = decode(codes, anchors).squeeze(1).clamp(0, 32)
        scores, top = objectness.sigmoid().topk(24)
        kept = nms(decoded[top], scores, 0.7)[:10]
        rois = torch.cat([decoded[top][kept], truth])
        iou = box_iou(rois, truth)
        best, owner = iou.max(1)
        labels = torch.where(best > 0.5, kinds[owner], torch.zeros_like(owner))
    pooled = roi_align(f, rois, 4, 0.25)
    out = model.box(pooled.flatten(start_dim=1))
    logits, shifts = out[:, : model.classes], out[:, model.classes :].view(len(rois), -1, 4)
    loss_class = F.cross_entropy(logits, labels)
    front = torch.nonzero(labels > 0)[:, 0]
    refined = decode(shifts[front, labels[front]], rois[front])[:, 0]
    loss_box = (1 - generalized_iou(refined, truth[owner[front]])).mean()
    masks = model.mask(pooled[front])[torch.arange(len(front)), labels[front]]
    full = torch.zeros(len(front), 8, 8)
    full[:, 2:6, 2:6] = 1
    loss_mask = F.binary_cross_entropy_with_logits(masks, full)
    losses = dict(
        objectness=loss_objectness,
        codes=loss_codes,
        classes=loss_class,
        box=loss_box,
        mask=loss_mask,
    )
    total = sum(losses.values())
    optimizer.zero_grad()
    total.backward()
    norm = torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
    optimizer.step()
    scheduler.step()
    print(step, len(kept), {k: round(v.item(), 4) for k, v in losses.items()}, f"{total:.4f}")
print({n: f"{p.grad.abs().mean():.6f}" for n, p in model.named_parameters() if "bias" not in n})

boxes = torch.from_numpy(rng.rand(30, 4).astype(np.float32)) * 10
boxes[:, 2:] += boxes[:, :2]
scores, labels = torch.from_numpy(rng.rand(30)), torch.from_numpy(rng.randint(0, 3, 30))
kept = batched_nms(boxes, scores, labels, 0.4)
print("kept", kept.tolist(), f"{boxes[kept].mean():.5f}")
per_class = torch.zeros(3, dtype=torch.long).scatter_add_(0, labels[kept], torch.ones_like(kept))
print("by class", per_class.tolist(), torch.unique(labels[kept], return_counts=True)[1].tolist())
