"""`torch.utils._pytree`: trees of tuples, lists, dicts and registered classes, with any leaves."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilegrad.torch.absent_hints import refuse_others

__all__ = [
    "GetAttrKey", "LeafSpec", "MappingKey", "SequenceKey", "TreeSpec", "keystr",
    "register_pytree_node", "tree_all", "tree_any", "tree_flatten", "tree_flatten_with_path",
    "tree_iter", "tree_leaves", "tree_map", "tree_map_", "tree_map_only", "tree_map_only_",
    "tree_map_with_path", "tree_structure", "tree_unflatten",
]  # fmt: skip


@dataclass(frozen=True)
class MappingKey:
    """The position of a value of a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclass(frozen=True)
class SequenceKey:
    """The position of an element of a tuple, list or deque."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@dataclass(frozen=True)
class GetAttrKey:
    """The position of a field of a named tuple, or of an attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


Leaf = Callable[[Any], bool] | None
"""Function that tells of a node whether it counts as a leaf, beside those that have no children."""


@dataclass(frozen=True)
class _Kind:
    """How a class comes apart, into children and what else makes it, and together again."""

    flatten: Callable[[Any], tuple[Sequence[Any], Any]]
    unflatten: Callable[[Sequence[Any], Any], Any]
    with_keys: Callable[[Any], tuple[Sequence[Any], Any]] | None = None


def _by_index(tree: Any) -> tuple[list[Any], Any]:
    return [(SequenceKey(number), each) for number, each in enumerate(tree)], None


# Under these names libraries use them for dicts of their own.
def _dict_flatten(d: Any) -> tuple[list[Any], list[Any]]:
    """The values of a dict, and its keys."""
    return list(d.values()), list(d)


def _dict_unflatten(values: Sequence[Any], context: list[Any]) -> dict[Any, Any]:
    """A dict of values and keys."""
    return dict(zip(context, values, strict=True))


def _dict_flatten_with_keys(d: Any) -> tuple[list[Any], list[Any]]:
    """As `_dict_flatten`, each value as a pair with its key in the structure."""
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


# Tables of classes: those of Python's own containers, and those that a program registers.
_kinds: dict[type, _Kind] = {
    tuple: _Kind(lambda tree: (tree, None), lambda leaves, _: tuple(leaves), _by_index),
    list: _Kind(lambda tree: (tree, None), lambda leaves, _: list(leaves), _by_index),
    dict: _Kind(_dict_flatten, _dict_unflatten, _dict_flatten_with_keys),
    OrderedDict: _Kind(
        _dict_flatten,
        lambda leaves, keys: OrderedDict(zip(keys, leaves, strict=True)),
        _dict_flatten_with_keys,
    ),
    defaultdict: _Kind(
        lambda tree: (list(tree.values()), (tree.default_factory, list(tree))),
        lambda leaves, made: defaultdict(made[0], zip(made[1], leaves, strict=True)),
        _dict_flatten_with_keys,
    ),
    deque: _Kind(
        lambda tree: (list(tree), tree.maxlen),
        lambda leaves, most: deque(leaves, maxlen=most),
        _by_index,
    ),
}
_NAMED = _Kind(
    lambda tree: (tree, type(tree)),
    lambda leaves, cls: cls(*leaves),
    lambda tree: ([(GetAttrKey(name), getattr(tree, name)) for name in tree._fields], type(tree)),
)


