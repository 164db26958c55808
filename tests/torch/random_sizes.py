"""Random programs of one structure at several sizes, among them 0, 1 and sizes that are equal by
accident, for PyTorch and for tilegrad: each size after the first meets plans made for another.

python -m tests.torch.random_sizes --seeds 0 1000     programs that differ

PyTorch is the oracle in float64; its own float32 says how far rounding takes a result.
"""

from __future__ import annotations

import argparse
import random
import traceback
import warnings
from typing import Any, NamedTuple

import numpy as np

import tilegrad.torch as ours
from tests.fresh import forget
from tilegrad import Context
from tilegrad.base.errors import InternalError, TilegradError

__all__ = ["Program", "difference_of", "made"]

Array = np.ndarray[Any, Any]

# Of `x` and `y`, tensors made before. `A`, `B` and `C` are sizes, `k`, `s` and `d` the numbers of a
# filter window; `p` draws a parameter, `i` positions of an axis, `n` gives `x` a number of axes.
VIEWS = (
    "x.transpose(0, -1)", "x.reshape(-1)", "x.flatten(1)", "x[1:]", "x[::2]", "x[..., ::s]",
    "x[..., :-1]", "x[..., d:]", "x.flip(0)", "x.flip(-1)", "x.unsqueeze(1)", "x[:, None]",
    "x.expand(2, *x.shape)", "x.narrow(-1, 0, x.shape[-1] // 2)", "x.unfold(-1, k, s)",
    "x.diagonal(0, 0, -1)", "x.chunk(3, -1)[0]", "x.squeeze()", "x[0]", "x[-1]", "x.movedim(0, -1)",
    "x.view(x.shape[0], -1)", "x.split(k, -1)[-1]", "x.flip(0)[::s]", "x[:, ::2].flip(-1)[..., 1:]",
    "x.unflatten(0, (1, -1))", "x.T", "x.mT", "x.tril()", "n(x, 2).t()",
)  # fmt: skip
MAPS = (
    "x * 2", "x.tanh()", "x.relu()", "x.sin() + x", "F.gelu(x)", "x + y", "x * y", "x - y.mean()",
    "x * p(*x.shape)", "x + p(x.shape[-1])", "x / (y.abs() + 1)", "torch.where(x > 0, x, y.mean())",
    "torch.maximum(x, y)", "x.clamp(-1, 1)", "x.roll(2, -1)", "x.repeat_interleave(2, 0)",
    "x.tile(2)", "x.repeat(2, *[1] * x.dim())", "x.cumsum(-1)", "x.cumsum(0)", "x.sort(-1)[0]",
    "x.softmax(-1)", "x.softmax(0)", "x.log_softmax(-1)", "x.contiguous()", "x.cummax(-1)[0]",
    "torch.cat([x, x * 2], -1)", "torch.cat([x, y], 0)", "torch.stack([x, x.sin()], 1)",
    "torch.cat([x[1:], x[:1]])", "F.pad(x, (1, k))", "F.pad(x, (-1, 2), value=0.5)", "x.diff()",
    "F.pad(n(x, 3), (d, s), mode='replicate')", "F.pad(n(x, 4), (d, 1, s, 0), mode='reflect')",
    "F.pad(n(x, 3), (1, d), mode='circular')", "x.masked_fill(x > 0.5, 0.25)", "x.logcumsumexp(-1)",
    "x[:, :1] * x", "x.outer(y)", "torch.kron(n(x, 2), p(2, s))", "x.triu(1)", "x * p(1)",
    "torch.meshgrid(x.flatten(), y.flatten(), indexing='ij')[1]", "x * torch.arange(x.shape[-1])",
    "x + torch.linspace(0, 1, x.shape[0])[:, None]", "torch.cdist(n(x, 2), p(A, n(x, 2).shape[1]))",
    "x.topk(min(k, x.shape[-1]))[0]", "torch.lerp(x, y, 0.3)", "x.new_full((A, B), 0.5) + x.sum()",
)  # fmt: skip
REDUCTIONS = (
    "x.sum(-1)", "x.sum(0)", "x.sum(0, keepdim=True) + x", "x.mean(-1)", "x.mean((0, -1))",
    "x.amax(-1)", "x.amax(0)", "x.amin(-1, keepdim=True) * x", "x.max(0)[0]", "x.min(-1)[0]",
    "x.var(-1)", "x.std(0, correction=0)", "x.logsumexp(-1)", "x.logsumexp(0)", "x.norm()",
    "x.norm(dim=-1)", "x.tanh().prod(-1)", "x.sum()", "x - x.mean(-1, keepdim=True)",
    "x.median(-1)[0]", "x.kthvalue(1, -1)[0]", "x.square().sum((0, -1)).sqrt()",
    "x.quantile(0.5, dim=-1)", "F.max_pool1d(n(x, 3), k, s)", "F.avg_pool1d(n(x, 3), k, s, k // 2)",
    "x.aminmax(dim=-1)[1]", "F.max_pool2d(n(x, 4), k, s)", "F.avg_pool2d(n(x, 4), (k, s))",
    "x.unfold(-1, k, 1).mean(-1)", "F.adaptive_avg_pool1d(n(x, 3), k)",
    "F.adaptive_max_pool2d(n(x, 4), (s, d))", "x.trace()",
    "F.max_pool2d(n(x, 4), 2, padding=1)", "F.lp_pool1d(n(x, 3).abs() + 0.1, 2, k)",
)  # fmt: skip
PRODUCTS = (
    "x @ p(x.shape[-1], A)", "p(B, x.shape[-2]) @ x", "n(x, 2).T @ p(n(x, 2).shape[0], C)",
    "n(x, 3) @ n(x, 3).mT", "F.linear(x, p(B, x.shape[-1]), p(B))", "x @ p(x.shape[-1])",
    "torch.einsum('...i,ji->...j', x, p(A, x.shape[-1]))", "x @ x.mT", "x.mT @ y",
    "torch.einsum('bi,bj->ij', n(x, 2), n(x, 2).sin())", "torch.bmm(n(x, 3), n(x, 3).mT.relu())",
    "torch.einsum('bij,bkj->ik', n(x, 3), n(x, 3))", "torch.tensordot(x, p(x.shape[-1], A), 1)",
    "F.conv1d(n(x, 3), p(A, n(x, 3).shape[1], k), p(A), s, d)",
    "F.conv1d(n(x, 3), p(n(x, 3).shape[1], 1, k), None, s, d, 1, n(x, 3).shape[1])",
    "F.conv2d(n(x, 4), p(B, n(x, 4).shape[1], k, s), None, s, d)",
    "F.conv2d(n(x, 4), p(C, n(x, 4).shape[1], k, k), p(C), 1, k // 2)",
    "F.conv2d(n(x, 4), p(C, n(x, 4).shape[1], 1, 1), p(C))",
    "F.conv2d(n(x, 4), p(A, n(x, 4).shape[1], 2, k), None, 1, d, d)",
    "F.conv2d(n(x, 4), p(n(x, 4).shape[1] * 2, 1, k, k), None, 1, 1, 1, n(x, 4).shape[1])",
    "F.conv_transpose1d(n(x, 3), p(n(x, 3).shape[1], A, k), None, s)",
    "F.conv_transpose2d(n(x, 4), p(n(x, 4).shape[1], C, k, s), p(C), s, k // 2, s - 1)",
    "F.conv3d(n(x, 4)[None], p(A, n(x, 4).shape[0], 1, k, s), None, d)",
    "F.scaled_dot_product_attention(n(x, 3), n(x, 3).sin(), n(x, 3))",
    "F.scaled_dot_product_attention(n(x, 4), n(x, 4), n(x, 4), is_causal=True)",
)  # fmt: skip
PICKS = (
    "x[i(A, x.shape[0])]", "x[..., i(k, x.shape[-1])]", "x.index_select(-1, i(B, x.shape[-1]))",
    "x[i(A, x.shape[0]), i(A, x.shape[1])]", "x[x > 0.1]", "F.embedding(i(A, x.shape[0]), n(x, 2))",
    "x.gather(-1, i(x.numel(), x.shape[-1]).reshape(x.shape))", "x.take(i(B, x.numel()))",
    "x.index_add(0, i(A, x.shape[0]), p(A, *x.shape[1:]))", "x.argsort(-1, stable=True) * x",
    "x.argmax(-1) * 1.0", "p(k, *x.shape[1:]).index_add(0, i(x.shape[0], k), x)",
    "x.take_along_dim(x.argmax(-1)[..., None], -1)",
    "x.scatter_add(-1, i(x.numel(), x.shape[-1]).reshape(x.shape), x.sin())",
    "x.index_put((i(A, x.shape[0]),), p(A, *x.shape[1:]), accumulate=True)", "x[:, [0, -1]]",
    "F.one_hot(i(A, B), B) @ p(B, C)", "x[i(A, x.shape[0]), ..., 0]", "x[[0, -1, 0]]",
    "x.scatter_reduce(0, i(x.numel(), x.shape[0]).reshape(x.shape), x * 2, 'amax')",
    "F.interpolate(n(x, 4), scale_factor=2)", "F.interpolate(n(x, 3), size=A, mode='linear')",
    "F.interpolate(n(x, 4), size=(B, C), mode='bilinear')", "x[x.amax(-1) > 0]",
    "F.fold(F.unfold(n(x, 4), k, padding=d), n(x, 4).shape[-2:], k, padding=d)",
    "torch.searchsorted(x.flatten().sort()[0].detach(), y.detach()) + y",
    "x.nonzero().sum(0) * 0.1",
)  # fmt: skip
NORMS = (
    "F.layer_norm(x, x.shape[-1:], p(x.shape[-1]), p(x.shape[-1]))", "F.normalize(x, dim=-1)",
    "F.rms_norm(x, x.shape[-1:])", "F.batch_norm(x, None, None, training=True)",
    "F.group_norm(n(x, 3), 1, p(n(x, 3).shape[1]), p(n(x, 3).shape[1]))",
    "F.instance_norm(n(x, 3))", "F.group_norm(n(x, 4), n(x, 4).shape[1])",
    "F.batch_norm(n(x, 4), p(n(x, 4).shape[1]).detach(), p(n(x, 4).shape[1]).detach() ** 2)",
    "F.local_response_norm(n(x, 4), 3)", "F.mse_loss(x, x.detach().sin())",
    "F.cross_entropy(n(x, 2), i(n(x, 2).shape[0], n(x, 2).shape[1]))",
    "F.binary_cross_entropy_with_logits(x, x.detach().sigmoid())", "F.smooth_l1_loss(x, y.mean())",
    "F.nll_loss(n(x, 2).log_softmax(1), i(n(x, 2).shape[0], n(x, 2).shape[1]), reduction='none')",
    "F.cosine_similarity(x, p(*x.shape), dim=-1)", "F.huber_loss(x, p(*x.shape), reduction='none')",
    "F.kl_div(x.log_softmax(-1), p(*x.shape).softmax(-1), reduction='batchmean')",
)  # fmt: skip
WRITES = (
    "x = x * 1; x[1:] += x[:-1].clone()", "x = x * 1; x[..., 0] = 2", "x = x.clone(); x.relu_()",
    "x = x * 1; x[::2].mul_(0.5)", "x = x * 1; x[..., 1:] = x[..., :-1].clone()",
    "x = x.clone(); x[i(A, x.shape[0])] = 0.5", "x = x * 1; x.T[0] = 1.5",
    "x = x * 1; x[0] *= y.mean()", "x = x.clone(); x.view(-1)[::s].add_(1)",
    "x = x * 1; x[x > 0.5] = 0.5", "x = x * 1; x.masked_fill_(x < 0, 0.1)",
    "x = torch.zeros(x.shape, dtype=x.dtype); x[1:] = y.sum()",
    "x = x * 1; x.diagonal(0, 0, -1).add_(1)",
    "x = x * 1; v = x[1:]; v.mul_(3); x[..., :1].add_(1)",
    "x = x.new_zeros(x.shape[0] + 2, *x.shape[1:]).index_copy(0, torch.arange(x.shape[0]) + 1, x)",
    "b = x.new_zeros(A + x.shape[0], *x.shape[1:]); b[:x.shape[0]] = x; b[x.shape[0]:] = 2; x = b",
    "x = x * 1; x.flip(0)[:1].add_(1); x.unbind(-1)[0].zero_()",
    "x = x * 1; x.swapaxes(0, -1).mul_(2)",
    "x = x.clone(); x.index_put_((i(A, x.shape[0]),), y.mean(), accumulate=True)",
    "x = x.detach().clone(); x.add_(1); x[:1].copy_(x[-1:] * 2)",
)  # fmt: skip
_KINDS = {VIEWS: 26, MAPS: 24, REDUCTIONS: 14, PRODUCTS: 12, PICKS: 10, NORMS: 8, WRITES: 8}
_SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 23, 31, 32, 33, 37, 48, 64, 65)
_REFUSED = (
    RuntimeError, IndexError, ValueError, TypeError, AttributeError, ZeroDivisionError,
)  # fmt: skip
_MOST_ELEMENTS = 40_000


