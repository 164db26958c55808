"""Functions of functions: derivatives, batches, and gradients that remember less.

A function of tensors is run once, to build its graph; what is asked for is that graph rewritten.
They nest in any order, and in `jit`.
"""

from tilegrad.base.absent import refuse_others
from tilegrad.func.derivatives import grad, grad_and_value, jvp, vjp
from tilegrad.func.jacobians import hessian, jacfwd, jacobian, jacrev
from tilegrad.func.mapping import vmap
from tilegrad.func.module_functions import functional_call, stack_module_state
from tilegrad.func.recompute import checkpoint
from tilegrad.func.transformed_function import Function

__all__ = [
    "Function", "checkpoint", "functional_call", "grad", "grad_and_value", "hessian", "jacfwd",
    "jacobian", "jacrev", "jvp", "stack_module_state", "vjp", "vmap",
]  # fmt: skip

refuse_others(__name__)  # Last, so that the imports above do not ask it.