class TreeSpec:
    """The structure of a tree: the class of its top, what beside children makes it, and the
    children's structures. Two of equal structure are equal.

    Attributes: `num_leaves`, `num_nodes` (leaves among them) and `num_children`, counts.
    """

    __slots__ = ("children_specs", "context", "num_children", "num_leaves", "num_nodes", "type")

    def __init__(self, type: Any, context: Any, children_specs: Sequence[TreeSpec]):
        self.type, self.context, self.children_specs = type, context, list(children_specs)
        self.num_leaves: int
        self.num_nodes: int
        self.num_children = len(self.children_specs)
        self.num_leaves = sum(child.num_leaves for child in children_specs)
        self.num_nodes = 1 + sum(child.num_nodes for child in children_specs)

    def is_leaf(self) -> bool:
        """Whether this is the structure of a leaf."""
        return self.type is None

    def unflatten(self, leaves: Any) -> Any:
        """As `tree_unflatten(leaves, self)`."""
        return tree_unflatten(leaves, self)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The objects in `tree` at the leaves of this structure, in their order.

        Raises ValueError where `tree` does not begin with this structure.
        """
        found: list[Any] = []
        pending: list[tuple[TreeSpec, Any]] = [(self, tree)]
        while pending:
            spec, node = pending.pop()
            if spec.is_leaf():
                found.append(node)
                continue
            kind = _kind_of(node)
            children, context = ((), None) if kind is None else kind.flatten(node)
            made = (_type_of(node, kind), context, len(children))
            if made != (spec.type, spec.context, spec.num_children):
                raise ValueError(f"tree of {spec} expected, given {type(node).__name__}: {node!r}")
            pending += reversed(list(zip(spec.children_specs, children, strict=True)))
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (self.type, self.context, self.children_specs) == (
            other.type, other.context, other.children_specs,
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((self.type, self.num_leaves, self.num_nodes))

    def __repr__(self) -> str:
        if self.is_leaf():
            return "*"
        inside = ", ".join(map(repr, self.children_specs))
        context = "" if self.context is None else f"{self.context!r}, "
        return f"TreeSpec({self.type.__name__}, {context}[{inside}])"


class LeafSpec(TreeSpec):
    """The structure of a leaf."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, None, ())
        self.num_leaves = 1


_LEAF = LeafSpec()


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[Sequence[Any], Any]],
    unflatten_fn: Callable[[Sequence[Any], Any], Any],
    *,
    flatten_with_keys_fn: Callable[[Any], tuple[Sequence[Any], Any]] | None = None,
    **options: Any,
) -> None:
    """Let objects of `cls` be nodes: `flatten_fn(obj)` gives their children and a context,
    `unflatten_fn(children, context)` the object again, and `flatten_with_keys_fn(obj)` pairs of key
    and child, and the context. Options that say how a structure is written to a file have no
    effect: none is.
    """
    _kinds[cls] = _Kind(flatten_fn, unflatten_fn, flatten_with_keys_fn)


def tree_flatten(tree: Any, is_leaf: Leaf = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of `tree`, from left to right, and its structure."""
    leaves: list[Any] = []
    return leaves, _structure(tree, is_leaf, leaves, ())


def tree_flatten_with_path(
    tree: Any, is_leaf: Leaf = None
) -> tuple[list[tuple[tuple[Any, ...], Any]], TreeSpec]:
    """Pairs of the keys that lead to a leaf and the leaf, from left to right; and the structure.

    Raises ValueError for a class that was registered without `flatten_with_keys_fn`.
    """
    found: list[tuple[tuple[Any, ...], Any]] = []
    pending: list[tuple[tuple[Any, ...], Any]] = [((), tree)]
    spec = tree_structure(tree, is_leaf)
    while pending:
        path, node = pending.pop()
        kind = None if is_leaf is not None and is_leaf(node) else _kind_of(node)
        if kind is None:
            found.append((path, node))
            continue
        if kind.with_keys is None:
            raise ValueError(f"{type(node).__name__} was registered without flatten_with_keys_fn")
        pending += [((*path, key), child) for key, child in reversed(kind.with_keys(node)[0])]
    return found, spec


def tree_map_with_path(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Leaf = None
) -> Any:
    """As `tree_map`, of `func(path, leaf, *others)`."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    return spec.unflatten(
        [func(*pair, *beside) for pair, *beside in zip(pairs, *others, strict=True)]
    )


