"""`torch.optim.Optimizer`: the base of tilegrad's optimizers under PyTorch's rules, and of a
program's own.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from operator import is_
from typing import Any

from tilegrad.base.errors import ConfigError
from tilegrad.nn.optim import Optimizer as Ours
from tilegrad.nn.optim import step_counts
from tilegrad.nn.tree import Paired
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.tensor.writing.watching import RemovableHandle
from tilegrad.torch import thread_modes
from tilegrad.torch.absent_hints import Advising
from tilegrad.torch.complex import Complex
from tilegrad.torch.optim.parameter_groups import GroupView, options_of, without_effect
from tilegrad.torch.optim.parameter_states import States
from tilegrad.torch.optim.states import as_shown, completed, steps_in
from tilegrad.torch.tensor import as_ours, written

__all__ = ["Optimizer", "stepping"]

_numbers = itertools.count()


class Optimizer(Advising, Ours):
    """Base of all optimizers.

    A program's own says `super().__init__(params, defaults)` and gives `step`, which reads
    `self.param_groups` and `self.state[p]`.
    """

    _advised = "torch.optim.Optimizer"
    OptimizerPreHook = OptimizerPostHook = Callable[..., Any]

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]):
        options = {name: value for name, value in defaults.items() if name != "lr"}
        options.pop("maximize", None)
        self.__dict__["_options"] = tuple(defaults)
        # Without a rate of their own groups show None, from which a program makes its steps.
        self.__dict__["_has_rate"] = defaults.get("lr", 0.0) is not None
        rate = defaults.get("lr", 0.0) if self.__dict__["_has_rate"] else 0.0
        super().__init__(params, rate, {}, **options)
        self.defaults = dict(defaults)
        self.state = defaultdict(dict)

    # groups

    @property
    def param_groups(self) -> list[Any]:
        """The parameters in groups with their options; rates are numbers."""
        views: list[Any] = self.__dict__.setdefault("_views", [])
        return views

    @param_groups.setter
    def param_groups(self, value: list[Any]) -> None:
        """Have the groups of another optimizer, as one that stands around it does."""
        if not all(isinstance(each, GroupView) for each in value):
            raise TypeError(
                "param_groups takes the groups of an optimizer; add_param_group adds one"
            )
        self.__dict__["_views"] = value
        self._param_groups = [view._group for view in value]

    def _listed(self, params: Any) -> list[Any]:
        if isinstance(params, OurTensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {as_ours(params).type()}"
            )
        found = super()._listed(params)
        if not found:
            raise ConfigError(
                "optimizer got an empty parameter list",
                remedy="pass model.parameters(); a generator is empty the second time",
            )
        return found

    def _follow_groups(self) -> None:
        """Have the groups and the parameters that a program left in `param_groups`, which it may
        change as PyTorch's.
        """
        groups = [view._group for view in self.param_groups]
        params = [tensor for group in groups for tensor in group["params"]]
        if len(params) == len(self.params) and len(groups) == len(self._param_groups):
            if all(map(is_, params, self.params)) and all(map(is_, groups, self._param_groups)):
                return
        step_counts.regroup(self, groups)
        for tensor in [each for each in self._states_to_come if any(each is p for p in params)]:
            self.state[tensor] = self._states_to_come.pop(tensor)

    @property
    def _makes_its_steps(self) -> bool:
        """Whether there is no formula here: it is a program's own optimizer, or iterates."""
        return type(self)._update is Ours._update

    @property
    def _states_to_come(self) -> dict[Any, Any]:
        """States that were given for what is no parameter so far."""
        found: dict[Any, Any] = self.__dict__.setdefault("_to_come", {})
        return found

    @property
    def _state_views(self) -> dict[Any, Any]:
        """By parameter, what a program was given as its state."""
        found: dict[Any, Any] = self.__dict__.setdefault("_views_of_states", {})
        return found

    @property
    def _own_names(self) -> dict[Any, Any]:
        """Values that a program has put into the state of a parameter, by names of its own."""
        found: dict[Any, Any] = self.__dict__.setdefault("_names_of_state", {})
        return found

    @property
    def _with_state(self) -> dict[Any, None]:
        """The parameters that have had a step since their state began."""
        found: dict[Any, None] = self.__dict__.setdefault("_stepped", {})
        return found

    def _join(self, given: Mapping[str, Any]) -> None:
        if self.params:
            self._follow_groups()
        present = {id(tensor) for tensor in self.params}
        members, names = _members(given["params"])
        for each in members:
            if isinstance(each, OurTensor) and not each.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
            if id(each) in present:
                raise ValueError("some parameters appear in more than one parameter group")
        known = {"params", *self.defaults}
        extra = {name: value for name, value in given.items() if name not in known}
        own = {name: value for name, value in given.items() if name in known}
        if own.get("lr", 0.0 if self.__dict__.get("_has_rate", True) else None) is None:
            own.pop("lr", None)
            extra["lr"] = None
        super()._join({**own, "params": members})
        order = options_of(self) or self.__dict__.get("_options")
        view = GroupView(
            self._param_groups[-1], without_effect(self, self._param_groups[-1]), order
        )
        self.param_groups.append(view)
        if names:
            extra["param_names"] = names
        # Options that only the program reads.
        self.param_groups[-1]._extra.update(extra)

    def _beside(self) -> Iterable[OurTensor]:
        # Running statistics, and all else that was written to and is alive.
        return [*self.buffers, *written.tensors]

    def _is_trained(self, tensor: OurTensor) -> bool:
        return tensor.dtype.is_float

    def _ask_gradient(self, tensor: OurTensor) -> None:
        """Nothing: a parameter says itself whether it is trained."""

    # state

    @property
    def state(self) -> Any:
        """The state of each parameter, by parameter."""
        own = self.__dict__.get("_own_state")
        if own is not None:
            return own
        return States(self)

    @state.setter
    def state(self, value: Any) -> None:
        if self._makes_its_steps:
            self.__dict__["_own_state"] = value
            return
        given = {parameter: dict(each) for parameter, each in value.items()}
        self.state.clear()
        self.state.update(given)

    def state_dict(self) -> dict[str, Any]:
        """The state by numbers of parameters, and the options of the groups."""
        self._follow_groups()
        for hook in self._hooks_of("_before_state"):
            hook(self)
        found = self._state_dict()
        for hook in self._hooks_of("_after_state"):
            changed = hook(self, found)
            found = found if changed is None else changed
        return found

    def _state_dict(self) -> dict[str, Any]:
        own = self.__dict__.get("_own_state")
        found = super().state_dict()
        if own is not None:
            numbers = {id(tensor): number for number, tensor in enumerate(self.params)}
            found["state"] = {numbers[id(tensor)]: dict(each) for tensor, each in own.items()}
        else:
            found["state"] = {
                number: self._completed(
                    number,
                    {
                        name: as_shown(tensor.reshape(()) if name == "step" else tensor)
                        for name, tensor in each.items()
                    },
                )
                for number, each in found["state"].items()
            }
            if self._name == "SGD":
                # Ours counts steps where a momentum is dampened.
                found["state"] = {
                    number: {name: value for name, value in each.items() if name != "step"}
                    for number, each in found["state"].items()
                }
            found["state"] = {
                number: _as_parameters(self.params[number], each)
                for number, each in found["state"].items()
                if each and (self._makes_its_steps or self.params[number] in self._with_state)
            }
        found["param_groups"] = [
            {**{key: view[key] for key in view if key != "params"}, "params": group["params"]}
            for group, view in zip(found["param_groups"], self.param_groups)
        ]
        return found

    def _completed(self, number: int, state: dict[str, Any]) -> dict[str, Any]:
        at = self._group_of[number]
        taken = self.__dict__.get("_taken", 0)
        group, counts = self._param_groups[at], self._counts[self._counts_of[number]]
        found = completed(self._name, state, counts, group, taken)
        return {name: as_shown(each) for name, each in found.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._follow_groups()
        for hook in self._hooks_of("_before_loading"):
            changed = hook(self, dict(state_dict))
            state_dict = state_dict if changed is None else changed
        self._load_state_dict(state_dict)
        for hook in self._hooks_of("_after_loading"):
            hook(self)

    def _load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        state_dict = _as_pairs(state_dict)
        groups = state_dict["param_groups"]
        rated = [{**each, "lr": 0.0} if each.get("lr", 0.0) is None else each for each in groups]
        super().load_state_dict({**state_dict, "param_groups": rated})
        self.__dict__["_taken"] = steps_in(state_dict)
        listed = [number for group in groups for number in group["params"]]
        self._with_state.clear()
        for number, tensor in zip(listed, self.params, strict=True):
            if state_dict["state"].get(number):
                self._with_state[tensor] = None
        for view, given in zip(self.param_groups, state_dict["param_groups"]):
            known = view._group
            if "lr" in given:
                view["lr"] = given["lr"]
            view._extra.update({key: given[key] for key in given if key not in known})
        own = self.__dict__.get("_own_state")
        if own is not None:
            own.clear()
            for number, each in state_dict["state"].items():
                own[self.params[number]] = {
                    name: value.detach().clone() if isinstance(value, OurTensor) else value
                    for name, value in each.items()
                }

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for number, view in enumerate(self.param_groups):
            lines += [*([""] if number else []), f"Parameter Group {number}"]
            lines += [f"    {key}: {view[key]}" for key in sorted(view) if key != "params"]
        return "\n".join([*lines, ")"])

    # steps

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or let them be zeros."""
        self._follow_groups()
        super().zero_grad(set_to_none)

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(optimizer, args, kwargs) before each step."""
        return self._hooked("_before", hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(optimizer, args, kwargs) after each step."""
        return self._hooked("_after", hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call hook(optimizer) before `state_dict`."""
        return self._hooked("_before_state", hook, prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call hook(optimizer, state_dict) after `state_dict`, which gives what the hook gives."""
        return self._hooked("_after_state", hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call hook(optimizer, state_dict) before loading a state: what the hook gives."""
        return self._hooked("_before_loading", hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call hook(optimizer) after a state was loaded."""
        return self._hooked("_after_loading", hook, prepend)

    def _hooked(
        self, when: str, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        hooks = self.__dict__.setdefault(when, {})
        others = dict(hooks)
        if prepend:
            hooks.clear()
        hooks[key := next(_numbers)] = hook
        hooks.update(others)
        return RemovableHandle(hooks, key)

    def _hooks_of(self, when: str) -> list[Callable[..., Any]]:
        return list(self.__dict__.get(when, {}).values())

    @staticmethod
    def profile_hook_step(func: Callable[..., Any]) -> Callable[..., Any]:
        """A `step` of one's own between the hooks of its optimizer."""
        return _with_hooks(func)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])  # type: ignore[method-assign]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move each parameter that has a gradient; gives what `closure`, called first, gives."""
        loss = None
        if closure is not None:
            with thread_modes.enable_grad():
                loss = closure()
        self._follow_groups()
        if any(tensor.grad is not None for tensor in self.params):
            stepping(super().step)
            moved = [tensor for tensor in self.params if tensor.grad is not None]
            self._with_state.update(dict.fromkeys(moved))
            self.__dict__["_taken"] = self.__dict__.get("_taken", 0) + 1
        return loss


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """A `step` between the hooks of its optimizer; one that calls another is one step."""

    @functools.wraps(step)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        own = self.__dict__
        if own.get("_is_in_step"):
            return step(self, *args, **options)
        own["_is_in_step"] = True
        try:
            for hook in list(own.get("_before", {}).values()):
                changed = hook(self, args, options)
                if changed is not None:
                    args, options = changed
            own["_has_stepped"] = True
            found = step(self, *args, **options)
            for hook in list(own.get("_after", {}).values()):
                hook(self, args, options)
            return found
        finally:
            own["_is_in_step"] = False

    return call


Optimizer.step = _with_hooks(Optimizer.step)  # type: ignore[method-assign]


def _members(params: Any) -> tuple[list[Any], list[str]]:
    """Parameters, and their names where they are pairs."""
    if isinstance(params, (OurTensor, Paired)):
        return [_trained(params)], []
    if isinstance(params, (set, frozenset)):
        raise TypeError("optimizer parameters need to be in an order: a set has none")
    given = list(params)
    names = [each[0] for each in given if isinstance(each, tuple)]
    return [_trained(each[1] if isinstance(each, tuple) else each) for each in given], names


def _trained(parameter: Any) -> Any:
    """The tensor that a step moves: of complex numbers their pairs, as PyTorch's steps do."""
    if not isinstance(parameter, Paired):
        return parameter
    parameter.pair._is_pair_of_parameter = True
    return parameter.pair


def _as_parameters(parameter: Any, state: dict[str, Any]) -> dict[str, Any]:
    """The state of a parameter, complex where that is."""
    if not getattr(parameter, "_is_pair_of_parameter", False):
        return state
    return {
        name: Complex(value)
        if isinstance(value, OurTensor) and value.shape == parameter.shape
        else value
        for name, value in state.items()
    }


def _as_pairs(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """A state dict whose tensors are those that steps read."""
    states = {
        number: {
            name: value.pair if isinstance(value, Paired) else value for name, value in each.items()
        }
        for number, each in state_dict["state"].items()
    }
    return {**state_dict, "state": states}


def stepping(step: Callable[..., Any], *args: Any) -> Any:
    """The result of `step`, which writes to parameters and computes them."""
    before, thread_modes.state.is_stepping = thread_modes.state.is_stepping, True
    try:
        with thread_modes.enable_grad():
            return step(*args)
    finally:
        thread_modes.state.is_stepping = before
