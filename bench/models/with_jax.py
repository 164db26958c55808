"""The rows as a user of JAX writes them: pure functions, compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from models import nets
from models.inputs import some
from models.library import LEARNING_RATES, STEPS, Made
from models.networks import Networks

__all__ = ["Jax"]

Array = Any
_LAYOUT = ("NCHW", "OIHW", "NCHW")


class Ops:
    """The networks' operations.

    Attributes:
        running: in training, the statistics that move.
    """

    def __init__(self, training: bool = False):
        self.training = training
        self.running: dict[str, Array] = {}

    def conv(
        self, x: Array, w: Array, bias: Any, stride: int = 1, padding: int = 0, groups: int = 1
    ) -> Array:
        edges = [(padding, padding)] * 2
        found = lax.conv_general_dilated(
            x, w, (stride, stride), edges, dimension_numbers=_LAYOUT, feature_group_count=groups
        )
        return found if bias is None else found + bias[:, None, None]

    def batchnorm(self, x: Array, w: nets.Weights, name: str) -> Array:
        mean, var = w[f"{name}.running_mean"], w[f"{name}.running_var"]
        if self.training:
            old = mean, var
            mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
            count = x.size // x.shape[1]
            self.running[f"{name}.running_mean"] = 0.9 * old[0] + 0.1 * mean
            self.running[f"{name}.running_var"] = 0.9 * old[1] + 0.1 * var * count / (count - 1)
        scale = w[f"{name}.weight"] * lax.rsqrt(var + 1e-5)
        shift = w[f"{name}.bias"] - mean * scale
        return x * scale[:, None, None] + shift[:, None, None]

    relu = staticmethod(jax.nn.relu)

    def max_pool(self, x: Array, size: int, stride: int, padding: int) -> Array:
        edges = [(0, 0)] * 2 + [(padding, padding)] * 2
        return lax.reduce_window(
            x, -jnp.inf, lax.max, (1, 1, size, size), (1, 1, stride, stride), edges
        )

    def mean_of_pixels(self, x: Array) -> Array:
        return x.mean((2, 3))

    def flat(self, x: Array) -> Array:
        return x.reshape(len(x), -1)

    def linear(self, x: Array, w: Array, bias: Any) -> Array:
        found = x @ w.T
        return found if bias is None else found + bias

    def layernorm(self, x: Array, weight: Array, bias: Array) -> Array:
        return jax.nn.standardize(x, epsilon=1e-5) * weight + bias

    def gelu(self, x: Array, approximate: str) -> Array:
        return jax.nn.gelu(x, approximate=approximate == "tanh")

    def rows(self, table: Array, ids: Array) -> Array:
        return jnp.take(table, ids, axis=0)

    def first_rows(self, table: Array, count: int) -> Array:
        return table[:count]

    def row(self, table: Array, at: Array) -> Array:
        return table[at]

    def heads(self, x: Array, count: int) -> Any:
        batch, length, width = x.shape
        return x.reshape(batch, length, 3, count, width // 3 // count).transpose(2, 0, 3, 1, 4)

    def joined(self, x: Array) -> Array:
        batch, heads, length, width = x.shape
        return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * width)

    def attention(self, q: Array, k: Array, v: Array, is_causal: bool) -> Array:
        mask = jnp.tri(q.shape[2], k.shape[2], dtype=bool) if is_causal else None
        return _attention(q, k, v, mask)

    def cached_attention(
        self, q: Array, k: Array, v: Array, caches: Any, layer: int, at: Array
    ) -> Array:
        keys, values = (
            lax.dynamic_update_slice(cache, new, (0, 0, at, 0))
            for cache, new in zip(caches[layer], (k, v))
        )
        caches[layer] = keys, values
        return _attention(q, keys, values, jnp.arange(keys.shape[2]) <= at)

    def last_place(self, x: Array) -> Array:
        return x[:, -1]

    def first_place(self, x: Array) -> Array:
        return x[:, 0]

    def pixels_last(self, x: Array) -> Array:
        return x.reshape(*x.shape[:2], -1).transpose(0, 2, 1)

    def prepended(self, x: Array, first: Array) -> Array:
        return jnp.concatenate([jnp.broadcast_to(first, (len(x), *first.shape[1:])), x], 1)


def _attention(q: Array, k: Array, v: Array, mask: Any = None) -> Array:
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype("f")
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    return jax.nn.softmax(scores, -1) @ v


class Jax(Networks):
    def __init__(self, threads: int):
        """XLA takes a thread for each processor that the process may run on."""

    def _inference(self, function: Callable[..., Any], *arrays: Any) -> Made:
        given = jax.tree.map(jnp.asarray, arrays)
        compiled = jax.jit(function)

        def run() -> Any:
            return jax.block_until_ready(compiled(*given))

        def values() -> list[float]:
            found = run()
            parts = found if isinstance(found, (tuple, list)) else (found,)
            return some(
                *(np.asarray(part, None if "int" in part.dtype.name else "f") for part in parts)
            )

        return Made(run, values)

    def matmul(self, a: Any, b: Any) -> Made:
        return self._inference(jnp.matmul, a, b)

    def matmul_bfloat16(self, a: Any, b: Any) -> Made:
        return self._inference(jnp.matmul, *(jnp.asarray(each, jnp.bfloat16) for each in (a, b)))

    def matmul_int8(self, a: Any, b: Any) -> Made:
        exact = functools.partial(jnp.matmul, preferred_element_type=jnp.int32)
        return self._inference(exact, a, b)

    def convolution(self, x: Any, w: Any, stride: int, groups: int, kernel: int) -> Made:
        function = lambda x, w: Ops().conv(x, w, None, stride, kernel // 2, groups)  # noqa: E731
        return self._inference(function, x, w)

    def convolution_backward(
        self, x: Any, w: Any, g: Any, stride: int, groups: int, kernel: int
    ) -> Made:
        def function(x: Array, w: Array, g: Array) -> Any:
            forward = lambda x, w: Ops().conv(x, w, None, stride, kernel // 2, groups)  # noqa: E731
            return jax.vjp(forward, x, w)[1](g)

        return self._inference(function, x, w, g)

    def softmax(self, x: Any) -> Made:
        return self._inference(lambda x: jax.nn.softmax(x, 1), x)

    def layernorm(self, x: Any) -> Made:
        return self._inference(lambda x: jax.nn.standardize(x, 1, epsilon=1e-5), x)

    def gelu(self, x: Any) -> Made:
        return self._inference(lambda x: jax.nn.gelu(x, approximate=False), x)

    def sum(self, x: Any) -> Made:
        return self._inference(jnp.sum, x)

    def copy(self, x: Any) -> Made:
        return self._inference(jnp.copy, x)

    def transpose(self, x: Any) -> Made:
        return self._inference(jnp.transpose, x)

    def gather(self, x: Any, ids: Any) -> Made:
        return self._inference(lambda x, ids: jnp.take(x, ids, axis=0), x, ids)

    def cumsum(self, x: Any) -> Made:
        return self._inference(lambda x: jnp.cumsum(x, 1), x)

    def sort(self, x: Any) -> Made:
        places = jnp.arange(len(x), dtype=jnp.int32)
        return self._inference(lambda x, places: lax.sort_key_val(x, places), x, places)

    def topk(self, x: Any, k: int) -> Made:
        return self._inference(lambda x: tuple(lax.top_k(x, k)), x)

    def attention(self, *qkv: Any) -> Made:
        return self._inference(_attention, *qkv)

    def attention_backward(self, *arrays: Any) -> Made:
        return self._inference(lambda q, k, v, g: jax.vjp(_attention, q, k, v)[1](g), *arrays)

    def chain(self, x: Any, turned: Any, steps: int) -> Made:
        def function(x: Array, turned: Array) -> Array:
            for _ in range(steps):
                x = x @ turned
            return x

        return self._inference(function, x, turned)

    # networks

    def _network(self, w: nets.Weights, forward: Callable[..., Array], *arrays: Any) -> Made:
        weights = {name: jnp.asarray(value) for name, value in w.items()}
        return self._inference(lambda w, *given: forward(Ops(), w, *given), weights, *arrays)

    def _training(
        self, kind: str, w: nets.Weights, forward: Callable[..., Array], x: Any, y: Any
    ) -> Made:
        rate = LEARNING_RATES[kind]

        def loss_of(trained: Any, running: Any, x: Array, y: Array) -> Any:
            ops = Ops(training=True)
            scores = forward(ops, trained | running, x)
            scores = jax.nn.log_softmax(scores.reshape(-1, scores.shape[-1]))
            loss = -jnp.take_along_axis(scores, y.reshape(-1, 1), 1).mean()
            return loss, ops.running

        def moved(p: Array, g: Array, m: Array, v: Array, count: Array) -> Any:
            if kind == "resnet_step":
                m = 0.9 * m + g
                return p - rate * m, m, v
            if kind == "transformer_step":
                p = p * (1 - rate * 0.01)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            mean, square = m / (1 - 0.9**count), v / (1 - 0.999**count)
            return p - rate * mean / (jnp.sqrt(square) + 1e-8), m, v

        @functools.partial(jax.jit, donate_argnums=0)
        def step(state: Any, x: Array, y: Array) -> Any:
            p, running, m, v, count = state
            (loss, running), g = jax.value_and_grad(loss_of, has_aux=True)(p, running, x, y)
            count = count + 1
            new = {name: moved(p[name], g[name], m[name], v[name], count) for name in p}
            p, m, v = ({name: parts[i] for name, parts in new.items()} for i in range(3))
            return (p, running, m, v, count), loss

        values = {name: jnp.asarray(value) for name, value in w.items()}
        running = {name: value for name, value in values.items() if "running" in name}
        trained = {name: value for name, value in values.items() if "running" not in name}
        zeros = [{name: jnp.zeros_like(value) for name, value in trained.items()} for _ in "mv"]
        state: Any = (trained, running, *zeros, jnp.float32(0))
        given = jnp.asarray(x), jnp.asarray(y)

        def run() -> float:
            nonlocal state
            state, loss = step(state, *given)
            return float(loss)

        return Made(run, lambda: [run() for _ in range(STEPS)])

    def gpt2_decode(self, token: Any, caches: Any, config: dict[str, int], at: int) -> Made:
        """The caches are handed on from call to call."""
        sizes = nets.Transformer(**config)
        weights = {name: jnp.asarray(value) for name, value in nets.decoder_weights(sizes).items()}
        kept = [tuple(jnp.asarray(part) for part in layer) for layer in caches]

        @functools.partial(jax.jit, donate_argnums=1)
        def step(w: Any, caches: Any, token: Array, at: Array) -> Any:
            ops = Ops()
            found = nets.decoder(ops, w, sizes, token, at=at, caches=caches, last_only=True)
            return found, caches

        given = jnp.asarray(token)

        def run() -> Any:
            nonlocal kept
            scores, kept = jax.block_until_ready(step(weights, kept, given, jnp.int32(at)))
            return scores

        return Made(run, lambda: some(run()))
