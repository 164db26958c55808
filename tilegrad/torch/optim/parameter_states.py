"""`optimizer.state` as PyTorch has it: what a program changes there is what the next step finds."""

from __future__ import annotations

import copy
from collections.abc import Iterator, MutableMapping
from typing import Any

from tilegrad.nn.optim import step_counts
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.tensor import as_ours

__all__ = ["States"]


class _Shown(MutableMapping[Any, Any]):
    """Mapping that prints as a dict does, and its keys as those of a dict."""

    def keys(self) -> Any:
        """The keys, as of a dict."""
        return dict.fromkeys(self).keys()

    def values(self) -> Any:
        """The values, as of a dict."""
        return dict(self.items()).values()

    def items(self) -> Any:
        """The items, as of a dict."""
        return {key: self[key] for key in self}.items()

    def __repr__(self) -> str:
        return repr(dict(self.items()))


class States(_Shown):
    """The state of each parameter that has one, by parameter."""

    def __init__(self, optimizer: Any):
        self._optimizer = optimizer

    def __getitem__(self, parameter: Any) -> Any:
        if _index(self._optimizer, parameter) is None:
            # The state of a tensor that is no parameter so far: it is taken over when it becomes
            # one.
            return self._optimizer._states_to_come.setdefault(parameter, {})
        views = self._optimizer._state_views
        if parameter not in views:
            views[parameter] = State(self._optimizer, parameter)
        return views[parameter]

    def __setitem__(self, parameter: Any, value: Any) -> None:
        if _index(self._optimizer, parameter) is None:
            self._optimizer._states_to_come[parameter] = dict(value)
            return
        given, state = dict(value), self[parameter]
        state.clear()
        state.update(given)

    def __delitem__(self, parameter: Any) -> None:
        if parameter not in self:
            raise KeyError(parameter)
        self[parameter].leave()

    def __iter__(self) -> Iterator[Any]:
        return iter([each for each in self._optimizer.params if _has_state(self._optimizer, each)])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, parameter: object) -> bool:
        return any(each is parameter for each in self)

    def get(self, parameter: Any, default: Any = None) -> Any:
        """As of a dict: `default` for a parameter without state."""
        # Without state `self[parameter]` would be an empty one.
        return self[parameter] if parameter in self else default  # noqa: SIM401

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy({parameter: dict(state) for parameter, state in self.items()}, memo)


class State(_Shown):
    """The state of one parameter, by PyTorch's names; a name of the program's own is kept. Once it
    was taken out of the optimizer, it is what it was then.
    """

    def __init__(self, optimizer: Any, parameter: Any):
        self._optimizer, self._parameter = optimizer, parameter
        self._left: dict[str, Any] | None = None
        self._attributes = {name: attribute for attribute, name in optimizer._slots}

    @property
    def _index(self) -> int:
        found = _index(self._optimizer, self._parameter)
        if found is None:
            raise KeyError("the optimizer has another parameter by now")
        return found

    @property
    def _own(self) -> dict[str, Any]:
        """Values that the program has put there by names that the optimizer does not know."""
        found: dict[str, Any] = self._optimizer._own_names.setdefault(self._parameter, {})
        return found

    def _slot(self, name: str) -> list[Any] | None:
        attribute = self._attributes.get(name)
        return None if attribute is None else getattr(self._optimizer, attribute)

    def _counts(self) -> dict[str, Any]:
        counts: dict[str, Any] = self._optimizer._counts[self._optimizer._counts_of[self._index]]
        return counts

    def leave(self) -> None:
        """Be no more the state of the parameter, which begins anew."""
        content = dict(self)
        self.clear()
        self._optimizer._state_views.pop(self._parameter, None)
        self._left = content

    def __getitem__(self, name: str) -> Any:
        if self._left is not None:
            return self._left[name]
        if not _has_state(self._optimizer, self._parameter):
            raise KeyError(name)
        if name == "step" and "step" in self._counts():
            # A program may write to it: it is that of this parameter alone then.
            index = self._index
            others = [each for each in range(len(self._optimizer.params)) if each != index]
            step_counts.separate(self._optimizer, others)
            return as_ours(self._counts()["step"].reshape(()))
        slot = self._slot(name)
        if slot is not None and slot[self._index] is not None:
            return as_ours(slot[self._index])
        return self._own[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if self._left is not None:
            self._left[name] = value
            return
        optimizer, index = self._optimizer, self._index
        optimizer._with_state[self._parameter] = None
        slot = self._slot(name)
        if name == "step" and "step" in self._counts():
            step_counts.restart(optimizer, index, int(value))
        elif slot is not None:
            first = optimizer._zeros(self._parameter)
            given = value if isinstance(value, OurTensor) else first.full_like(value)
            slot[index] = given.detach()
            optimizer._is_settled = False
        else:
            self._own[name] = value

    def __delitem__(self, name: str) -> None:
        if self._left is not None:
            del self._left[name]
            return
        index = self._index
        if name not in self:
            raise KeyError(name)
        slot = self._slot(name)
        group = self._optimizer._param_groups[self._optimizer._group_of[index]]
        if name == "step":
            step_counts.restart(self._optimizer, index)
        elif slot is not None:
            slot[index] = self._optimizer._first_state(self._parameter, group).get(
                self._attributes[name]
            )
            self._optimizer._is_settled = False
        else:
            del self._own[name]

    def clear(self) -> None:
        """Begin anew with the next step."""
        if self._left is not None:
            self._left.clear()
            return
        optimizer, index = self._optimizer, self._index
        group = optimizer._param_groups[optimizer._group_of[index]]
        first = optimizer._first_state(self._parameter, group)
        for attribute, _ in optimizer._slots:
            getattr(optimizer, attribute)[index] = first.get(attribute)
        step_counts.restart(optimizer, index)
        self._own.clear()
        optimizer._with_state.pop(self._parameter, None)

    def __iter__(self) -> Iterator[str]:
        if self._left is not None:
            return iter(list(self._left))
        if not _has_state(self._optimizer, self._parameter):
            return iter(())
        index = self._index
        names = ["step"] if "step" in self._counts() else []
        for name, attribute in self._attributes.items():
            if getattr(self._optimizer, attribute)[index] is not None:
                names.append(name)
        return iter([*names, *self._own])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in list(self)


def _index(optimizer: Any, parameter: Any) -> int | None:
    optimizer._follow_groups()
    for index, each in enumerate(optimizer.params):
        if each is parameter:
            return index
    return None


def _has_state(optimizer: Any, parameter: Any) -> bool:
    return parameter in optimizer._with_state
