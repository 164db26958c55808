"""A training script as in ordinary repositories: argparse, logging, meters, tables, resume."""

import argparse
import json
import logging
import os
import random
import shutil
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import torch.optim.lr_scheduler as lr_scheduler
from torch.utils.data import DataLoader, Subset, TensorDataset


def get_parser():
    parser = argparse.ArgumentParser("toy classifier")
    parser.add_argument("--epochs", default=3, type=int)
    parser.add_argument("-b", "--batch-size", default=8, type=int)
    parser.add_argument("--lr", default=0.05, type=float)
    parser.add_argument("--momentum", default=0.9, type=float)
    parser.add_argument("--wd", default=1e-4, type=float)
    parser.add_argument("--no-cuda", action="store_true", default=False)
    parser.add_argument("--resume", default="", type=str)
    parser.add_argument("--label-smoothing", default=0.1, type=float)
    return parser


class AverageMeter:
    def __init__(self, name, fmt=":f"):
        self.name, self.fmt = name, fmt
        self.reset()

    def reset(self):
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
            correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / len(target))
            for k in topk
        ]


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
    cudnn.deterministic = True
    cudnn.benchmark = False
    torch.use_deterministic_algorithms(False)


class Net(nn.Module):
    def __init__(self, dim, classes):
        super().__init__()
        self.fc1 = nn.Linear(dim, 16)
        self.bn = nn.BatchNorm1d(16)
        self.fc2 = nn.Linear(16, classes)
        for i, m in enumerate(self.modules()):
            if isinstance(m, nn.Linear):
                with torch.no_grad():
                    n = m.weight.numel()
                    m.weight.data.copy_(
                        torch.linspace(-1, 1, n).mul(7 + i).sin().view_as(m.weight) * 0.3
                    )
                nn.init.constant_(m.bias, 0.01)

    def forward(self, x):
        return self.fc2(F.relu(self.bn(self.fc1(x)), inplace=True))


def train(loader, model, criterion, optimizer, epoch, device, log):
    losses, top1, top3 = (
        AverageMeter("Loss", ":.4f"),
        AverageMeter("Acc@1", ":6.2f"),
        AverageMeter("Acc@3", ":6.2f"),
    )
    model.train()
    for i, (images, target) in enumerate(loader):
        images, target = images.to(device, non_blocking=True), target.to(device, non_blocking=True)
        output = model(images)
        loss = criterion(output, target)
        acc1, acc3 = accuracy(output, target, topk=(1, 3))
        losses.update(loss.item(), images.size(0))
        top1.update(acc1[0], images.size(0))
        top3.update(acc3.item(), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    log.info("%d %s %s %s", epoch, losses, top1, top3)
    return losses.avg


@torch.no_grad()
def validate(loader, model, criterion, device):
    model.eval()
    total, hits, per_class = 0.0, 0, defaultdict(int)
    for x, y in loader:
        out = model(x.to(device))
        total += criterion(out, y).item() * len(x)
        hits += (out.argmax(1) == y).sum().item()
        for c, ok in zip(y, out.argmax(1) == y):
            per_class[c.item()] += int(ok)
    return total / len(loader.dataset), hits / len(loader.dataset), dict(sorted(per_class.items()))


def save_checkpoint(state, is_best, folder):
    filename = os.path.join(folder, "checkpoint.pth.tar")
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, os.path.join(folder, "model_best.pth.tar"))


def main(argv, folder):
    args = get_parser().parse_args(argv)
    logging.basicConfig(
        stream=sys.stdout, level=logging.INFO, format="%(levelname)s %(message)s", force=True
    )
    log = logging.getLogger(__name__)
    set_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu")
    kwargs = {"num_workers": 0, "pin_memory": True} if device.type == "cuda" else {}
    rng = np.random.RandomState(1)
    x = torch.from_numpy(rng.randn(60, 5)).float()
    y = torch.from_numpy(rng.randint(0, 4, 60)).long()
    x += F.one_hot(y, 5).float() * 2
    data = TensorDataset(x, y)
    train_set, test_set = Subset(data, range(0, 44)), Subset(data, range(44, 60))
    loader = DataLoader(
        train_set, batch_size=args.batch_size, shuffle=False, drop_last=True, **kwargs
    )
    test = DataLoader(test_set, batch_size=16, **kwargs)
    model = Net(5, 4).to(device)
    print(model)
    print("params:", sum(p.numel() for p in model.parameters() if p.requires_grad))
    criterion = nn.CrossEntropyLoss(label_smoothing=args.label_smoothing).to(device)
    decay = [p for n, p in model.named_parameters() if p.ndim > 1]
    plain = [p for n, p in model.named_parameters() if p.ndim <= 1]
    optimizer = optim.SGD(
        [{"params": decay, "weight_decay": args.wd}, {"params": plain, "weight_decay": 0.0}],
        args.lr,
        momentum=args.momentum,
        nesterov=True,
    )
    scheduler = lr_scheduler.SequentialLR(
        optimizer,
        [
            lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2),
            lr_scheduler.CosineAnnealingLR(optimizer, T_max=4),
        ],
        milestones=[2],
    )
    start, best = 0, 0.0
    if args.resume:
        if os.path.isfile(args.resume):
            checkpoint = torch.load(args.resume, map_location=device, weights_only=False)
            start, best = checkpoint["epoch"], checkpoint["best"]
            model.load_state_dict(checkpoint["state_dict"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            scheduler.load_state_dict(checkpoint["scheduler"])
            print("=> loaded epoch {} {:.3f} {}".format(start, best, checkpoint["args"].lr))
    history = []
    for epoch in range(start, args.epochs):
        avg = train(loader, model, criterion, optimizer, epoch, device, log)
        scheduler.step()
        val, acc, per = validate(test, model, criterion, device)
        history.append(
            {
                "epoch": epoch,
                "loss": round(avg, 4),
                "val": round(val, 4),
                "lr": scheduler.get_last_lr()[0],
            }
        )
        is_best, best = acc > best, max(acc, best)
        save_checkpoint(
            {
                "epoch": epoch + 1,
                "state_dict": model.state_dict(),
                "best": best,
                "args": args,
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
            },
            is_best,
            folder,
        )
        print(per)
    print(json.dumps(history))
    return sorted(os.listdir(folder))


with tempfile.TemporaryDirectory() as folder:
    print(main([], folder))
    print(main(["--epochs", "5", "--resume", str(Path(folder) / "checkpoint.pth.tar")], folder))
