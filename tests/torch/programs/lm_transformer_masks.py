"""A language model of nn.TransformerEncoder: positional encoding, square masks, batches by time, SGD with StepLR, perplexity, best state kept."""

import copy
import math
import os
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import TransformerEncoder, TransformerEncoderLayer

rng = np.random.default_rng(55)


class TransformerModel(nn.Module):
    def __init__(
        self, ntoken: int, d_model: int, nhead: int, d_hid: int, nlayers: int, dropout: float = 0.5
    ):
        super().__init__()
        self.model_type = "Transformer"
        self.pos_encoder = PositionalEncoding(d_model, dropout)
        encoder_layers = TransformerEncoderLayer(d_model, nhead, d_hid, dropout)
        self.transformer_encoder = TransformerEncoder(encoder_layers, nlayers)
        self.embedding = nn.Embedding(ntoken, d_model)
        self.d_model = d_model
        self.linear = nn.Linear(d_model, ntoken)
        self.init_weights()

    def init_weights(self) -> None:
        initrange = 0.1
        self.embedding.weight.data.uniform_(-initrange, initrange)
        self.linear.bias.data.zero_()
        self.linear.weight.data.uniform_(-initrange, initrange)
        for p in self.parameters():
            p.data.copy_(
                torch.from_numpy(rng.normal(p.dim() == 1 and p.mean().item() == 1, 0.1, p.size()))
            )

    def forward(self, src: Tensor, src_mask: Tensor = None) -> Tensor:
        src = self.embedding(src) * math.sqrt(self.d_model)
        src = self.pos_encoder(src)
        if src_mask is None:
            src_mask = nn.Transformer.generate_square_subsequent_mask(len(src)).to(src.device)
        output = self.transformer_encoder(src, src_mask)
        return self.linear(output)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model: int, dropout: float = 0.1, max_len: int = 50):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.pe[: x.size(0)]
        return self.dropout(x)


def data_process(raw_text_iter) -> Tensor:
    data = [torch.tensor(item, dtype=torch.long) for item in raw_text_iter]
    return torch.cat(tuple(filter(lambda t: t.numel() > 0, data)))


def batchify(data: Tensor, bsz: int) -> Tensor:
    seq_len = data.size(0) // bsz
    data = data[: seq_len * bsz]
    return data.view(bsz, seq_len).t().contiguous()


bptt, ntokens = 6, 13


def get_batch(source: Tensor, i: int) -> tuple[Tensor, Tensor]:
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].reshape(-1)


texts = [rng.integers(0, ntokens, n).tolist() for n in (20, 0, 31, 17)]
train_data, val_data = batchify(data_process(texts), 4), batchify(data_process(texts[::-1]), 2)[:9]
print(train_data.shape, val_data.shape)
model = TransformerModel(ntokens, 8, 2, 12, 2, 0.0)
print(model)
criterion = nn.CrossEntropyLoss()
lr = 5.0
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1.0, gamma=0.95)


def evaluate(model: nn.Module, eval_data: Tensor) -> float:
    model.eval()
    total_loss = 0.0
    with torch.no_grad():
        for i in range(0, eval_data.size(0) - 1, bptt):
            data, targets = get_batch(eval_data, i)
            output = model(data)
            total_loss += data.size(0) * criterion(output.view(-1, ntokens), targets).item()
    return total_loss / (len(eval_data) - 1)


best_val_loss = float("inf")
with TemporaryDirectory() as tempdir:
    path = os.path.join(tempdir, "best_model_params.pt")
    for epoch in range(1, 3):
        model.train()
        for batch, i in enumerate(range(0, train_data.size(0) - 1, bptt)):
            data, targets = get_batch(train_data, i)
            loss = criterion(model(data).view(-1, ntokens), targets)
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            print(f"{batch} {loss.item():.5f} {norm:.5f}")
        val_loss = evaluate(model, val_data)
        print(
            f"| epoch {epoch} | lr {scheduler.get_last_lr()[0]:.3f} | valid loss {val_loss:5.4f} | ppl {math.exp(val_loss):8.3f}"
        )
        if val_loss < best_val_loss:
            best_val_loss = val_loss
            torch.save(model.state_dict(), path)
        scheduler.step()
    kept = copy.deepcopy(model)
    model.load_state_dict(torch.load(path, weights_only=True))
print(f"{evaluate(model, val_data):.5f} {best_val_loss:.5f} {evaluate(kept, val_data):.5f}")
