"""GPT-2, with the names of the published weights.

    model = GPT2()                                    # the small one, 124 million weights
    load_published(model, safe_load("model.safetensors"))
    scores = model(tokens)                            # (N, T) to (N, T, 50257)
    for token in generate(model, prompt, 100): ...

Radford et al., "Language Models are Unsupervised Multitask Learners" (2019).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilegrad import Tensor, Variable, jit, nn
from tilegrad.nn.state import load_state_dict

from .transformer import Layer

# Published as (in, out).
TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


class GPT2:
    """A decoder whose last layer is its embedding; by default the small published one."""

    def __init__(
        self,
        layers: int = 12,
        heads: int = 12,
        width: int = 768,
        context: int = 1024,
        tokens: int = 50257,
    ):
        self.heads, self.width, self.context = heads, width, context
        self.wte, self.wpe = nn.Embedding(tokens, width), nn.Embedding(context, width)
        # The embeddings are the last layer too, whose results are to be of size 1.
        for table in (self.wte, self.wpe):
            table.weight = Tensor.normal(*table.weight.shape, std=0.02, requires_grad=True)
        self.h = [Layer(width, heads, gelu="tanh") for _ in range(layers)]
        self.ln_f = nn.LayerNorm(width)

    def __call__(self, tokens: Tensor) -> Tensor:
        """Scores of the next token after each place."""
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for layer in self.h:
            x = layer(x, _causal)
        return self.scores(x)

    def scores(self, x: Tensor) -> Tensor:
        return self.ln_f(x).linear(self.wte.weight.T)


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q.scaled_dot_product_attention(k, v, is_causal=True)


class Decoder:
    """A model with the keys and values of the places it has seen, `room` at most."""

    def __init__(self, model: GPT2, batch: int = 1, room: int = 0):
        self.model, self.room = model, room or model.context
        shape = batch, model.heads, self.room, model.width // model.heads
        self.keys = [Tensor.zeros(*shape).contiguous().realize() for _ in model.h]
        self.values = [Tensor.zeros(*shape).contiguous().realize() for _ in model.h]
        self._place = Variable("place", 0, self.room - 1)
        self._next = jit(self._step)

    def prefill(self, tokens: Tensor) -> Tensor:
        """Take the first tokens, (N, T); scores (N, tokens) of the next one."""
        return self._seen(tokens, 0)

    def step(self, token: Tensor, place: int) -> Tensor:
        """Take one more token, (N, 1), that stands at `place`; scores of the next one."""
        return self._next(token, self._place.bind(place))

    def _step(self, token: Tensor, place: Any) -> Tensor:
        return self._seen(token, place)

    def _seen(self, tokens: Tensor, start: Any) -> Tensor:
        model, end = self.model, start + tokens.shape[1]
        x = model.wte(tokens) + model.wpe.weight[start:end]
        for keys, values, layer in zip(self.keys, self.values, model.h):

            def attend(
                q: Tensor, k: Tensor, v: Tensor, keys: Tensor = keys, values: Tensor = values
            ) -> Tensor:
                keys[:, :, start:end].assign(k)
                values[:, :, start:end].assign(v)
                return q.scaled_dot_product_attention(
                    keys[:, :, :end], values[:, :, :end], is_causal=tokens.shape[1] > 1
                )

            x = layer(x, attend)
        return model.scores(x[:, -1].contiguous()).realize()


def generate(model: GPT2, prompt: Sequence[int], count: int) -> Iterator[int]:
    """The likeliest continuation of `prompt`, token by token."""
    decoder = Decoder(model)
    scores = decoder.prefill(Tensor([list(prompt)], dtype="int32"))
    for place in range(len(prompt), len(prompt) + count):
        token = int(scores.argmax(-1).item())
        yield token
        scores = decoder.step(Tensor([[token]], dtype="int32"), place)


def load_published(model: GPT2, state: dict[str, Tensor]) -> None:
    """Fill the model from the published file's tensors."""
    found = {}
    for name, tensor in state.items():
        name = name.removeprefix("transformer.")
        # The causal mask is no weight, and the head is the embedding.
        if name.endswith((".attn.bias", ".attn.masked_bias")) or name == "lm_head.weight":
            continue
        found[name] = tensor.T if name.endswith(TRANSPOSED) else tensor
    load_state_dict(model, found)
