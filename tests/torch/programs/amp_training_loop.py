"""A training loop as recipes have it: autocast, GradScaler, accumulation, clipping, clip values, resumed from a checkpoint, metrics."""

import io
import json
import os
import random
import time
from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.amp import GradScaler, autocast


@dataclass
class Config:
    lr: float = 1e-2
    accumulate: int = 2
    clip: float = 1.0
    epochs: int = 2


class AverageMeter:
    def __init__(self, name, fmt=":f"):
        self.name, self.fmt = name, fmt
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return ("{name} {val" + self.fmt + "} ({avg" + self.fmt + "})").format(**self.__dict__)


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        maxk = max(topk)
        _, pred = output.topk(maxk, 1, True, True)
        pred = pred.t()
        correct = pred.eq(target.view(1, -1).expand_as(pred))
        return [
            correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / target.size(0))
            for k in topk
        ]


def seed_everything(seed):
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


seed_everything(1)
cfg = Config()
rng = np.random.default_rng(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Hardswish(), nn.Linear(16, 5)).to(
    device
)
for p in model.parameters():
    p.data = torch.from_numpy(rng.normal(0.2, 0.3, tuple(p.shape)).astype("float32"))
no_decay = ["bias", "1.weight"]
params = [
    {
        "params": [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay)],
        "weight_decay": 0.1,
    },
    {
        "params": [p for n, p in model.named_parameters() if any(nd in n for nd in no_decay)],
        "weight_decay": 0.0,
    },
]
optimizer = torch.optim.SGD(params, lr=cfg.lr, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, max_lr=0.05, total_steps=8, pct_start=0.3
)
scaler = GradScaler(device, enabled=device == "cuda")
old = torch.cuda.amp.GradScaler(enabled=False)
criterion = nn.CrossEntropyLoss().to(device)
x = torch.from_numpy(rng.normal(size=(32, 8)).astype("float32"))
y = torch.from_numpy(rng.integers(0, 5, 32))
batches = list(zip(x.split(8), y.split(8)))


def train(epoch):
    losses, top1, top5 = (
        AverageMeter("Loss", ":.4f"),
        AverageMeter("Acc@1", ":6.2f"),
        AverageMeter("Acc@3", ":6.2f"),
    )
    model.train()
    end = time.time()
    for i, (images, target) in enumerate(batches):
        images, target = images.to(device, non_blocking=True), target.to(device, non_blocking=True)
        with autocast(device_type=device, dtype=torch.bfloat16, enabled=epoch > 0):
            output = model(images)
            loss = criterion(output, target) / cfg.accumulate
        scaler.scale(loss).backward()
        if (i + 1) % cfg.accumulate == 0:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.clip, error_if_nonfinite=True)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
        scheduler.step()
        acc1, acc3 = accuracy(output.float(), target, topk=(1, 3))
        losses.update(loss.item() * cfg.accumulate, images.size(0))
        top1.update(acc1[0].item(), images.size(0))
        top5.update(acc3[0].item(), images.size(0))
    assert time.time() >= end
    return losses, top1, top5


l, a, b = train(0)
print(l, a, b, output_dtype := model(x[:2]).dtype)
buffer = io.BytesIO()
torch.save(
    {
        "epoch": 1,
        "state_dict": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "scaler": scaler.state_dict(),
        "config": json.dumps(asdict(cfg)),
        "rng": torch.get_rng_state(),
    },
    buffer,
)
l1, _, _ = train(1)
w1 = model[3].weight.detach().clone()
buffer.seek(0)
checkpoint = torch.load(buffer, map_location="cpu", weights_only=True)
print(checkpoint["config"], checkpoint["epoch"], checkpoint["scheduler"]["last_epoch"])
missing = model.load_state_dict(checkpoint["state_dict"])
print(missing)
optimizer.load_state_dict(checkpoint["optimizer"])
scheduler.load_state_dict(checkpoint["scheduler"])
scaler.load_state_dict(checkpoint["scaler"])
torch.set_rng_state(checkpoint["rng"])
l2, _, _ = train(1)
print(
    f"{l1.avg:.3f}",
    abs(l1.avg - l2.avg) < 1e-6,
    torch.equal(w1, model[3].weight),
    scheduler.last_epoch,
)
print(scheduler.get_last_lr(), [g["momentum"] for g in optimizer.param_groups])
with autocast("cpu", dtype=torch.bfloat16):
    a16, b16 = torch.ones(2, 2), torch.ones(2, 2)
    print((a16 @ b16).dtype, (a16 + b16).dtype, torch.nn.functional.softmax(a16 @ b16, -1).dtype)
    with autocast("cpu", enabled=False):
        print((a16 @ b16).dtype)
