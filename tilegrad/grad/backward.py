"""Reverse mode: the gradients of a value, as graphs.

The nodes between the targets and the loss are visited users first, so that a node's gradient, the
sum of its users' contributions, is complete when its own rule runs. Nothing is computed here: the
result is a graph like any other, and can be differentiated again.

Nodes that a rule makes have the origin of the node they derive, so that the cost of the backward
pass shows at the user's line that made the forward one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence, Set

from tilegrad.base.errors import DTypeError, InternalError, ShapeError, article
from tilegrad.grad.derivative_templates import from_template
from tilegrad.grad.loop_gradients import LOOPS, loop_gradients
from tilegrad.grad.node_hooks import has_watchers, is_watched, seen
from tilegrad.grad.regions import Region, has_regions, moved, region_of, regions_among, waiting_copy
from tilegrad.grad.rules import DERIVATIVES, NO_DERIVATIVE
from tilegrad.grad.summed_gradients import is_zero, sum_axes
from tilegrad.ir.movement import fill
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import device_of
from tilegrad.ir.uop import UOp, toposort
from tilegrad.ir.walks import toposort_over

__all__ = ["below", "from_memory", "gradients", "inherit_origin", "pullback"]

Computed = Mapping[UOp, UOp]
# The region of each node that is an output of one, and the number of the output.
Outputs = Mapping[UOp, tuple[Region, int]]


_NOTHING: Set[UOp] = frozenset()
_WRITTEN = (Ops.ASSIGN, Ops.AFTER)
_EDGES = frozenset({Ops.BUFFER, Ops.CONTIGUOUS, Ops.COPY, Ops.ASSIGN})
# So far it is looked for a target below another one.
_MOST_BELOW = 256


def gradients(
    loss: UOp,
    seed: UOp,
    targets: Sequence[UOp],
    computed: Computed | None = None,
    order: Collection[UOp] | None = None,
) -> list[UOp | None]:
    """The gradient of `loss` with respect to each of `targets`; None where none flows to it.

    `seed` is the gradient with respect to `loss` itself: 1 for a loss proper, otherwise what the
    rest of a larger derivative passes down. Its shape is that of `loss`, or () for one number.
    `computed` gives, for memory that holds a computed value, the graph of that value, maybe in
    another shape: gradients go on to it.
    """
    edge = _edge(targets, computed)
    reached = toposort([loss], stop=edge.__contains__ if edge else None)
    if not _has_own_gradients(reached) and (not computed or not _reads_computed(reached, computed)):
        return from_template(
            reached, edge, seed, targets, lambda: pullback([loss], [seed], targets, computed)
        )
    return pullback([loss], [seed], targets, computed)


def _has_own_gradients(order: Collection[UOp]) -> bool:
    """Whether something beside the rules makes or sees gradients in the graph of `order`. Other
    graphs of the process do not count.
    """
    return bool(regions_among(order)) or (has_watchers() and any(map(is_watched, order)))


def _reads_computed(order: Iterable[UOp], computed: Computed) -> bool:
    """Whether some of `order` is memory whose graph is known."""
    return any(True for node in order if node.op is Ops.BUFFER and node in computed)


def _edge(targets: Sequence[UOp], computed: Computed | None) -> Set[UOp]:
    """The targets below which nothing counts for the gradients: no rule looks through them, and
    none of the others is below. So a parameter that waits for its update hides earlier steps.
    """
    edge = {node for node in targets if node.op in _EDGES and not node.is_constant}
    stack = [source for node in edge for source in node.src]
    seen: set[UOp] = set()
    # Asked once: it is a table of its own kind.
    graphs = computed or {}
    while stack:
        node = stack.pop()
        if node in seen or (node.op in NO_DERIVATIVE and node.op is not Ops.BUFFER):
            continue
        seen.add(node)
        if node in targets or (node.op is Ops.BUFFER and node in graphs):
            return _NOTHING
        if len(seen) > _MOST_BELOW:
            return _NOTHING
        stack += node.src
    return edge


def pullback(
    roots: Sequence[UOp],
    seeds: Sequence[UOp],
    targets: Sequence[UOp],
    computed: Computed | None = None,
    edge: Set[UOp] = _NOTHING,
) -> list[UOp | None]:
    """As `gradients`, of several values at once: `seeds` are the gradients of the loss with respect
    to `roots`. No gradient passes the targets `edge`, and nothing below them is visited.
    """
    computed = {} if computed is None else computed
    found = _regions_of(roots, targets, computed, edge)
    order = _order_of(roots, computed, found, edge)
    # From here on only nodes of this graph.
    elsewhere, computed = computed, {node: computed[node] for node in order if node in computed}
    through = _nodes_between(order, frozenset(targets), computed, found)
    flow: dict[UOp, UOp] = {}
    for root, seed in zip(roots, seeds, strict=True):
        _check(root, seed)
        whole = seed if seed.shape == root.shape else _fill(seed, root)
        flow[root] = flow[root] + whole if root in flow else whole
    regions = _Regions(
        {node: found[node] for node in order if node in through and node in found},
        targets,
        elsewhere,
        lambda given: from_memory(given, order, computed),
    )
    is_any_watched = has_watchers()
    # The gradients of a loop's outputs: the loop comes when all of them are known.
    outputs_of: dict[UOp, dict[int, UOp]] = {}
    for node in reversed(order):
        gradient = flow.get(node)
        if node not in through:
            continue
        if gradient is not None and is_any_watched:
            gradient = flow[node] = seen(node, gradient, through)
        if node in found:
            regions.reach(found[node], gradient, flow, through)
            continue
        if node.op is Ops.LOOP:
            given = outputs_of.pop(node, {})
            for source, total in loop_gradients(node, given, through, pullback):
                flow[source] = flow[source] + total if source in flow else total
            continue
        if gradient is None or (node.op in NO_DERIVATIVE and node not in computed):
            continue
        if node.op is Ops.LOOP_OUTPUT and node not in computed:
            outputs_of.setdefault(node.src[0], {})[node.arg] = gradient
            continue
        _pass_down(node, gradient, computed, through, order, flow)
    return from_memory([flow.get(x) if x in through else None for x in targets], order, computed)


def _pass_down(
    node: UOp,
    gradient: UOp,
    computed: Computed,
    through: Container[UOp],
    order: Container[UOp],
    flow: dict[UOp, UOp],
) -> None:
    """Add to `flow` the gradients for the sources of `node`, from its own `gradient`."""
    is_computed = node in computed
    sources: Sequence[UOp] = (computed[node],) if is_computed else node.src
    contributions: Sequence[UOp | None] = (
        (gradient,) if is_computed else DERIVATIVES[node.op](node, gradient)
    )
    for source, contribution in zip(sources, contributions, strict=True):
        if contribution is None or source not in through:
            continue
        fitting = _fit(contribution, source)
        known = flow.get(source)
        if known is None or is_zero(known):
            total = fitting
        else:
            total = known if is_zero(fitting) else _sum(known, fitting, node)
        if node.origin:
            inherit_origin(total, node, order, (gradient,))
        flow[source] = total


def from_memory(
    found: Sequence[UOp | None], order: dict[UOp, None], computed: Computed
) -> list[UOp | None]:
    """Derivatives that read from memory what is there: a rule may use the value of its node, as
    exp2's does. An assignment that has been stored is not run again.
    """
    if not computed:
        return list(found)
    stored = {node: node for node in order if node.op in _WRITTEN and node.stored is not None}
    stored |= {
        graph: UOp(Ops.RESHAPE, node.dtype, (node,), graph.shape)
        for node in order
        if node in computed
        for graph in [computed[node]]
    }
    return [gradient if gradient is None else gradient.substitute(stored) for gradient in found]


class _Regions:
    """The regions of a graph while gradients run down it, users first.

    A region comes with the last of its outputs. Its copy waits for what the copy of the
    region above it gave to the targets, so that the memory of one copy is free for the next.
    """

    def __init__(
        self,
        outputs: Outputs,
        targets: Sequence[UOp],
        computed: Computed,
        from_memory: Callable[[Sequence[UOp | None]], list[UOp | None]],
    ):
        self._computed, self._from_memory = computed, from_memory
        self._targets = frozenset(targets)
        self._open: dict[Region, int] = {}
        self._found: dict[Region, dict[int, UOp]] = {}
        self._given: list[UOp] = []
        for region, _ in outputs.values():
            self._open[region] = self._open.get(region, 0) + 1

    def reach(
        self,
        found: tuple[Region, int],
        gradient: UOp | None,
        flow: dict[UOp, UOp],
        through: Set[UOp],
    ) -> None:
        """Note the gradient of an output, and if it was the last one pass all on to the inputs."""
        region, number = found
        if gradient is not None:
            # A computed output is known by its memory as well, which is another node.
            given = self._found.setdefault(region, {})
            given[number] = given[number] + gradient if number in given else gradient
        self._open[region] -= 1
        if self._open[region] or region not in self._found:
            return
        given = self._found.pop(region)
        if not region.is_computed_anew:
            whole = [given.get(number) for number in range(len(region.leaves))]
            if region.rule is not None:
                # Its values may be asked for.
                whole = self._from_memory(whole)
            self._add(region, region.passed_on(whole), flow, through)
            return
        first = dict.fromkeys([*given.values(), *self._given])
        devices = [(each, device_of(each)) for each in first if not each.is_constant]
        copies: dict[UOp, UOp] = {}
        for own, value in zip(region.leaves, region.inputs, strict=True):
            # A kernel's sources are on one device.
            here = device_of(value)
            near = [each for each, device in devices if device == here]
            copies[own] = waiting_copy(value, *near)
        roots = moved([region.outputs[number] for number in given], copies, unwatched=())
        wanted = [*copies.values(), *region.outer]
        # The graph around passes gradients below an input: a parameter that other regions use as
        # well gets its gradient from each of them.
        edge = frozenset(copies.values())
        contributions = pullback(roots, list(given.values()), wanted, self._computed, edge)
        self._add(region, contributions, flow, through)
        self._given = [
            flow[source]
            for source in region.sources
            if source in self._targets and source in flow and not flow[source].is_constant
        ]

    @staticmethod
    def _add(
        region: Region, contributions: Sequence[UOp | None], flow: dict[UOp, UOp], through: Set[UOp]
    ) -> None:
        """Add `contributions` to the gradients of the region's sources."""
        for source, gradient in zip(region.sources, contributions, strict=True):
            if gradient is not None and source in through:
                gradient = _fit(gradient, source)
                flow[source] = flow[source] + gradient if source in flow else gradient


