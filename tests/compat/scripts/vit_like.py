# A vision transformer from Tensor parameters, as scripts write it: scaled_uniform weights, linear
# by tuples, layernorm, dropout, attention, trained with AdamW; accuracy on made-up patterns.

import numpy as np
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters


class TransformerBlock:
    def __init__(
        self, embed_dim, num_heads, ff_dim, prenorm=True, act=lambda x: x.gelu(), dropout=0.0
    ):
        assert embed_dim % num_heads == 0, "embed_dim must be divisible by num_heads"
        self.num_heads, self.head_size = num_heads, embed_dim // num_heads
        self.prenorm, self.act, self.dropout = prenorm, act, dropout
        self.query = (Tensor.scaled_uniform(embed_dim, embed_dim), Tensor.zeros(embed_dim))
        self.key = (Tensor.scaled_uniform(embed_dim, embed_dim), Tensor.zeros(embed_dim))
        self.value = (Tensor.scaled_uniform(embed_dim, embed_dim), Tensor.zeros(embed_dim))
        self.out = (Tensor.scaled_uniform(embed_dim, embed_dim), Tensor.zeros(embed_dim))
        self.ff1 = (Tensor.scaled_uniform(embed_dim, ff_dim), Tensor.zeros(ff_dim))
        self.ff2 = (Tensor.scaled_uniform(ff_dim, embed_dim), Tensor.zeros(embed_dim))
        self.ln1 = (Tensor.ones(embed_dim), Tensor.zeros(embed_dim))
        self.ln2 = (Tensor.ones(embed_dim), Tensor.zeros(embed_dim))

    def attn(self, x):
        query, key, value = [
            x.linear(*y)
            .reshape(shape=(x.shape[0], -1, self.num_heads, self.head_size))
            .transpose(1, 2)
            for y in [self.query, self.key, self.value]
        ]
        attention = Tensor.scaled_dot_product_attention(query, key, value).transpose(1, 2)
        return attention.reshape(shape=(x.shape[0], -1, self.num_heads * self.head_size)).linear(
            *self.out
        )

    def __call__(self, x):
        if self.prenorm:
            x = x + self.attn(x.layernorm().linear(*self.ln1)).dropout(self.dropout)
            x = x + self.act(x.layernorm().linear(*self.ln2).linear(*self.ff1)).linear(
                *self.ff2
            ).dropout(self.dropout)
        return x


class ViT:
    def __init__(self, layers=2, embed_dim=12, num_heads=3):
        self.embedding = (Tensor.uniform(embed_dim, 1, 4, 4), Tensor.zeros(embed_dim))
        self.embed_dim = embed_dim
        self.cls = Tensor.ones(1, 1, embed_dim)
        self.pos_embedding = Tensor.uniform(1, 5, embed_dim)
        self.tbs = [TransformerBlock(embed_dim, num_heads, embed_dim * 2) for _ in range(layers)]
        self.encoder_norm = (Tensor.uniform(embed_dim), Tensor.zeros(embed_dim))
        self.head = (Tensor.uniform(embed_dim, 4), Tensor.zeros(4))

    def patch_embed(self, x):
        x = x.conv2d(*self.embedding, stride=4)
        return x.reshape(shape=(x.shape[0], x.shape[1], -1)).permute(order=(0, 2, 1))

    def forward(self, x):
        ce = self.cls.add(Tensor.zeros(x.shape[0], 1, 1))
        pe = self.patch_embed(x)
        x = ce.cat(pe, dim=1).add(self.pos_embedding).sequential(self.tbs)
        x = x.layernorm().linear(*self.encoder_norm)
        return x[:, 0].linear(*self.head)


Tensor.manual_seed(1)
rng = np.random.default_rng(1)
patterns = rng.normal(size=(4, 1, 8, 8))
labels = rng.integers(0, 4, 32)
X = Tensor((patterns[labels] + 0.2 * rng.normal(size=(32, 1, 8, 8))).astype(np.float32))
Y = Tensor(labels.astype(np.int32))
model = ViT()
params = get_parameters(model)
assert len(params) == 2 * 16 + 2 + 2 + 4
optim = nn.optim.AdamW(params, lr=5e-3)


@TinyJit
def step():
    with Tensor.train():
        loss = model.forward(X).sparse_categorical_crossentropy(Y)
        optim.zero_grad()
        loss.backward()
        optim.step()
        return loss.realize()


losses = [step().item() for _ in range(25)]
assert losses[-1] < losses[0] / 2, losses
accuracy = (model.forward(X).argmax(-1) == Y).mean().item()
assert accuracy > 0.7, accuracy
checked = 3
