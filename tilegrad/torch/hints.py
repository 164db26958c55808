"""Spellings to use instead of names of PyTorch that are not here: tables for `absent`."""

from __future__ import annotations

import re

__all__ = ["FAMILIES", "HINTS", "METHODS"]

_SPARSE = "sparse tensors are COO or CSR: torch.sparse_coo_tensor, sparse_csr_tensor"
_QUANTIZED = "no quantized tensors; Tensor.pack_int4 packs integers of 4 bits"
_PROCESSES = "one process computes so far; torch.utils.data has threads that load"
_COMPILER = "torch.compile is what there is: it captures a call and replays it"

_GLOBAL_HOOK = "register the hook on each of model.modules()"

# By the longest beginning of the name that stands here.
HINTS = {
    "torch.jit": "torch.save(model.state_dict(), path) keeps the weights",
    "torch.fx": f"graphs are tilegrad's own (Tensor.uop); {_COMPILER}",
    "torch.export": "torch.save(model.state_dict(), path) keeps the weights",
    "torch.onnx": "torch.save(model.state_dict(), path) keeps the weights",
    "torch._inductor": _COMPILER,
    "torch.distributed": _PROCESSES,
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
    "torch.eig": "torch.linalg.eig",
    "torch.symeig": "torch.linalg.eigh",
    "torch.geqrf": "torch.linalg.qr",
    "torch.ormqr": "torch.linalg.qr, and a product",
    "torch.fork": _PROCESSES,
    "torch.hub": "torch.hub.load_state_dict_from_url has weights; clone a repository, and "
    "import it",
    "torch.utils.tensorboard": "print, or write a file of your own",
    "torch.utils.flop_counter": "tilegrad.GlobalCounters.global_ops",
    "torch.utils.bottleneck": "DEBUG=2 shows each kernel and its time",
    "torch.utils.cpp_extension": "tilegrad.Tensor.apply takes a function of arrays",
    "torch.cuda": "there is no GPU here so far: torch.cuda.is_available() is False",
    "torch.xpu": "there is no GPU here so far",
    "torch.mps": "there is no GPU here so far",
    "torch.testing.make_tensor": "torch.randn(*shape), or torch.randint(low, high, shape)",
    "torch.utils.data.IterDataPipe": "torch.utils.data.IterableDataset",
    "torch.utils.data.MapDataPipe": "torch.utils.data.Dataset",
    "torch.utils.checkpoint": "torch.utils.checkpoint.checkpoint(function, *args)",
    "torch.utils.collect_env": "python -m tilegrad devices",
    "torch.empty_strided": "torch.empty(*shape), and permute",
    "torch.empty_permuted": "torch.empty(*shape), and permute",
    "torch.package": "torch.save and torch.load",
    "torch.ops": "the function of torch or torch.nn.functional",
    "torch.classes": "a class of Python",
    "torch.overrides": "a subclass of torch.Tensor",
    "torch.futures": "concurrent.futures",
    "torch.return_types": "named tuples, whose fields are values and indices",
    "torch.affine_grid_generator": "torch.nn.functional.affine_grid",
    "torch.get_device_module": "torch.cuda, or torch.accelerator",
    "torch.get_file_path": "tilegrad.__path__",
    "torch.nuclear_norm": "torch.linalg.matrix_norm(A, 'nuc')",
    "torch.norm_except_dim": "torch.linalg.vector_norm over the other axes, keepdim=True",
    "torch.hash_tensor": "x.hash() of tilegrad.Tensor",
    "torch.from_file": "numpy.memmap, then torch.from_numpy",
    "torch.nn.Module.register_backward_hook": "register_full_backward_hook",
    "torch.nn.CrossMapLRN2d": "torch.nn.LocalResponseNorm",
    "torch.nn.NLLLoss2d": "torch.nn.NLLLoss",
    "torch.nn.grad": "torch.autograd.grad",
    "torch.distributions.GeneralizedPareto": "torch.distributions.Pareto",
    "torch.distributions.generalized_pareto": "torch.distributions.Pareto",
    "torch.func.linearize": "torch.func.jvp",
    "torch.func.debug_unwrap": "print inside the function",
    "torch.func.rearrange": "reshape and permute",
    "torch.func.replace_all_batch_norm_modules_": "torch.nn.GroupNorm, or eval() for vmap",
    "torch.BufferDict": "torch.nn.Module.register_buffer",
    "torch.ParameterDict": "torch.nn.ParameterDict",
    "torch.embedding_renorm_": "torch.nn.Embedding(max_norm=)",
    "torch.windows": "torch.signal.windows",
    "torch.torch_version": "torch.__version__",
    "torch.while_loop": "a loop of Python, or tilegrad.func.scan",
    "torch.nn.functional.scaled_mm": "a product of x.float()",
    "torch.nn.functional.grouped_mm": "a product for each group",
    "torch.nn.UninitializedBuffer": "torch.nn.LazyBatchNorm1d and its like have sizes to come",
    "torch.set_anomaly_enabled": "torch.autograd.set_detect_anomaly",
    "torch.is_distributed": "no tensor is",
    "torch.is_storage": "isinstance(x, torch.Tensor)",
    "torch.Tensor.const_data_ptr": "x.data_ptr()",
    "torch.Tensor.dim_order": "x.stride()",
    "torch.Tensor.is_set_to": "x.data_ptr() == y.data_ptr()",
    "torch.Tensor.is_distributed": "no tensor is",
    "torch.Tensor.map2_": "x.copy_(f(x, y, z))",
    "torch.Tensor.module_load": "x.copy_(other)",
    "torch.Tensor.name": "model.named_parameters() has the names",
    "torch.Tensor.output_nr": "x.grad_fn",
    "torch.Tensor.geqrf": "torch.linalg.qr(x)",
    "torch.Tensor.ormqr": "torch.linalg.qr(x), and a product",
    "torch.Tensor.resize": "x.resize_(sizes), or x.reshape(sizes)",
    "torch.Tensor.index": "x[indices]",
    "torch.Tensor.sspaddmm": _SPARSE,
    "torch.Tensor.ccol_indices": _SPARSE,
    "torch.Tensor.crow_indices": _SPARSE,
    "torch.Tensor.chalf": "x.cfloat(): complex numbers have parts of float32 or float64",
    "torch.Tensor.grad_dtype": "x.grad.dtype",
    "torch.Tensor.new_empty_strided": "x.new_empty(size)",
    "torch.Tensor.record_stream": "launches are in one order, and run side by side where they may",
    "torch.Tensor.reinforce": "torch.distributions.Categorical(probs).log_prob(action)",
    "torch.Tensor.resize_as": "x.reshape(y.shape)",
    "torch.Tensor.slice_inverse": "torch.slice_scatter",
    "torch.Tensor.volatile": "torch.no_grad()",
    "torch.Tensor.symeig": "torch.linalg.eigh(x)",
    "torch.Tensor.eig": "torch.linalg.eig(x)",
    "torch.Tensor.triangular_solve": "torch.linalg.solve_triangular",
    "torch.Tensor.to_padded_tensor": "pad to one length, with a mask",
    "torch.Tensor.conj_physical_": "x.conj()",
    "torch.Tensor.hash_tensor": "x.hash() of tilegrad.Tensor",
    "torchvision": "load images with another library, and torch.from_numpy(array)",
}