def keystr(kp: Sequence[Any]) -> str:
    """The text of a path, `['a'][0].b`."""
    return "".join(map(str, kp))


def tree_structure(tree: Any, is_leaf: Leaf = None) -> TreeSpec:
    """The structure of `tree`."""
    return tree_flatten(tree, is_leaf)[1]


def tree_leaves(tree: Any, is_leaf: Leaf = None) -> list[Any]:
    """The leaves of `tree`, from left to right."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: Leaf = None) -> Iterator[Any]:
    """The leaves of `tree`, one after the other."""
    return iter(tree_leaves(tree, is_leaf))


def tree_unflatten(leaves: Any, treespec: TreeSpec) -> Any:
    """A tree of a structure with other leaves, as many as it has.

    Raises TypeError where `treespec` is none, ValueError where the numbers differ.
    """
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"tree_unflatten: a TreeSpec expected, given {type(treespec).__name__}")
    given = list(leaves)
    if len(given) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten: {len(given)} leaves given for {treespec.num_leaves} of {treespec}"
        )
    return _rebuilt(treespec, iter(given))


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Leaf = None) -> Any:
    """A tree of the structure of `tree`, with `func(leaf, *others)` in place of each leaf; `others`
    stand there in each of `rests`.

    Raises ValueError where one of `rests` does not begin with that structure.
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    return spec.unflatten(map(func, leaves, *others))


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Leaf = None) -> Any:
    """Call `func` for each leaf, as `tree_map` does; `tree` itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(
    type_or_types_or_pred: Any, func: Callable[[Any], Any], tree: Any, is_leaf: Leaf = None
) -> Any:
    """As `tree_map`, for leaves of these types or accepted by a function; others stay."""
    asked = _asked(type_or_types_or_pred)
    return tree_map(lambda leaf: func(leaf) if asked(leaf) else leaf, tree, is_leaf=is_leaf)


def tree_map_only_(
    type_or_types_or_pred: Any, func: Callable[[Any], Any], tree: Any, is_leaf: Leaf = None
) -> Any:
    """Call `func` for each leaf of these types; `tree` itself."""
    tree_map_only(type_or_types_or_pred, func, tree, is_leaf)
    return tree


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Leaf = None) -> bool:
    """Whether `pred` holds of each leaf."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Leaf = None) -> bool:
    """Whether `pred` holds of a leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def _asked(what: Any) -> Callable[[Any], bool]:
    if isinstance(what, (type, tuple)) or not callable(what):
        return lambda leaf: isinstance(leaf, what)
    return lambda leaf: bool(what(leaf))


def _kind_of(node: Any) -> _Kind | None:
    """How `node` comes apart; None for a leaf. Subclasses count as leaves, but named tuples."""
    found = _kinds.get(type(node))
    if found is None and isinstance(node, tuple) and hasattr(node, "_fields"):
        return _NAMED
    return found


def _type_of(node: Any, kind: _Kind | None) -> Any:
    if kind is None:
        return None
    return namedtuple if kind is _NAMED else type(node)


def _structure(tree: Any, is_leaf: Leaf, leaves: list[Any], inside: tuple[int, ...]) -> TreeSpec:
    kind = None if is_leaf is not None and is_leaf(tree) else _kind_of(tree)
    if kind is None:
        leaves.append(tree)
        return _LEAF
    if id(tree) in inside:
        raise ValueError(f"a {type(tree).__name__} that contains itself")
    children, context = kind.flatten(tree)
    inside = (*inside, id(tree))
    below = [_structure(child, is_leaf, leaves, inside) for child in children]
    return TreeSpec(_type_of(tree, kind), context, below)


def _rebuilt(spec: TreeSpec, leaves: Iterator[Any]) -> Any:
    if spec.is_leaf():
        return next(leaves)
    kind = _NAMED if spec.type is namedtuple else _kinds[spec.type]
    return kind.unflatten([_rebuilt(child, leaves) for child in spec.children_specs], spec.context)


refuse_others(__name__)
