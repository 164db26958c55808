"""nn.Transformer on a copy task: masks, label smoothing, warm-up, greedy decoding."""

import math

import numpy as np
import torch
import torch.nn as nn
from torch import optim


def init(model, seed=0):
    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for p in model.parameters():
            bound = 1 / max(1, p.shape[-1] if p.dim() > 1 else p.numel()) ** 0.5
            p.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(p.shape)).astype(np.float32)))
    return model


def grad_norm(model):
    return sum(p.grad.norm().item() ** 2 for p in model.parameters() if p.grad is not None) ** 0.5


PAD, BOS, EOS = 0, 1, 2


class PositionalEncoding(nn.Module):
    def __init__(self, emb_size: int, dropout: float, maxlen: int = 50):
        super().__init__()
        den = torch.exp(-torch.arange(0, emb_size, 2) * math.log(10000) / emb_size)
        pos = torch.arange(0, maxlen).reshape(maxlen, 1)
        pos_embedding = torch.zeros((maxlen, emb_size))
        pos_embedding[:, 0::2] = torch.sin(pos * den)
        pos_embedding[:, 1::2] = torch.cos(pos * den)
        pos_embedding = pos_embedding.unsqueeze(-2)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pos_embedding", pos_embedding)

    def forward(self, token_embedding: torch.Tensor):
        return self.dropout(token_embedding + self.pos_embedding[: token_embedding.size(0), :])


class Seq2SeqTransformer(nn.Module):
    def __init__(self, vocab, d=16):
        super().__init__()
        self.transformer = nn.Transformer(
            d_model=d,
            nhead=2,
            num_encoder_layers=1,
            num_decoder_layers=1,
            dim_feedforward=24,
            dropout=0.0,
        )
        self.generator = nn.Linear(d, vocab)
        self.emb = nn.Embedding(vocab, d)
        self.pe = PositionalEncoding(d, dropout=0.0)
        self.d = d

    def embed(self, tokens):
        return self.pe(self.emb(tokens.long()) * math.sqrt(self.d))

    def forward(
        self, src, tgt, src_mask, tgt_mask, src_pad, tgt_pad, memory_pad: torch.Tensor | None
    ):
        outs = self.transformer(
            self.embed(src), self.embed(tgt), src_mask, tgt_mask, None, src_pad, tgt_pad, memory_pad
        )
        return self.generator(outs)

    def encode(self, src, src_mask):
        return self.transformer.encoder(self.embed(src), src_mask)

    def decode(self, tgt, memory, tgt_mask):
        return self.transformer.decoder(self.embed(tgt), memory, tgt_mask)


def generate_square_subsequent_mask(sz):
    mask = (torch.triu(torch.ones((sz, sz))) == 1).transpose(0, 1)
    return mask.float().masked_fill(mask == 0, float("-inf")).masked_fill(mask == 1, 0.0)


def create_mask(src, tgt):
    tgt_mask = generate_square_subsequent_mask(tgt.shape[0])
    src_mask = torch.zeros((src.shape[0], src.shape[0])).type(torch.bool)
    return src_mask, tgt_mask, (src == PAD).transpose(0, 1), (tgt == PAD).transpose(0, 1)


rng = np.random.RandomState(0)
rows = [torch.tensor([BOS, *rng.randint(3, 9, n), EOS]) for n in (3, 5, 4, 6)]
batch = nn.utils.rnn.pad_sequence(rows, padding_value=PAD)
model = init(Seq2SeqTransformer(9))
for p in model.parameters():
    if p.dim() > 1:
        p.data.mul_(2)
loss_fn = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.05)
optimizer = optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
schedule = optim.lr_scheduler.LambdaLR(
    optimizer, lambda s: 16**-0.5 * min((s + 1) ** -0.5, (s + 1) * 4**-1.5) * 0.2
)
for epoch in range(6):
    model.train()
    tgt_input, tgt_out = batch[:-1, :], batch[1:, :]
    src_mask, tgt_mask, src_pad, tgt_pad = create_mask(batch, tgt_input)
    logits = model(
        batch,
        tgt_input,
        src_mask,
        tgt_mask.bool() if False else tgt_mask,
        src_pad,
        tgt_pad,
        src_pad,
    )
    optimizer.zero_grad()
    loss = loss_fn(logits.reshape(-1, logits.shape[-1]), tgt_out.reshape(-1))
    loss.backward()
    optimizer.step()
    schedule.step()
    print(epoch, f"{loss.item():.4f} {grad_norm(model):.4f} {schedule.get_last_lr()[0]:.5f}")
model.eval()
src = rows[0].view(-1, 1)
memory = model.encode(src, torch.zeros(src.shape[0], src.shape[0]).bool())
ys = torch.ones(1, 1).fill_(BOS).type(torch.long)
for i in range(5):
    out = model.decode(
        ys, memory, generate_square_subsequent_mask(ys.size(0)).type(torch.float)
    ).transpose(0, 1)
    prob = model.generator(out[:, -1])
    _, next_word = torch.max(prob, dim=1)
    ys = torch.cat([ys, torch.ones(1, 1).type_as(src.data).fill_(next_word.item())], dim=0)
    print(i, f"{prob.logsumexp(1).item():.4f}", ys.shape)
