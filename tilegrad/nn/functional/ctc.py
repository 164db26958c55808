"""Connectionist temporal classification: a loss for sequences whose alignment is unknown.

The probabilities of all ways to spread the labels over the time steps, with blanks between, are
summed by a recursion over time (Graves et al., "Connectionist Temporal Classification", 2006,
section 4.1), in logarithms:

    a_t(s) = log(exp a_(t-1)(s) + exp a_(t-1)(s - 1) + exp a_(t-1)(s - 2)) + log p_t(l_s)

where l is blank, label, blank, label, ..., blank, and the last term counts only where l_s is a
label other than l_(s - 2). Its derivative is that of the recursion.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.dtype import dtypes
from tilegrad.base.dtype_promotion import sum_dtype
from tilegrad.base.errors import ConfigError, DTypeError, ShapeError
from tilegrad.nn.functional.loss_checks import reduced
from tilegrad.tensor.calls.number_tables import number_table
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import check_tensors, describe
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.loops import scan
from tilegrad.tensor.storage.host_readable import known
from tilegrad.tensor.tensor import Tensor

__all__ = ["ctc_loss"]

# The logarithm of nothing: finite, so that differences of it are; the sum of 1e7 of them is, too.
_NOTHING = -1e30

Lengths = Tensor | Sequence[int]


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Connectionist temporal classification: the negated log-probability of label sequences, summed
    over all alignments (Graves et al. 2006).

    Args:
        log_probs: logarithms of probabilities, (T, N, C), or (T, C) of one sequence.
        targets: labels, integers (N, S), the first `target_lengths` of each row, or all sequences
            one after another (the sum of `target_lengths`,).
        input_lengths: how many steps of each sequence count, (N,).
        target_lengths: how many labels each sequence has, (N,).
        blank: the class that stands for no label.
        reduction: "none" for (N,), "sum", or "mean": of the losses over the lengths of the targets.
        zero_infinity: 0, with a gradient of 0, where the steps are too few for the labels;
            otherwise the loss is infinite.

    Returns a float number, or (N,) for "none".

    Raises ShapeError for shapes or lengths that do not fit, DTypeError for labels that are no
    integers, ConfigError for a blank that is no class.

    >>> uniform = Tensor.zeros(3, 1, 2).log_softmax(-1)  # "a", "-a", "a-", "aa", ... in 3 steps
    >>> loss = nn.functional.ctc_loss(uniform, Tensor([[1]]), [3], [1], reduction="sum")
    >>> round((-loss).exp().item() * 8, 4)  # of the 8 sequences 6 read "a"
    6.0
    """
    check_tensors("ctc_loss", log_probs, targets)
    if log_probs.ndim == 2:
        loss = ctc_loss(
            log_probs.unsqueeze(1),
            targets.reshape(1, -1),
            _as_lengths(input_lengths, 1, log_probs),
            _as_lengths(target_lengths, 1, log_probs),
            blank,
            reduction,
            zero_infinity,
        )
        return loss.reshape(())
    _check_operands(log_probs, targets, blank)
    steps, count, _ = log_probs._sizes
    _check_lengths("input_lengths", input_lengths, steps)
    rows = _in_rows(targets.cast(dtypes.int32), target_lengths, count)
    _check_lengths("target_lengths", target_lengths, rows._sizes[1])
    times = _as_lengths(input_lengths, count, log_probs)
    sizes = _as_lengths(target_lengths, count, log_probs)
    wide = log_probs.cast(sum_dtype(log_probs.dtype))
    total = _log_likelihood(wide, rows, times, sizes, blank)
    is_possible = total > _NOTHING / 2
    loss = is_possible.where(-total, 0.0 if zero_infinity else float("inf")).cast(log_probs.dtype)
    if reduction == "mean":
        loss = loss / sizes.maximum(1).cast(loss.dtype)
    return reduced("ctc_loss", loss, reduction)


def _check_operands(log_probs: Tensor, targets: Tensor, blank: int) -> None:
    if log_probs.ndim != 3:
        raise ShapeError(
            f"ctc_loss: the log-probabilities have shape {show_shape(log_probs.shape)}",
            rule="(T, N, C), or (T, C)",
            input=describe(log_probs.uop),
        )
    classes = log_probs._sizes[2]
    if not 0 <= blank < classes:
        raise ConfigError(f"ctc_loss: blank {blank} is none of {classes} classes")
    if targets.dtype.is_float:
        raise DTypeError(
            f"ctc_loss: labels must be integers, not {targets.dtype.name}",
            targets=describe(targets.uop),
        )