# By what the last part of the name is like, where the table has nothing.
FAMILIES = [
    (re.compile(pattern), hint)
    for pattern, hint in (
        (r"_copy$", "the function without _copy, and .clone()"),
        (r"quantize|^q_|qscheme|^quint|^qint|^int_repr|^dequant|fake_quant|^choose_q|^fbgemm|"
         r"per_channel|per_tensor", _QUANTIZED),
        (r"^(cudnn|miopen|mkldnn|native|batch_norm)_|_emb_|^conv_tbc|^convolution|^is_vulkan|"
         r"^is_maia|^is_mtia|^is_xla|^to_mkldnn|^mtia|^xpu|^ipu|^maia|cudnn_is",
         "an entry to the kernels of one library: torch.nn.functional has the function"),
        (r"^(sym_|Sym)", "tilegrad.Variable is a symbolic number"),
        (r"sparse|_bsr|_bsc|_csc|^coalesce|dense_dim|^row_indices|^col_indices|^hspmm|^s?smm|^dsmm|"
         r"^saddmm", _SPARSE),
        (r"autocast", "torch.autocast(device_type, dtype=, enabled=) is what there is"),
        (r"Storage|^storage_type", "x.untyped_storage(), or x.numpy() for the memory"),
        (r"^(Script|Graph|Block|Node|Value|Argument|Alias|Inferred|FunctionSchema|Concrete|Compil|"
         r"Complete|Deserial|Serial|PyTorchFile|Tracing|Logg|Lock|Noop|Lite|Module|Operator|Static|"
         r"Execution|Error|FileCheck|Call|Code|Use|Gradient|Future|Await|JIT|import_ir|parse_|"
         r"merge_type|unify_type|read_vitals|vitals|set_vital|fork|wait|Bench|Throughput|Aggreg|AVG|SUM|"
         r"IODescr|Disable|Dispatch|Exclude|Tag)|Type$", "an internal of PyTorch's compiler; "
         + _COMPILER),
        (r"^(rnn|gru|lstm|quantized_lstm)", "torch.nn.RNN, LSTM and GRU, and their cells"),
        (r"^(bit|bits|u?int|float4|float8)[0-9x_]",
         "dtypes are torch.float8_e4m3fn, int8, float16, bfloat16 and wider ones"),
        (r"deterministic|determinism", "results are the same in every run"),
        (r"^(functional_|has_torch|handle_torch|is_tensor_like|boolean_dispatch|get_swap|swap_|"
         r"is_opaque|Opaque|is_traceable)", "an internal of PyTorch's dispatch of functions"),
        (r"with_indices$", "the function without _with_indices, with return_indices=True"),
        (r"^unsafe_", "the function without unsafe_"),
        (r"_notes$|_args$|_common$|^common_|_WARNING$|^T_destination$", "a text of PyTorch's own "
         "documentation"),
    )
]  # fmt: skip

# The attributes of PyTorch's tensors that are absent here.
METHODS = frozenset({
    *(name.rpartition(".")[2] for name in HINTS if name.startswith("torch.Tensor.")),
    "coalesce", "col_indices", "dense_dim", "dequantize", "int_repr", "ipu", "mtia",
    "q_per_channel_axis", "q_per_channel_scales", "q_per_channel_zero_points", "q_scale",
    "q_zero_point", "qscheme", "resize_as_sparse_", "row_indices", "smm", "sparse_dim",
    "sparse_resize_", "sparse_resize_and_clear_", "storage_type", "to_mkldnn", "to_sparse_bsc",
    "to_sparse_bsr", "to_sparse_csc", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes",
    "xpu",
}) - {"to_sparse"}  # fmt: skip
