"""Optimizers of `pytorch-optimizer`, `lion-pytorch` and `schedulefree`, and `ema-pytorch`."""

from functools import partial

import pytorch_optimizer
import schedulefree
from ema_pytorch import EMA
from lion_pytorch import Lion
from shown import filled, show, wave
from torch import nn

NAMES = (
    "adabelief", "adan", "lamb", "prodigy", "shampoo", "adafactor", "madgrad", "diffgrad", "yogi",
    "lars", "tiger", "came", "adopt", "grams", "ranger21",
)  # fmt: skip


def train(name, make):
    model = filled(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), 0.3)
    optimizer = make(model.parameters())
    averages = EMA(model, beta=0.9, update_every=1, update_after_step=0)
    if hasattr(optimizer, "train"):
        optimizer.train()
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(wave(5, 4)).square().mean()
        loss.backward()
        optimizer.step()
        averages.update()
    show(name, loss, model[0].weight, averages.ema_model[0].weight)


for name in NAMES:
    options = {"num_iterations": 10} if name == "ranger21" else {}
    train(name, partial(pytorch_optimizer.load_optimizer(name), lr=0.01, **options))
train("lion", partial(Lion, lr=0.01))
train("schedule-free", partial(schedulefree.AdamWScheduleFree, lr=0.01))