class Line(NamedTuple):
    """A line, of the tensors at two positions of the list that a program grows."""

    text: str
    first: int
    second: int


class Program(NamedTuple):
    """Lines that run at each of the sizes, one set of sizes after another in one process."""

    seed: int
    rank: int
    is_trained: bool
    is_short: bool
    numbers: tuple[int, int, int]
    lines: tuple[Line, ...]
    read: tuple[int, ...]
    sizes: tuple[tuple[int, int, int], ...]

    def text(self) -> str:
        """The program in a few lines."""
        lines = [f"  {number}: {line}" for number, line in enumerate(self.lines, 1)]
        return "\n".join([str(self._replace(lines=())), *lines])


def _drawn(seed: int) -> Program:
    """A program as drawn: PyTorch may refuse lines of it."""
    chance = random.Random(seed)
    lines = []
    for number in range(chance.randint(1, 6)):
        (kind,) = chance.choices(list(_KINDS), list(_KINDS.values()))
        # Mostly chains: a line takes what the one before it made.
        first = number if chance.random() < 0.75 else chance.randint(0, number)
        lines.append(Line(chance.choice(kind), first, chance.randint(0, number)))
    return Program(
        seed,
        chance.randint(1, 4),
        chance.random() < 0.6,
        chance.random() < 0.5,
        (chance.choice([1, 2, 3, 5]), chance.choice([1, 2, 3]), chance.choice([0, 1, 2])),
        tuple(lines),
        tuple(place for place in range(1, len(lines)) if chance.random() < 0.15),
        tuple(_sizes(chance) for _ in range(5)),
    )