@templated
def _log_likelihood(
    log_probs: Tensor, targets: Tensor, times: Tensor, sizes: Tensor, blank: int
) -> Tensor:
    """(N,): the logarithm of the summed probability; about `_NOTHING` where there is none."""
    steps, count, _ = log_probs._sizes
    labels = targets._sizes[1]
    blanks = targets.const_like(blank).unsqueeze(-1)
    line = blanks.cat(targets.unsqueeze(-1), dim=-1).reshape(count, 2 * labels)
    line = line.cat(targets[:, :1] * 0 + blank if labels else _one_blank(targets, blank), dim=-1)
    length = 2 * labels + 1
    scores = log_probs.maximum(_NOTHING).gather(2, line.unsqueeze(0).expand(steps, count, length))
    can_skip = (line.ne(blank) & line.ne(_behind(line, 2, blank))) if labels else line.ne(blank)
    position = type(log_probs).arange(length, device=log_probs.device)
    first = (position < (2 if labels else 1)).where(scores[0], _NOTHING)

    def step(alpha: Tensor, now: tuple[Tensor, Tensor]) -> tuple[Tensor, None]:
        score, time = now
        one = _behind(alpha, 1, _NOTHING)
        two = can_skip.where(_behind(alpha, 2, _NOTHING), _NOTHING)
        most = alpha.maximum(one).maximum(two).detach()
        total = (alpha - most).exp() + (one - most).exp() + (two - most).exp()
        moved = total.log() + most + score
        return (time < times).unsqueeze(-1).where(moved, alpha), None

    alpha = first
    if steps > 1:
        clock = type(log_probs).arange(1, steps, device=log_probs.device)
        alpha, _ = scan(step, first, (scores[1:], clock))
    last = (sizes * 2).unsqueeze(-1)
    ends = [position.eq(last), position.eq(last - 1)]
    values = [end.where(alpha, _NOTHING).amax(-1) for end in ends]
    most = values[0].maximum(values[1]).detach()
    return ((values[0] - most).exp() + (values[1] - most).exp()).log() + most


def _one_blank(targets: Tensor, blank: int) -> Tensor:
    return type(targets).full(
        (targets._sizes[0], 1), blank, dtype=targets.dtype, device=targets.device
    )


def _behind(x: Tensor, distance: int, value: float) -> Tensor:
    """`x` with its last axis moved on by `distance`; `value` comes in."""
    size = x._sizes[-1]
    return x.pad((distance, 0), value=value).narrow(-1, 0, size)


def _as_lengths(lengths: Lengths, count: int, like: Tensor) -> Tensor:
    tensor: Tensor = (
        lengths if isinstance(lengths, Tensor) else number_table(like, list(lengths), dtypes.int32)
    )
    if tensor.numel() != count:
        raise ShapeError(
            f"ctc_loss: {tensor.numel()} lengths for {count} sequences",
            lengths=show_shape(tensor.shape),
        )
    return tensor.reshape(count).cast(dtypes.int32).to(like.device)


def _check_lengths(name: str, lengths: Lengths, limit: int) -> None:
    """Raise ShapeError for a length that is known and out of range: one that is still to be
    computed is not waited for.
    """
    if isinstance(lengths, Tensor):
        values = known(lengths)
        if values is None or values.is_inside(0, limit):
            return
        lengths = values.array().reshape(-1).tolist()
    wrong = [length for length in lengths if not 0 <= length <= limit]
    if wrong:
        raise ShapeError(f"ctc_loss: {name} {wrong[0]} is not in 0..{limit}")


def _in_rows(targets: Tensor, lengths: Lengths, count: int) -> Tensor:
    """Targets as (N, S), those of an axis alone cut into rows."""
    if targets.ndim == 2 and targets.shape[0] == count:
        return targets
    sizes = lengths.tolist() if isinstance(lengths, Tensor) else list(lengths)
    if targets.ndim != 1 or sum(sizes) != targets.shape[0]:
        raise ShapeError(
            f"ctc_loss: targets {show_shape(targets.shape)} do not fit {count} sequences",
            rule="(N, S), or all of them one after another (sum of target_lengths,)",
            targets=describe(targets.uop),
        )
    longest = max(sizes, default=0)
    starts = [sum(sizes[:at]) for at in range(count)]
    last = max(targets._sizes[0] - 1, 0)
    index = [[min(start + position, last) for position in range(longest)] for start in starts]
    if not longest or not targets._sizes[0]:
        return Tensor.zeros(count, 0, dtype=targets.dtype, device=targets.device)
    return targets[Tensor(index, dtype=dtypes.int32, device=targets.device)]
