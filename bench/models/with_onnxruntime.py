"""The rows as graphs of ONNX, run by onnxruntime into memory that is bound once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from models import nets
from models.inputs import some
from models.library import Library, Made
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Onnx"]

_OPSET = 23
_TYPES = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "int64": TensorProto.INT64,
          "int8": TensorProto.INT8}  # fmt: skip


class Node:
    """A named value of a graph; inputs know their shapes."""

    def __init__(self, graph: Ops, name: str, shape: tuple[int, ...] = ()):
        self.graph, self.name, self.shape = graph, name, shape

    def __add__(self, other: Any) -> Node:
        return self.graph.op("Add", self, other)


class Ops:
    """A graph that grows; the networks' operations."""

    def __init__(self) -> None:
        self._names = (f"v{number}" for number in itertools.count())
        self._nodes: list[Any] = []
        self._constants: dict[int, tuple[Any, Any]] = {}

    def op(self, kind: str, *sources: Any, outputs: int = 1, **attributes: Any) -> Any:
        names = [next(self._names) for _ in range(outputs)]
        given = [self._name(source) for source in sources]
        self._nodes.append(helper.make_node(kind, given, names, **attributes))
        found = [Node(self, name) for name in names]
        return found[0] if outputs == 1 else found

    def _name(self, source: Any) -> str:
        if source is None:
            return ""
        if isinstance(source, Node):
            return source.name
        kept = self._constants.get(id(source))
        if kept is None:
            tensor = numpy_helper.from_array(np.asarray(source), next(self._names))
            # The array is kept, so that its id stays its own.
            kept = self._constants[id(source)] = (source, tensor)
        name: str = kept[1].name
        return name

    def model(self, inputs: dict[str, Any], outputs: dict[Node, Any]) -> bytes:
        def typed(name: str, dtype: Any) -> Any:
            return helper.make_tensor_value_info(name, _TYPES[np.dtype(dtype).name], None)

        taken = [
            helper.make_tensor_value_info(name, _TYPES[array.dtype.name], array.shape)
            for name, array in inputs.items()
        ]
        given = [typed(node.name, dtype) for node, dtype in outputs.items()]
        constants = [tensor for _, tensor in self._constants.values()]
        graph = helper.make_graph(self._nodes, "row", taken, given, constants)
        opset = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=10)
        return bytes(model.SerializeToString())

    # operations of the networks

    def conv(self, x: Any, w: Any, bias: Any, stride: int = 1, padding: int = 0,
             groups: int = 1) -> Node:  # fmt: skip
        found: Node = self.op("Conv", x, w, *([] if bias is None else [bias]),
                              strides=[stride] * 2, pads=[padding] * 4, group=groups)  # fmt: skip
        return found

    def batchnorm(self, x: Any, w: nets.Weights, name: str) -> Any:
        parts = ("weight", "bias", "running_mean", "running_var")
        return self.op("BatchNormalization", x, *(w[f"{name}.{part}"] for part in parts))

    def relu(self, x: Any) -> Any:
        return self.op("Relu", x)

    def max_pool(self, x: Any, size: int, stride: int, padding: int) -> Any:
        return self.op("MaxPool", x, kernel_shape=[size] * 2, strides=[stride] * 2,
                       pads=[padding] * 4)  # fmt: skip

    def mean_of_pixels(self, x: Any) -> Any:
        return self.flat(self.op("GlobalAveragePool", x))

    def flat(self, x: Any) -> Any:
        return self.op("Flatten", x)

    def linear(self, x: Any, w: Any, bias: Any) -> Any:
        found = self.op("MatMul", x, self.op("Transpose", w))
        return found if bias is None else found + bias

    def layernorm(self, x: Any, weight: Any, bias: Any) -> Any:
        return self.op("LayerNormalization", x, weight, bias)

    def gelu(self, x: Any, approximate: str) -> Any:
        return self.op("Gelu", x, approximate=approximate)

    def rows(self, table: Any, ids: Any) -> Any:
        return self.op("Gather", table, ids)

    def first_rows(self, table: Any, count: int) -> Any:
        return np.ascontiguousarray(table[:count])

    def row(self, table: Any, at: int) -> Any:
        return np.ascontiguousarray(table[at])

    def heads(self, x: Any, count: int) -> Any:
        parts = self.op("Reshape", x, np.array([0, 0, 3, count, -1]))
        parts = self.op("Transpose", parts, perm=[2, 0, 3, 1, 4])
        return [self.op("Gather", parts, np.array(number)) for number in range(3)]

    def joined(self, x: Any) -> Any:
        return self.op("Reshape", self.op("Transpose", x, perm=[0, 2, 1, 3]), np.array([0, 0, -1]))

    def attention(self, q: Any, k: Any, v: Any, is_causal: bool) -> Any:
        return self.op("Attention", q, k, v, is_causal=int(is_causal))

    def cached_attention(self, q: Any, k: Any, v: Any, caches: Any, layer: int, at: int) -> Any:
        """The cache is an input of as many places as are filled; the longer one is given back, and
        replaces it in the next call of a decoding loop.
        """
        found, _, _ = self.op("Attention", q, k, v, None, *caches[layer], outputs=3)
        return found

    def last_place(self, x: Any) -> Any:
        return self.op("Gather", x, np.array(-1), axis=1)

    def first_place(self, x: Any) -> Any:
        return self.op("Gather", x, np.array(0), axis=1)

    def pixels_last(self, x: Any) -> Any:
        return self.op("Transpose", self.op("Reshape", x, np.array([0, 0, -1])), perm=[0, 2, 1])

    def prepended(self, x: Any, first: Any) -> Any:
        batch = self.op("Shape", x, start=0, end=1)
        shape = self.op("Concat", batch, np.array(first.shape[1:]), axis=0)
        return self.op("Concat", self.op("Expand", first, shape), x, axis=1)