def _sizes(chance: random.Random) -> tuple[int, int, int]:
    """Three sizes; often two of them are equal."""
    drawn = [chance.choice(_SIZES[1:] if chance.random() < 0.8 else _SIZES) for _ in range(3)]
    if chance.random() < 0.4:
        drawn[chance.randrange(3)] = drawn[chance.randrange(3)]
    return drawn[0], drawn[1], drawn[2]


class _Run:
    """A program at one set of sizes, in one library; `reached` counts its lines."""

    def __init__(self, torch: Any, dtype: Any, program: Program, sizes: tuple[int, int, int]):
        self.torch, self.dtype, self.program, self.sizes = torch, dtype, program, sizes
        self.draw = np.random.default_rng([program.seed, *sizes])
        self.parameters: list[Any] = []
        self.tensors: list[Any] = []
        self.reached = 0

    def parameter(self, *shape: int) -> Any:
        if len(shape) > 2 and 0 in shape[1:]:
            # PyTorch's convolution gives no number of channels where it takes none.
            raise ValueError("no element of a filter")
        values = self.draw.normal(size=shape).astype(np.float32)
        made = self.torch.from_numpy(values).to(self.dtype)
        self.parameters.append(made.requires_grad_(self.program.is_trained))
        return made

    def positions(self, count: int, size: int) -> Any:
        if count and not size:
            raise ValueError("no position of an empty axis")
        return self.torch.from_numpy(self.draw.integers(0, max(size, 1), size=count))

    def results(self) -> list[Array]:
        """What was read on the way, the gradients of the parameters, and the last tensor."""
        sizes, (k, s, d) = self.sizes, self.program.numbers
        shape = [*sizes, 2][: self.program.rank] if self.program.rank < 4 else [1, *sizes]
        names = {
            "torch": self.torch, "F": self.torch.nn.functional, "p": self.parameter,
            "i": self.positions, "n": _ranked, "A": sizes[0], "B": sizes[1], "C": sizes[2],
            "k": k, "s": s, "d": d,
        }  # fmt: skip
        tensors, found = self.tensors, []
        tensors.append(self.parameter(*shape))
        for number, line in enumerate(self.program.lines, 1):
            names |= {"x": tensors[line.first], "y": tensors[line.second]}
            exec(line.text if " = " in line.text.split("(")[0] else f"x = {line.text}", names)
            tensors.append(names["x"])
            if tensors[-1].numel() > _MOST_ELEMENTS:
                raise ValueError("too large")
            if number in self.program.read:
                found.append(_array(tensors[-1].sum()))
            self.reached = number
        last = tensors[-1]
        if self.program.is_trained and last.requires_grad and last.numel():
            (last * last).mean().backward()
            grads = [(each.shape, each.grad) for each in self.parameters]
            found += [np.zeros(tuple(at)) if g is None else _array(g) for at, g in grads]
        return [*found, _array(last)]


