"""Base of all optimizers: groups of parameters, the learning rate as memory, the step, and the
state by PyTorch's names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

from tilegrad.base.dtype import dtypes
from tilegrad.base.dtype_promotion import promote, sum_dtype
from tilegrad.base.errors import ConfigError
from tilegrad.engine.run.run import current_recording
from tilegrad.nn.optim import step_counts
from tilegrad.nn.optim.groups import Common, ParamGroup, as_memory, option_text
from tilegrad.nn.optim.option_checks import OptimizerArguments
from tilegrad.nn.optim.saved import Saved
from tilegrad.nn.optim.together import KnownReads, advance_together, move_together
from tilegrad.tensor.handle.gradient import set_gradient
from tilegrad.tensor.results.computing import realize_first
from tilegrad.tensor.storage import memory, writes
from tilegrad.tensor.tensor import Tensor
from tilegrad.tensor.writing.undo import all_or_nothing

__all__ = ["Common", "Optimizer", "ParamGroup"]


class Optimizer(OptimizerArguments):
    """Base of optimizers: a subclass defines `_update`.

    `params` are tensors, pairs of names and tensors, or dicts {"params": tensors, "lr": ..., ...},
    whose options stand in for those of the optimizer.

    Attributes:
        params: the parameters, each once; they keep gradients from here on.
        param_groups: the same in groups with their options; `group["lr"] = 0.1` writes the tensor.
        buffers: what was passed but is not trained: integers, and what was made with
            `requires_grad=False`, such as the running statistics of a BatchNorm. They are computed
            with each step, so that no graph piles up on them.

    Args:
        params: float tensors, pairs (name, tensor), or dicts of groups.
        lr: learning rate, a number.
        common: options of all optimizers, `Common`.
        options: what the subclass takes.

    Shape: parameters of any shapes and float dtypes.

    Raises DTypeError for a parameter that is no float tensor, ConfigError for no parameters or an
    unknown option, NotImplementedError where `_update` is not defined.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = nn.optim.SGD([w], lr=0.5)
    >>> loss = w.square().sum().backward()
    >>> with Tensor.train():
    ...     optimizer.step()
    >>> w.tolist()
    [0.0]
    >>> optimizer.zero_grad()
    """

    # State of each parameter: the attribute, a list, and what PyTorch calls an element of it.
    _slots: ClassVar[tuple[tuple[str, str], ...]] = ()

    def __init__(self, params: Iterable[Any], lr: float, common: Common, /, **options: Any):
        self._in_range(lr=(lr, math.inf))
        self._check_common(common)
        self._common = common
        self.defaults = {"lr": lr, **options, "maximize": common.get("maximize", False)}
        given = self._listed(params)
        if given and all(isinstance(each, Mapping) for each in given):
            groups: list[Mapping[str, Any]] = given
        else:
            groups = [{"params": given}]
        self._param_groups: list[ParamGroup] = []
        self.params: list[Tensor] = []
        self.buffers: list[Tensor] = []
        self._group_of: list[int] = []
        # Step counts, as tensors, of parameters that have had the same steps; for each of these the
        # group, and for each parameter the position of its own. A group begins with one.
        self._counts: list[dict[str, Tensor]] = []
        self._group_of_counts: list[int] = []
        self._counts_of: list[int] = []
        for attribute, _ in self._slots:
            setattr(self, attribute, [])
        for group in groups:
            self._join(group)
        if not self.params:
            raise ConfigError(
                f"{self._name}: there is nothing to train",
                params=f"{len(self.buffers)} tensors; none is a float that may require a gradient",
                remedy="pass nn.state.get_parameters(model)",
            )

    @property
    def param_groups(self) -> list[ParamGroup]:
        """The parameters in groups with their options; `group["lr"] = 0.1` writes the tensor."""
        return self._param_groups

    def _join(self, given: Mapping[str, Any]) -> None:
        """Take in a group, with the parameters that are new, and make their state."""
        known = ["params", *self.defaults]
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise ConfigError(
                f"{self._name}: a group has unknown options: {', '.join(unknown)}",
                known=", ".join(known),
            )
        group = ParamGroup({**self.defaults, **given})
        rate = float(group["lr"])
        self._in_range(lr=(rate, math.inf))
        self._check(group)
        found = {id(tensor) for tensor in (*self.params, *self.buffers)}
        own: list[Tensor] = []
        for tensor in self._tensors(group["params"]):
            if id(tensor) not in found:
                found.add(id(tensor))
                (own if self._is_trained(tensor) else self.buffers).append(tensor)
        for tensor in own:
            self._prepare(tensor)
            state = self._first_state(tensor, group)
            for attribute, _ in self._slots:
                getattr(self, attribute).append(state.get(attribute))
        self._group_of += [len(self._param_groups)] * len(own)
        self._counts_of += [len(self._counts)] * len(own)
        self.params += own
        dtype = dtypes.float32
        for tensor in own or self.params:
            dtype = promote(dtype, tensor.dtype)
        device = own[0].device if own else None
        dict.__setitem__(group, "params", own)
        kind = type(own[0]) if own else Tensor
        dict.__setitem__(group, "lr", kind([rate], device=device, dtype=dtype, requires_grad=False))
        self._param_groups.append(group)
        step_counts.begin(self, len(self._param_groups) - 1)

    def __repr__(self) -> str:
        """The options of each group, and how much it trains.

        >>> nn.optim.SGD([Tensor.ones(2, 3)], lr=0.5, momentum=0.9)
        SGD(lr=0.5, momentum=0.9, weight_decay=0.0, nesterov=False, dampening=0.0, maximize=False, \
1 parameter of 6 elements)
        """
        return "\n".join(self._group_text(group) for group in self.param_groups)

    def _group_text(self, group: ParamGroup) -> str:
        options = {name: value for name, value in group.items() if name != "params"}
        # The rate is a tensor; its value is shown where it is known, and nothing runs for it.
        shown = [f"{name}={option_text(value)}" for name, value in options.items()]
        count = len(group["params"])
        elements = sum(tensor.max_numel() for tensor in group["params"])
        return (
            f"{type(self).__name__}({', '.join(shown)}, {count} "
            f"parameter{'' if count == 1 else 's'} of {elements} elements)"
        )

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Train more: {"params": tensors, "lr": ..., ...}, with state that begins anew.

        Raises ConfigError for unknown options, or for options out of range.

        >>> opt = nn.optim.SGD([Tensor.ones(2)], lr=0.5)
        >>> opt.add_param_group({"params": [Tensor.zeros(3)], "lr": 0.25})
        >>> [group["lr"].item() for group in opt.param_groups]
        [0.5, 0.25]
        """
        self._join(param_group)

    # what a subclass gives

    def _is_trained(self, tensor: Tensor) -> bool:
        """Whether a tensor that was passed is a parameter; it is a buffer otherwise."""
        return tensor.requires_grad is not False and tensor.dtype.is_float

    def _prepare(self, tensor: Tensor) -> None:
        """Let a tensor be a parameter from here on."""
        self._ask_gradient(tensor)
        if tensor.uop.is_constant and tensor._has_elements():
            # Ones and zeros get memory, so that the first step's graph is the second's.
            tensor.uop = memory.owned(tensor.uop, tensor.device)

    def _ask_gradient(self, tensor: Tensor) -> None:
        """Let a parameter keep gradients from here on."""
        tensor.requires_grad = True

    def _beside(self) -> Iterable[Tensor]:
        """Tensors that are computed with each step, beside those that the step writes."""
        return self.buffers

    def _check(self, group: ParamGroup) -> None:
        """Raise ConfigError for options of a group that are out of range."""

    def _first_state(self, tensor: Tensor, group: ParamGroup) -> dict[str, Tensor]:
        """The state that a parameter begins with, by attribute: that of all `_slots`, or fewer
        where the options of its group need fewer.
        """
        return {name: self._zeros(tensor) for name, _ in self._slots}

    def _counts_at(self, group: ParamGroup, step: int) -> dict[str, float]:
        """The counters of a group after `step` steps, by name: "step", if any."""
        return {}

    def _advance(self, group: ParamGroup, counts: dict[str, Tensor]) -> list[Tensor]:
        """Move what parameters of a group count with to this step; gives what it has written."""
        return [counts["step"].assign(counts["step"] + 1)] if "step" in counts else []

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The new value of parameter number `index`, and the state written for it."""
        raise NotImplementedError

    # for subclasses

    def _option(self, index: int, name: str) -> Any:
        """An option of the group that holds parameter number `index`."""
        return self._param_groups[self._group_of[index]][name]

    def _count(self, index: int, name: str, like: Tensor) -> Tensor:
        """The step count `name` of parameter number `index`, to be computed with `like`."""
        count = self._counts[self._counts_of[index]].get(name)
        if count is None:
            raise ConfigError(
                f"{type(self).__name__}.step: an option that counts steps was set after some",
                remedy="give it when the optimizer is made, or to add_param_group",
            )
        return _alongside(count, like)

    def _momentum(self, index: int, like: Tensor) -> Any:
        """The momentum of parameter number `index`, to be computed with `like`: a number, or a
        tensor where a scheduler moves it.
        """
        return _number(self._option(index, "momentum"), like)

    def _betas(self, index: int, like: Tensor) -> tuple[Any, Any]:
        """The betas, likewise."""
        b1, b2 = self._option(index, "betas")
        return _number(b1, like), b2

    def _scaled(self, index: int, tensor: Tensor) -> Tensor:
        """`tensor` times the learning rate of parameter number `index`."""
        return tensor * self._rate(index, tensor)

    def _rate(self, index: int, like: Tensor) -> Tensor:
        """The learning rate of parameter number `index`, to be computed with `like`."""
        rate: Tensor = self._option(index, "lr")
        return _alongside(rate, like)

    def _decayed(self, index: int, value: Tensor, gradient: Tensor) -> Tensor:
        """The gradient of the loss and weight_decay / 2 * value^2."""
        decay = self._option(index, "weight_decay")
        return gradient + value * decay if decay else gradient

    def _shrunk(self, index: int, value: Tensor) -> Tensor:
        """value - lr * weight_decay * value: decay that is decoupled from the gradient."""
        decay = self._option(index, "weight_decay")
        return value - self._scaled(index, value * decay) if decay else value

    @staticmethod
    def _zeros(tensor: Tensor) -> Tensor:
        """State for one parameter, in the dtype of its update."""
        return tensor.zeros_like(dtype=sum_dtype(tensor.dtype), requires_grad=False)

    # for schedulers

    def hold_momentum(self, values: Sequence[float]) -> list[Tensor]:
        """Let the momentum of each group, or the first of its betas, be memory that begins with
        the group's element of `values`; gives that memory.

        Raises ConfigError for an optimizer without momentum.
        """
        if "momentum" not in self.defaults and "betas" not in self.defaults:
            raise ConfigError(
                f"{self._name}: there is no momentum to cycle",
                remedy="cycle_momentum=False, or an optimizer with momentum or betas",
            )
        current = []
        for group, value in zip(self._param_groups, values, strict=True):
            if "betas" in group:
                group["betas"] = (value, *group["betas"][1:])
                memory = as_memory(group["betas"][0], group["lr"])
                dict.__setitem__(group, "betas", (memory, *group["betas"][1:]))
            else:
                group["momentum"] = value
                memory = as_memory(group["momentum"], group["lr"])
                dict.__setitem__(group, "momentum", memory)
            current.append(memory)
        for index, tensor in enumerate(self.params):
            # With a momentum there may be state that there was no need of before.
            first = self._first_state(tensor, self._param_groups[self._group_of[index]])
            for attribute, state in first.items():
                if getattr(self, attribute)[index] is None:
                    getattr(self, attribute)[index] = state
        return current

    # what a user calls

    @property
    def lr(self) -> Tensor:
        """The learning rate of the first group, a tensor of one element; to assign a number writes
        that of all groups.
        """
        rate: Tensor = self._param_groups[0]["lr"]
        return rate

    @lr.setter
    def lr(self, value: float | Tensor) -> None:
        for group in self._param_groups:
            group["lr"] = value

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients. Otherwise the next ones are added to them. Without `set_to_none`
        those that are there become zeros.
        """
        for tensor in self.params:
            if set_to_none:
                tensor.grad = None
            elif tensor.grad is not None:
                set_gradient(tensor, tensor.grad.zeros_like())

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move each parameter that has a gradient; gives what `closure`, called first, gives.

        Raises ConfigError if no parameter has a gradient; OutOfMemoryError where there is no room,
        and then no parameter has moved.
        """
        loss = None if closure is None else closure()
        trained = [index for index, tensor in enumerate(self.params) if tensor.grad is not None]
        if not trained:
            raise ConfigError(
                f"{self._name}.step: none of the {len(self.params)} parameters has a gradient",
                remedy="call backward() on a loss that depends on them, after zero_grad()",
            )
        if not self._is_settled:
            self._settle()
        if len(trained) < len(self.params):
            step_counts.separate(self, trained)
        with all_or_nothing():
            written: list[Tensor] = []
            for number in sorted({self._counts_of[index] for index in trained}):
                moved = advance_together(self, number)
                if moved is None:
                    group = self._param_groups[self._group_of_counts[number]]
                    moved = self._advance(group, self._counts[number])
                written += moved
            known: KnownReads = {}
            for index in trained:
                written += move_together(self, index, known) or self._written(index)
            writes.realize_written([*written, *self._beside()])
        return loss

    def _settle(self) -> None:
        """Let parameters and state be memory before the graph of the first step is made, so that it
        is the graph of all steps; a capture must see who writes what it reads.
        """
        if current_recording() is not None:
            return
        self._is_settled = True
        rates = [group["lr"] for group in self._param_groups]
        counts = [count for each in self._counts for count in each.values()]
        states = [state for name, _ in self._slots for state in getattr(self, name)]
        found = [*self.params, *rates, *counts, *states]
        tensors = [each for each in found if isinstance(each, Tensor) and each._has_elements()]
        for tensor in tensors:
            if tensor.uop.is_constant:
                # All zeros of a shape are one node; what is written to must be one tensor's own.
                tensor.uop = memory.filled(tensor.uop, tensor.device)
        realize_first(tensors)

    def _written(self, index: int) -> list[Tensor]:
        """Assign to parameter number `index` and its state. The new value itself stays in here: a
        tensor that holds it while the step runs would be given memory of its own.
        """
        tensor = self.params[index]
        wide = sum_dtype(tensor.dtype)
        assert tensor.grad is not None
        gradient = tensor.grad.detach().cast(wide)
        if self._option(index, "maximize"):
            gradient = -gradient
        new, state = self._update(index, tensor.detach().cast(wide), gradient)
        return [tensor.assign(new.cast(tensor.dtype)), *state]

    # state

    def _children_by_name(self) -> Iterator[tuple[str, object]]:
        """Tensors for `nn.state`: the rate and the counts, as lists where there are several of
        them; then parameters and their state.
        """
        for several in (self._param_groups, self._counts):
            names = {"lr"} if several is self._param_groups else dict.fromkeys(chain(*several))
            for name in names:
                found = [each[name] for each in several if name in each]
                yield name, found[0] if len(several) == 1 else found
        yield "params", self.params
        yield "buffers", self.buffers
        for attribute, _ in self._slots:
            yield attribute, getattr(self, attribute)

    def state_dict(self) -> dict[str, Any]:
        """The state in PyTorch's form: {"state": {0: {"exp_avg": ..., ...}, ...}, "param_groups":
        [{"lr": 0.1, ..., "params": [0, ...]}, ...]}, where parameters are numbered.

        The tensors are the optimizer's own. `nn.state.get_state_dict` gives them by flat names, for
        files.

        >>> opt = nn.optim.SGD([Tensor.ones(2)], lr=0.5, momentum=0.9)
        >>> opt.state_dict()["state"][0]["momentum_buffer"].tolist()
        [0.0, 0.0]
        """
        groups, first = [], 0
        for group in self._param_groups:
            indices = list(range(first, first := first + len(group["params"])))
            groups.append({**group.numbers(), "params": indices})
        state = {index: self._state_at(index) for index in range(len(self.params))}
        return {"state": state, "param_groups": groups}

    def _state_at(self, index: int) -> dict[str, Tensor]:
        """The state of parameter number `index`, by PyTorch's names."""
        counts = self._counts[self._counts_of[index]]
        own = {name: getattr(self, attribute)[index] for attribute, name in self._slots}
        return {
            name: tensor
            for name, tensor in {"step": counts.get("step"), **own}.items()
            if tensor is not None
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over the options and the state of `state_dict`, of this form, by PyTorch too.
        Missing state begins anew.

        Raises DataError for other groups or numbers of parameters, ShapeError for state of another
        shape; nothing is written then.
        """
        sizes = [len(group["params"]) for group in self._param_groups]
        saved = Saved(self._name, state_dict, sizes)
        pairs: list[tuple[Tensor, Any]] = []
        groups = []
        for at, group in enumerate(self._param_groups):
            options = saved.options(at, set(group))
            asked = ParamGroup({**group, **options})
            self._check(asked)
            groups.append((asked, options))
        steps = [saved.step(index) for index in range(len(self.params))]
        counts, numbers = step_counts.counts_after(self, steps)
        for (at, step), number in numbers.items():
            for name, value in self._counts_at(groups[at][0], step).items():
                if name not in counts[number]:
                    rate = self._param_groups[at]["lr"]
                    counts[number][name] = Tensor.zeros_like(rate, requires_grad=False)
                pairs.append((counts[number][name], value))
        for index, tensor in enumerate(self.params):
            first = self._first_state(tensor, groups[self._group_of[index]][0])
            for attribute, name in self._slots:
                current = getattr(self, attribute)
                if attribute in first:
                    # Options of the file may need state that there was no need of before.
                    current[index] = first[attribute] if current[index] is None else current[index]
                    value = saved.state(index, name)
                    pairs.append((current[index], first[attribute] if value is None else value))
        ready = [(current, saved.fitted(current, value)) for current, value in pairs]
        self._counts, self._group_of_counts = counts, [at for at, _ in numbers]
        self._counts_of = [numbers[pair] for pair in zip(self._group_of, steps, strict=True)]
        for group, (_, options) in zip(self._param_groups, groups, strict=True):
            for name, value in options.items():
                group[name] = value
        if ready:
            Tensor.realize(*[value for _, value in ready])
            Tensor.realize(*[current.assign(value) for current, value in ready])


def _number(value: Any, like: Tensor) -> Any:
    return _alongside(value, like) if isinstance(value, Tensor) else value


def _alongside(one: Tensor, like: Tensor) -> Tensor:
    """`one`, a vector of one element, to be computed with `like`: it gives a number no axis."""
    one = one.cast(like.dtype).to(like.device)
    return one if like.ndim else one.reshape(())
