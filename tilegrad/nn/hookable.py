"""Hooks of modules: on calls, on gradients and on state dicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilegrad.nn.module_hooks import Hooks, RemovableHandle

__all__ = ["Hookable"]


class Hookable:
    """Base of modules: takes in hooks, which the module runs."""

    _hooks: Hooks | None = None

    def _own_hooks(self) -> Hooks:
        self._hooks = self._hooks or Hooks()
        return self._hooks

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call hook(module, args) before each call. Its result, unless None, takes the place of the
        arguments: a tuple, or one alone. With `with_kwargs` it is hook(module, args, kwargs), and
        gives both.

        >>> layer = nn.Identity()
        >>> handle = layer.register_forward_pre_hook(lambda module, args: args[0] * 2)
        >>> layer(Tensor([1])).tolist()
        [2]
        """
        return self._own_hooks().add(hook, True, prepend, with_kwargs)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call hook(module, args, output) after each call. Its result, unless None, takes the place
        of the output. With `with_kwargs` it is hook(module, args, kwargs, output).

        The gradient of a loss with respect to an output that was kept is `loss.gradient(output)`.

        >>> layer = nn.Identity()
        >>> handle = layer.register_forward_hook(lambda module, args, output: output * 2)
        >>> layer(Tensor([1])).tolist(), handle.remove(), layer(Tensor([1])).tolist()
        ([2], None, [1])
        """
        return self._own_hooks().add(hook, False, prepend, with_kwargs)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call hook(module, grad_input, grad_output) whenever gradients flow through a call of this
        module: tuples of the gradients of its positional float tensors and of its outputs, None
        where none flows, as to an input that requires no gradient. Its result, unless None, takes
        the place of the gradient of an only input.

        Hooks run as the graph of the gradient is made: gradients are lazy tensors. The module is
        called on copies of its inputs.

        >>> layer, seen = nn.Linear(2, 3), []
        >>> def hook(module, grad_input, grad_output):
        ...     seen.append(grad_output[0].shape)
        ...     return (grad_input[0].zeros_like(),)
        >>> handle = layer.register_full_backward_hook(hook)
        >>> x = Tensor([[1.0, 2.0]], requires_grad=True)
        >>> layer(x).sum().gradient(x)[0].tolist(), seen
        ([[0.0, 0.0]], [(1, 3)])
        """
        return self._own_hooks().add_backward(hook, False, prepend)

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call hook(module, grad_output) before the gradient goes into a call of this module. Its
        result, unless None, takes the place of the gradient of an only output.

        >>> layer = nn.Identity()
        >>> handle = layer.register_full_backward_pre_hook(lambda module, grads: (grads[0] * 3,))
        >>> x = Tensor([1.0])
        >>> layer(x).sum().gradient(x)[0].item()
        3.0
        """
        return self._own_hooks().add_backward(hook, True, prepend)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(module, prefix, keep_vars) before `state_dict` of this module or of one above
        it; `keep_vars` is False.
        """
        return self._own_hooks().add_state("before", hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(module, state_dict, prefix, metadata) with what `state_dict` of this module or
        of one above it gives, which the hook may change; `metadata` is empty.

        >>> layer = nn.Linear(1, 1)
        >>> handle = layer.register_state_dict_post_hook(
        ...     lambda module, state, prefix, metadata: state.pop(prefix + "bias") and None
        ... )
        >>> list(nn.Sequential(layer).state_dict())
        ['0.weight']
        """
        return self._own_hooks().add_state("after", hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(module, state_dict, prefix, metadata, strict, missing_keys, unexpected_keys,
        error_msgs) before `load_state_dict` of this module or of one above it, with a copy of the
        dict that the hook may change, to rename what older files hold; the lists are empty.
        """
        return self._own_hooks().add_state("before load", hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(module, unmatched) after `load_state_dict` of this module or of one above it,
        with what that gives.
        """
        return self._own_hooks().add_state("after load", hook)
