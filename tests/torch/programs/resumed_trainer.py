"""A trainer as scripts have it: variable lengths by bucket, checkpoints with all states, early
stopping, resumed training that goes on with the same losses, weights loaded in part.
"""

import logging
import os
import random
import tempfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from torch import nn, optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset, Sampler


class Sentences(Dataset):
    def __init__(self, count, seed):
        rng = np.random.RandomState(seed)
        self.items = []
        for _ in range(count):
            words = rng.randint(1, 20, rng.randint(2, 9))
            self.items.append((torch.as_tensor(words), int(words.sum() % 2)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class BucketSampler(Sampler):
    """Batches of like lengths in an order that follows the epoch."""

    def __init__(self, lengths, batch_size):
        self.lengths, self.batch_size, self.epoch = lengths, batch_size, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = sorted(range(len(self.lengths)), key=lambda i: self.lengths[i])
        batches = [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        random.Random(self.epoch).shuffle(batches)
        return iter(batches)

    def __len__(self):
        return -(-len(self.lengths) // self.batch_size)


def collate(items):
    items.sort(key=lambda item: len(item[0]), reverse=True)
    words, labels = zip(*items)
    lengths = torch.tensor([len(w) for w in words])
    return pad_sequence(words, batch_first=True, padding_value=0), lengths, torch.tensor(labels)


class Tagger(nn.Module):
    def __init__(self, hidden=10):
        super().__init__()
        self.embed = nn.Embedding(20, 6, padding_idx=0)
        self.rnn = nn.GRU(6, hidden, bidirectional=True, batch_first=True)
        self.attention = nn.Linear(2 * hidden, 1)
        self.head = nn.Sequential(
            OrderedDict([("drop", nn.Dropout(0.0)), ("out", nn.Linear(2 * hidden, 2))])
        )

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embed(words), lengths, batch_first=True)
        out, hidden = self.rnn(packed)
        out, sizes = pad_packed_sequence(out, batch_first=True)
        mask = torch.arange(out.size(1))[None, :] < sizes[:, None]
        scores = self.attention(out).squeeze(-1).masked_fill(~mask, -1e9)
        return self.head((scores.softmax(1).unsqueeze(1) @ out).squeeze(1))


def fill(model, seed=0):
    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.from_numpy(rng.uniform(-0.4, 0.4, tuple(p.shape))))
        model.embed.weight[0].fill_(0)
    return model


class Trainer:
    def __init__(self, folder, patience=3):
        self.folder = Path(folder)
        self.model = fill(Tagger())
        no_decay = ("bias", "embed.weight")
        named = list(self.model.named_parameters())
        self.optimizer = optim.AdamW(
            [
                {
                    "params": [p for n, p in named if not any(e in n for e in no_decay)],
                    "weight_decay": 0.01,
                },
                {
                    "params": [p for n, p in named if any(e in n for e in no_decay)],
                    "weight_decay": 0.0,
                },
            ],
            lr=0.01,
        )
        self.warmup = LambdaLR(self.optimizer, lambda s: min(1.0, (s + 1) / 5))
        self.plateau = ReduceLROnPlateau(
            self.optimizer, mode="min", factor=0.5, patience=0, threshold=1e-2
        )
        self.data, self.held = Sentences(22, 1), Sentences(10, 2)
        self.sampler = BucketSampler([len(w) for w, _ in self.data.items], 5)
        self.loader = DataLoader(self.data, batch_sampler=self.sampler, collate_fn=collate)
        self.held_loader = DataLoader(
            self.held, batch_size=4, collate_fn=collate, shuffle=False, drop_last=False
        )
        self.epoch, self.best, self.bad, self.patience = 0, float("inf"), 0, patience
        self.loss = nn.CrossEntropyLoss()

    def train_epoch(self):
        self.model.train()
        self.sampler.set_epoch(self.epoch)
        total = torch.zeros(())
        for words, lengths, labels in self.loader:
            self.optimizer.zero_grad()
            loss = self.loss(self.model(words, lengths), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            if self.epoch == 0:
                self.warmup.step()
            total += loss.detach() * labels.numel()
        return (total / len(self.data)).item()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        loss, correct = 0.0, 0
        for words, lengths, labels in self.held_loader:
            out = self.model(words, lengths)
            loss += nn.functional.cross_entropy(out, labels, reduction="sum").item()
            correct += (out.argmax(dim=1) == labels).sum().item()
        return loss / len(self.held), correct / len(self.held)

    def state(self):
        return {
            "epoch": self.epoch,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "warmup": self.warmup.state_dict(),
            "plateau": self.plateau.state_dict(),
            "best": self.best,
            "rng": torch.get_rng_state(),
            "config": {"hidden": 10, "name": "tagger"},
        }

    def save(self, name):
        temporary = self.folder / (name + ".tmp")
        torch.save(self.state(), temporary)
        os.replace(temporary, self.folder / name)

    def resume(self, name):
        checkpoint = torch.load(self.folder / name, map_location="cpu", weights_only=False)
        print("missing", self.model.load_state_dict(checkpoint["model"]))
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.warmup.load_state_dict(checkpoint["warmup"])
        self.plateau.load_state_dict(checkpoint["plateau"])
        self.epoch, self.best = checkpoint["epoch"], checkpoint["best"]
        torch.set_rng_state(checkpoint["rng"])
        return checkpoint

    def fit(self, epochs):
        while self.epoch < epochs:
            train_loss = self.train_epoch()
            held_loss, accuracy = self.evaluate()
            self.plateau.step(held_loss)
            self.epoch += 1
            if held_loss < self.best - 1e-4:
                self.best, self.bad = held_loss, 0
                self.save("best.pt")
            else:
                self.bad += 1
            self.save("last.pt")
            print(
                f"epoch {self.epoch}: {train_loss:.5f} {held_loss:.5f} {accuracy:.2f} "
                f"lr {self.optimizer.param_groups[0]['lr']:.5f} bad {self.bad}"
            )
            if self.bad >= self.patience:
                print("stopped")
                break


torch.manual_seed(0)
logging.getLogger(__name__).setLevel(logging.INFO)
with tempfile.TemporaryDirectory() as folder:
    first = Trainer(folder)
    first.fit(3)
    print(sorted(os.listdir(folder)))
    second = Trainer(folder)
    saved = second.resume("last.pt")
    print(sorted(saved), saved["config"], saved["plateau"]["num_bad_epochs"])
    second.fit(5)
    first.fit(5)
    weights = torch.load(f"{folder}/best.pt", weights_only=True)["model"]
    print([(k, tuple(v.shape)) for k, v in weights.items() if "l0_reverse" in k])
    other = Tagger()
    renamed = {"module." + k: v for k, v in weights.items() if not k.startswith("head")}
    part = OrderedDict((k[len("module.") :], v) for k, v in renamed.items())
    print(other.load_state_dict(part, strict=False))
    try:
        other.load_state_dict(part)
    except RuntimeError as error:
        print(str(error).split("\n\t")[0], "head.out.weight" in str(error))
    part["attention.weight"] = torch.zeros(1, 3)
    try:
        other.load_state_dict(part, strict=False)
    except RuntimeError as error:
        print(
            "size mismatch for attention.weight" in str(error), "torch.Size([1, 3])" in str(error)
        )
    for name, p in other.named_parameters():
        p.requires_grad = not name.startswith(("embed", "rnn"))
    trainable = list(filter(lambda p: p.requires_grad, other.parameters()))
    tuned = optim.SGD(trainable, lr=0.1)
    fill(other, 4).load_state_dict(weights)
    words, lengths, labels = next(iter(first.held_loader))
    nn.functional.cross_entropy(other(words, lengths), labels).backward()
    tuned.step()
    print([n for n, p in other.named_parameters() if p.grad is not None], len(trainable))
    print(
        torch.equal(other.embed.weight, weights["embed.weight"]),
        torch.equal(other.head.out.bias, weights["head.out.bias"]),
    )