def _check(loss: UOp, seed: UOp) -> None:
    if not loss.dtype.is_float:
        raise DTypeError(
            f"backward: {article(loss.dtype.name)} tensor has no gradient",
            remedy="start from a float tensor, such as a mean",
        )
    if seed.dtype is not loss.dtype:
        raise DTypeError(
            f"backward: the gradient is {seed.dtype.name}, the tensor {loss.dtype.name}"
        )
    if seed.shape not in ((), loss.shape):
        raise ShapeError(f"backward: the gradient has shape {seed.shape}, the tensor {loss.shape}")


def _regions_of(
    roots: Sequence[UOp], targets: Sequence[UOp], computed: Computed, edge: Set[UOp]
) -> Outputs:
    """The outputs of regions below `roots` and above `edge`, but for regions that hold a target:
    equal graphs are one, so what was computed plainly too may be asked for, and then is not
    computed anew.
    """
    if not has_regions():
        return {}
    found = _regions_below(roots, computed, edge)
    asked = frozenset(targets)
    plain: set[Region] = set()
    for node, (region, _) in found.items():
        sources = frozenset(region.sources)
        if region.is_computed_anew and region not in plain and not asked <= sources:
            inside = toposort([node], stop=sources.__contains__)
            if any(each in asked and each not in sources and each is not node for each in inside):
                plain.add(region)
    return {node: known for node, known in found.items() if known[0] not in plain}


