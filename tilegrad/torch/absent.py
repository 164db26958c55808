"""What to say of a name of PyTorch's that is not here."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable
from typing import NoReturn

__all__ = ["absent", "hint_of", "refusing"]

_SPARSE = "sparse tensors are COO or CSR: torch.sparse_coo_tensor, sparse_csr_tensor"
_QUANTIZED = "no quantized tensors; Tensor.pack_int4 packs integers of 4 bits"
_PROCESSES = "one process computes so far; torch.utils.data has threads that load"
_COMPILER = "torch.compile is what there is: it captures a call and replays it"

_GLOBAL_HOOK = "register the hook on each of model.modules()"

# By the longest beginning of the name that stands here.
_HINTS = {
    "torch.jit": "torch.save(model.state_dict(), path) keeps the weights",
    "torch.fx": f"graphs are tilegrad's own (Tensor.uop); {_COMPILER}",
    "torch.export": "torch.save(model.state_dict(), path) keeps the weights",
    "torch.onnx": "torch.save(model.state_dict(), path) keeps the weights",
    "torch._dynamo": _COMPILER,
    "torch._inductor": _COMPILER,
    "torch.distributed": _PROCESSES,
    "torch.multiprocessing": _PROCESSES,
    "torch.nn.parallel": _PROCESSES,
    "torch.sparse": _SPARSE,
    "torch.sparse_bsr_tensor": _SPARSE,
    "torch.sparse_bsc_tensor": _SPARSE,
    "torch.sparse_csc_tensor": _SPARSE,
    "torch.sparse_compressed_tensor": _SPARSE,
    "torch.Tensor.to_sparse": _SPARSE,
    "torch.masked": "torch.where(mask, x, 0.0), of max -inf in its place, and divide a sum by "
    "mask.sum()",
    "torch.nested": "pad to one length, with a mask",
    "torch.quantization": _QUANTIZED,
    "torch.ao": _QUANTIZED,
    "torch.quantize_per_tensor": _QUANTIZED,
    "torch.qint8": _QUANTIZED,
    "torch.quint8": _QUANTIZED,
    "torch.accelerator": "torch.accelerator.is_available() says whether there is a GPU",
    "torch.autograd.forward_ad": "torch.func.jvp gives derivatives forward",
    "torch.autograd.graph.saved_tensors_hooks": "nothing is saved that a hook could take; for less "
    "memory torch.utils.checkpoint.checkpoint, for values in another form an autograd.Function "
    "that saves that form",
    "torch.autograd.graph": "hooks of tensors (register_hook) see gradients",
    "torch.nn.utils.stateless": "torch.func.functional_call",
    "torch.nn.register_module_forward_hook": _GLOBAL_HOOK,
    "torch.nn.register_module_forward_pre_hook": _GLOBAL_HOOK,
    "torch.nn.register_module_full_backward_hook": _GLOBAL_HOOK,
    "torch.nn.Container": "torch.nn.Module holds layers as attributes",
    "torch.nn.UninitializedParameter": "torch.nn.LazyLinear and its like have sizes to come",
    "torch.triangular_solve": "torch.linalg.solve_triangular",
    "torch.eig": "torch.linalg.eig",
    "torch.symeig": "torch.linalg.eigh",
    "torch.lu_unpack": "torch.linalg.lu gives the permutation, L and U",
    "torch.geqrf": "torch.linalg.qr",
    "torch.ormqr": "torch.linalg.qr, and a product",
    "torch.fork": _PROCESSES,
    "torch.Stream": "launches are in one order, and run side by side where they may",
    "torch.Event": "torch.cuda.synchronize() waits for all that was launched",
    "torch.hub": "load weights with torch.load",
    "torch.utils.tensorboard": "print, or write a file of your own",
    "torch.utils.bottleneck": "DEBUG=2 shows each kernel and its time",
    "torch.utils.cpp_extension": "tilegrad.Tensor.apply takes a function of arrays",
    "torch.cuda": "there is no GPU here so far: torch.cuda.is_available() is False",
    "torch.xpu": "there is no GPU here so far",
    "torch.mps": "there is no GPU here so far",
    "torchvision": "load images with another library, and torch.from_numpy(array)",
}


def hint_of(name: str) -> str | None:
    """What to write instead of a dotted name, if something is known."""
    prefix = name
    while prefix:
        if prefix in _HINTS:
            return _HINTS[prefix]
        prefix = prefix.rpartition(".")[0]
    return None


def absent(module: str, name: str, known: Iterable[str]) -> str:
    """What to say where `module` ("torch.nn") has no `name`; `known` are the names that it has."""
    whole = f"{module}.{name}"
    text = f"{whole}: not in tilegrad.torch"
    hint = hint_of(whole)
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, 1, 0.75)
    if not close:
        lower = {each.lower(): each for each in names}
        close = [lower[name.lower()]] if name.lower() in lower else []
    if close and (hint is None or (whole not in _HINTS and _is_misspelt(name, close[0]))):
        return f"{text}; did you mean {module}.{close[0]}?"
    return f"{text}; {hint or 'docs/moving-from-pytorch.md says what there is'}"


def _is_misspelt(name: str, known: str) -> bool:
    """Whether `name` is surely meant to be `known`, which is there, and not what is not."""
    return difflib.SequenceMatcher(None, name, known).ratio() >= 0.9


def refusing(module: str) -> Callable[[str], NoReturn]:
    """The `__getattr__` of `module`, which refuses every name and says what to write."""

    def refuse(name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
        known = vars(sys.modules[module])["__all__"]
        raise AttributeError(absent(module.removeprefix("tilegrad."), name, known), name=name)

    return refuse