def _ranked(x: Any, axes: int) -> Any:
    """`x` with a number of axes: the first ones as one, or new ones in front."""
    if x.dim() > axes:
        return x.flatten(0, x.dim() - axes)
    return x.reshape([1] * (axes - x.dim()) + list(x.shape))


def _array(x: Any) -> Array:
    made: Array = np.asarray(x.detach().numpy(), dtype=np.float64)
    return made


def made(torch: Any, seed: int) -> Program:
    """The program of a seed, without lines that PyTorch refuses at the first sizes."""
    program = _drawn(seed)
    while True:
        run = _Run(torch, torch.float64, program, program.sizes[0])
        try:
            run.results()
        except _REFUSED:
            at = run.reached
            if at == len(program.lines):
                return program._replace(is_trained=False)
            refused = Line("x * 1", program.lines[at].first, program.lines[at].second)
            lines = (*program.lines[:at], refused, *program.lines[at + 1 :])
            if program.lines[at].text == refused.text:
                # The first sizes are too large by themselves.
                return program._replace(lines=())
            program = program._replace(lines=lines)
        else:
            return program


def _expected(
    torch: Any, program: Program, sizes: tuple[int, int, int]
) -> list[tuple[Array, Array]] | None:
    """PyTorch's results and how far each may be missed; None where it refuses these sizes."""
    run = _Run(torch, torch.float64, program, sizes)
    try:
        exact = run.results()
        rounded = _Run(torch, torch.float32, program, sizes).results()
    except _REFUSED:
        return None
    with np.errstate(all="ignore"):
        # Of a sum of all elements, even if they cancel.
        least = 1e-6 + 1e-7 * max(float(np.nansum(np.abs(_array(each)))) for each in run.tensors)
        return [(x, _allowed(x, other, least)) for x, other in zip(exact, rounded, strict=True)]