def _regions_below(roots: Sequence[UOp], computed: Computed, edge: Set[UOp] = _NOTHING) -> Outputs:
    """The outputs of all regions, of those that only gradients lead to as well: the value of an
    output may have nothing to do with the sources of its region.
    """
    if not regions_among(_order_of(roots, computed, {}, edge)):
        # No function of Python is called for a node of a graph that has none.
        return {}

    def sources(node: UOp) -> tuple[UOp, ...]:
        if node in edge:
            return ()
        found = region_of(node)
        own = (computed[node],) if node in computed else node.src
        return own if found is None else (*own, *found[0].sources)

    return regions_among(toposort_over(roots, sources))


def below(
    roots: UOp | Sequence[UOp], computed: Computed, regions: Outputs | None = None
) -> dict[UOp, None]:
    """The graph of `roots`, sources first, with the graphs of the memory that it reads, but without
    the inside of `regions`, by default of all regions.
    """
    several = [roots] if isinstance(roots, UOp) else list(roots)
    if regions is None:
        regions = _regions_below(several, computed) if has_regions() else {}
    return _order_of(several, computed, regions)


def _order_of(
    roots: Sequence[UOp], computed: Computed, regions: Outputs, edge: Set[UOp] = _NOTHING
) -> dict[UOp, None]:
    """As `below`, without the inside of `regions` and of no others, and without nodes below
    `edge`.
    """
    order = toposort(roots, stop=edge.__contains__ if edge else None)
    is_computed = bool(computed) and _reads_computed(order, computed)
    if not is_computed and regions.keys().isdisjoint(order):
        return order
    return toposort_over(
        roots, lambda node: () if node in edge else _sources(node, computed, regions)
    )


