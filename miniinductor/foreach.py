"""Many kernels of the same body become one: what an optimizer does to each parameter.

In:   scheduled nodes.  Out: the same, in which `Foreach` groups stand for several groups that
      compute the same of
different buffers, of different sizes.

    >>> [type(node).__name__ for node in nodes]         # the same done to three tensors of other sizes (AdamW: to 150)
    ['Group', 'Group', 'Group']
    >>> [type(node).__name__ for node in join_alike(scheduler, nodes, overwritten)]
    ['Foreach']

Groups are alike when their bodies are the same operations and every access is at element x0 or at a
fixed one, so that one loop over a number of elements serves all of them.  Only independent ones are
joined: those with equally long chains of nodes before them.  Results that would have to wait long
for their user stay in kernels of their own.

Mirrors combo kernels and foreach nodes in torch/_inductor (scheduler.py,
codegen/triton_combo_kernel.py).  Left out: joining different bodies.
"""

import math

from . import config
from .dependencies import Ref, Slot, int_or_none, loop_variable, merge_loops
from .scheduler import Group, Node, buffer_bytes

MOST_POINTERS = {"cpp": 960, "triton": 480}  # the launcher takes 1024 arguments, a GPU 4 KB of them
SMALL = 1 << 16  # bytes: a result that may wait for its user


class Foreach(Group):
    """Groups with the same body.  parts: (group over one loop, its buffers in the order in which
    the body names them)."""

    def __init__(self, parts):
        first = parts[0][0]
        super().__init__([n for group, _ in parts for n in group.nodes], first.outer, first.inner)
        self.parts = parts

    def __str__(self):
        (first, _), *others = self.parts
        return "\n".join(
            [
                f"{len(self.parts)} times the same kernel; the first:",
                str(first),
                *[
                    f"  and {', '.join(group.names)} over {list(group.outer)}"
                    for group, _ in others
                ],
            ]
        )


def join_alike(scheduler, nodes, overwritten):
    """`nodes` in execution order; overwritten: {buffer: input whose memory it takes}."""
    used = scheduler.escaping.union(*[n.read_names for n in nodes])
    level, sets = {}, {}
    for node, before in scheduler.makers(nodes).items():
        level[node] = 1 + max(map(level.get, before), default=-1)
        if isinstance(node, Group) and (found := one_loop(node)):
            group, key, names = found
            kept = [name for name in group.names if name in used]
            if all(
                name in scheduler.escaping or buffer_bytes(scheduler.buffers[name]) <= SMALL
                for name in kept
            ):
                types = tuple(
                    (b.layout.dtype, b.layout.device)
                    for b in (scheduler.buffers[name] for name in names)
                )
                places = tuple(
                    names.index(overwritten[n]) if overwritten.get(n) in names else n in overwritten
                    for n in kept
                )
                key = (level[node], key, types, tuple(map(names.index, kept)), places)
                sets.setdefault(key, []).append((node, group, names))
    replaced = {}
    for members in sets.values():
        device = members[0][1].nodes[0].buffer.layout.device
        step = MOST_POINTERS[config.cpu_backend if device.type == "cpu" else "triton"] // len(
            {overwritten.get(name, name) for name in members[0][2]}
        )
        for start in range(0, len(members), step):
            some = members[start : start + step]
            if len(some) > 1:
                joined = Foreach([(group, names) for _, group, names in some])
                replaced.update({node: joined for node, _, _ in some})
                scheduler.record.notes.append(
                    f"one kernel for {len(some)} groups that do the same with other buffers: "
                    f"{', '.join('+'.join(group.names) for _, group, _ in some[:4])}{', ...' * (len(some) > 4)}"
                )
    return list(dict.fromkeys(replaced.get(node, node) for node in nodes))


def one_loop(group):
    """(the group over one loop, what its bodies do with buffers numbered, the buffers' names in
    that order), or None."""
    if group.is_reduction or group.inner or group.has_scan or group.targets:
        return None
    bodies = merge_loops([n.body for n in group.nodes])
    if len(bodies[0].outer) > 1 or not int_or_none(math.prod(bodies[0].outer)):
        return None
    x0, names, text = loop_variable("x", 0), [], []
    for body in bodies:
        if any(index != x0 and not index.is_Integer for index in body.indices):
            return None
        for instruction in body.walk():
            if instruction.op in ("indirect_indexing", "masked"):
                return None
            args = list(instruction.args)
            if instruction.op in ("load", "store"):
                if args[0] not in names:
                    names.append(args[0])
                args[0] = names.index(args[0])
            text.append(
                (
                    instruction.op,
                    *[
                        str(body.indices[a.number])
                        if isinstance(a, Slot)
                        else a
                        if isinstance(a, Ref)
                        else repr(a)
                        for a in args
                    ],
                    instruction.result,
                )
            )
    outer = bodies[0].outer or (1,)
    nodes = [Node(n.buffer, b.substitute(outer, (), {})) for n, b in zip(group.nodes, bodies)]
    return Group(nodes, outer, ()), tuple(text), names