def _allowed(exact: Array, rounded: Array, least: float) -> Array:
    """A share of the largest value and of the value, or a multiple of what rounding costs."""
    if exact.shape != rounded.shape or not exact.size:
        return np.full(exact.shape, np.inf)
    finite = np.abs(exact[np.isfinite(exact) & np.isfinite(rounded)])
    error = np.abs(rounded - exact)
    share = 1e-4 * (finite.max() if finite.size else 0.0) + 1e-3 * np.abs(exact)
    return least + share + 50 * np.nanmax(error, initial=0.0, where=error == error)


def difference_of(torch: Any, program: Program) -> str | None:
    """How tilegrad's results differ from PyTorch's at one of the sizes, if they do, in a process
    that knows nothing of the program.
    """
    forget()
    with Context(SHORT=int(program.is_short)):
        for sizes in program.sizes:
            expected = _expected(torch, program, sizes)
            if expected is None:
                continue
            try:
                found = _Run(ours, ours.float32, program, sizes).results()
            except InternalError as error:
                return f"{sizes}: {error}"
            except TilegradError:
                # What tilegrad refuses aloud is no difference.
                continue
            for number, (mine, (theirs, allowed)) in enumerate(zip(found, expected, strict=True)):
                differs = _difference(mine, theirs, allowed)
                if differs is not None:
                    return f"{sizes}: result {number}: {differs}"
    return None


def _difference(mine: Array, theirs: Array, allowed: Array) -> str | None:
    """Where two results differ by more than is allowed; what is not finite is not compared."""
    if mine.shape != theirs.shape:
        return f"shape {mine.shape} for {theirs.shape}"
    with np.errstate(all="ignore"):
        is_wrong = ~(np.abs(mine - theirs) <= allowed) & np.isfinite(theirs)
    if not is_wrong.any():
        return None
    at = tuple(map(int, np.unravel_index(int(is_wrong.argmax()), is_wrong.shape)))
    return f"{mine[at]} for {theirs[at]} at {at}"


def main() -> int:
    import torch

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 1000), help="from, and below")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = 0
    for seed in range(*given.seeds):
        if not seed % 100:
            print(f"seed {seed}", flush=True)
        program = made(torch, seed)
        try:
            difference = difference_of(torch, program)
        except Exception:
            difference = traceback.format_exc()
        if difference is not None:
            found += 1
            print(f"--- seed {seed}: {difference[:1500]}\n{program.text()}", flush=True)
    print(f"{found} of {len(range(*given.seeds))} programs differ")
    return int(found > 0)


if __name__ == "__main__":
    raise SystemExit(main())