def _sources(node: UOp, computed: Computed, regions: Outputs) -> tuple[UOp, ...]:
    """The nodes that the gradient of `node` is passed to."""
    if node in computed:
        return (computed[node],)
    return regions[node][0].sources if node in regions else node.src


def _nodes_between(
    order: dict[UOp, None], targets: Set[UOp], computed: Computed, regions: Outputs
) -> set[UOp]:
    """The nodes of `order`, sources first, through which a gradient reaches a target."""
    through: set[UOp] = set()
    for node in order:
        if not node.dtype.is_float and node.op is not Ops.LOOP:
            continue
        if node in targets or (node in computed and computed[node] in through):
            through.add(node)
        elif node in regions:
            if any(source in through for source in regions[node][0].sources):
                through.add(node)
        elif not through.isdisjoint(node.src) and node.op not in NO_DERIVATIVE:
            if node.op not in DERIVATIVES and node.op not in LOOPS:
                raise InternalError(f"grad: no rule for {node.op}", node=repr(node)[:300])
            through.add(node)
    return through


def _fill(seed: UOp, loss: UOp) -> UOp:
    ones = fill(loss.shape, 1.0, loss.dtype)
    return fill(loss.shape, seed.arg, loss.dtype) if seed.op is Ops.CONST else ones * seed


def _sum(known: UOp, gradient: UOp, node: UOp) -> UOp:
    """The sum of the gradients from two users of a node; a multiply-add where it can be one."""
    if node.op is Ops.MULACC and gradient.op is Ops.MUL and gradient.shape == known.shape:
        return UOp(Ops.MULACC, gradient.dtype, (*gradient.src, known))
    return known + gradient


def _fit(gradient: UOp, source: UOp) -> UOp:
    """`gradient` in the shape of `source`, which may have been one number beside a whole tensor."""
    if gradient.shape == source.shape:
        return gradient
    if source.shape == ():
        gradient = sum_axes(gradient, tuple(range(len(gradient.shape))))
    # Otherwise the sizes are equal but written differently, as symbolic ones may be.
    return UOp(Ops.RESHAPE, gradient.dtype, (gradient,), source.shape)


def inherit_origin(made: UOp, node: UOp, *older: Container[UOp]) -> None:
    """Give the origin of `node` to all that was made of it: what is in none of `older`, the graph
    that it stands in and what its rule was given.
    """
    stack = [made]
    while stack:
        new = stack.pop()
        if new.origin or new.is_constant:
            # Zeros and the like are one node wherever they are made.
            continue
        for each in older:
            if new in each:
                break
        else:
            new.origin = node.origin
            stack += new.src