class Onnx(Library):
    def __init__(self, threads: int):
        self._options = onnxruntime.SessionOptions()
        self._options.intra_op_num_threads = threads

    def _run(
        self, build: Callable[..., Any], *arrays: Any, outputs: tuple[Any, ...] = (np.float32,)
    ) -> Made:
        """`build(ops, *inputs)` gives the results, whose dtypes are `outputs`."""
        ops = Ops()
        given = {f"in{number}": array for number, array in enumerate(arrays)}
        nodes = [Node(ops, name, array.shape) for name, array in given.items()]
        found = build(ops, *nodes)
        results = found if isinstance(found, (tuple, list)) else [found]
        model = ops.model(given, dict(zip(results, outputs)))
        session = onnxruntime.InferenceSession(
            model, self._options, providers=["CPUExecutionProvider"]
        )
        names = [node.name for node in results]
        first = session.run(names, given)
        binding = session.io_binding()
        kept = [onnxruntime.OrtValue.ortvalue_from_numpy(value) for value in first]
        for name, array in given.items():
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        for name, value in zip(names, kept):
            binding.bind_ortvalue_output(name, value)

        def run() -> None:
            session.run_with_iobinding(binding)

        def values() -> list[float]:
            run()
            return some(*(value.numpy() for value in kept))

        return Made(run, values)

    def matmul(self, a: Any, b: Any) -> Made:
        return self._run(lambda ops, a, b: ops.op("MatMul", a, b), a, b)

    def matmul_int8(self, a: Any, b: Any) -> Made:
        exact = lambda ops, a, b: ops.op("MatMulInteger", a, b)  # noqa: E731
        return self._run(exact, a, b, outputs=(np.int32,))

    def convolution(self, x: Any, w: Any, stride: int, groups: int, kernel: int) -> Made:
        return self._run(lambda ops, x: ops.conv(x, w, None, stride, kernel // 2, groups), x)

    def softmax(self, x: Any) -> Made:
        return self._run(lambda ops, x: ops.op("Softmax", x, axis=1), x)

    def layernorm(self, x: Any) -> Made:
        scale = np.ones(x.shape[1], np.float32)
        return self._run(lambda ops, x: ops.op("LayerNormalization", x, scale), x)

    def gelu(self, x: Any) -> Made:
        return self._run(lambda ops, x: ops.gelu(x, "none"), x)

    def sum(self, x: Any) -> Made:
        return self._run(lambda ops, x: ops.op("ReduceSum", x, keepdims=0), x)

    def copy(self, x: Any) -> Made:
        """A slice that leaves nothing out; Identity would be no work there."""
        ends = np.array([0, 0]), np.array(x.shape)
        return self._run(lambda ops, x: ops.op("Slice", x, *ends), x)

    def transpose(self, x: Any) -> Made:
        return self._run(lambda ops, x: ops.op("Transpose", x), x)

    def gather(self, x: Any, ids: Any) -> Made:
        return self._run(lambda ops, x, ids: ops.op("Gather", x, ids), x, ids)

    def cumsum(self, x: Any) -> Made:
        return self._run(lambda ops, x: ops.op("CumSum", x, np.array(1)), x)

    def sort(self, x: Any) -> Made:
        return self._topk(x, len(x), largest=0)

    def topk(self, x: Any, k: int) -> Made:
        return self._topk(x, k, largest=1)

    def _topk(self, x: Any, k: int, largest: int) -> Made:
        def build(ops: Ops, x: Node) -> Any:
            return ops.op("TopK", x, np.array([k]), outputs=2, largest=largest)

        return self._run(build, x, outputs=(np.float32, np.int64))

    def attention(self, *qkv: Any) -> Made:
        return self._run(lambda ops, q, k, v: ops.attention(q, k, v, False), *qkv)

    def chain(self, x: Any, turned: Any, steps: int) -> Made:
        def build(ops: Ops, x: Any, turned: Any) -> Any:
            for _ in range(steps):
                x = ops.op("MatMul", x, turned)
            return x

        return self._run(build, x, turned)

    # networks

    def resnet(self, x: Any) -> Made:
        w = nets.resnet_weights()
        return self._run(lambda ops, x: nets.resnet(ops, w, x), x)

    def gpt2_decode(self, token: Any, caches: Any, config: dict[str, int], at: int) -> Made:
        sizes = nets.Transformer(**config)
        w = nets.decoder_weights(sizes)
        filled = [np.ascontiguousarray(part[..., :at, :]) for layer in caches for part in layer]

        def build(ops: Ops, token: Node, *caches: Node) -> Any:
            pairs = [caches[number : number + 2] for number in range(0, len(caches), 2)]
            return nets.decoder(ops, w, sizes, token, at=at, caches=pairs, last_only=True)

        return self._run(build, token, *filled)

    def gpt2_prefill(self, tokens: Any, config: dict[str, int]) -> Made:
        sizes = nets.Transformer(**config)
        w = nets.decoder_weights(sizes)

        def build(ops: Ops, tokens: Node) -> Any:
            return nets.decoder(ops, w, sizes, tokens, last_only=True)

        return self._run(build, tokens)

    def vit(self, x: Any, config: dict[str, int]) -> Made:
        sizes = nets.Transformer(**config)
        w = nets.vit_weights(sizes)
        return self._run(lambda ops, x: nets.vit(ops, w, sizes, x), x)
