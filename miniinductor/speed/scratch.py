"""Values that wait between two loops: where few of a symbolic number lie on the stack, and where
many lie in the memory of a result.

    float small_scratch0[2048];
    float* scratch0 = s0 <= 2048 ? small_scratch0 : mini::scratch<float, 0>(s0);

    out0[r0] = exp(in0[r0] - max);          # a guest: the result is written over it
    out0[r0] = out0[r0] / sum;

In:   a C++ kernel, some of whose rows are too long for the stack (codegen/plan.py:
      `Crossings.stored`).  Out: `Crossings.guests`: a stored buffer -> the result whose memory it
      uses until then.  Without this file such a buffer has memory of its own.
"""

from ..codegen.cpp import SCRATCH, CppKernelWriter
from ..ir import Scatter
from ..nodes import Node
from ..sizes.symbols import Size

SMALL_SCRATCH = 2048  # elements of each: more lie in memory that each thread keeps, and that grows
plain_declare_array = CppKernelWriter.declare_array


def declare_array(self: CppKernelWriter, array: str, c_type: str, count: Size) -> None:
    if isinstance(count, int):
        plain_declare_array(self, array, c_type, count)
        return
    number, size = array.removeprefix("scratch"), self.size(count)
    self.outside.add(f"{c_type} small_{array}[{SMALL_SCRATCH}];", SCRATCH)
    self.outside.add(
        f"{c_type}* {array} = {size} <= {SMALL_SCRATCH} ? small_{array} : "
        f"mini::scratch<{c_type}, {number}>({size});",
        SCRATCH,
    )


def may_use_stack(self: CppKernelWriter) -> bool:
    return all(s.keeps_stack for s in self.strategies)


setattr(CppKernelWriter, "declare_array", declare_array)
setattr(CppKernelWriter, "may_use_stack", may_use_stack)


# --- in the memory of a result --------------------------------------------------------------------
plain_decide = CppKernelWriter.decide


def decide(self: CppKernelWriter) -> None:
    kept = frozenset(self.keep)
    plain_decide(self)
    guests = self.crossings.guests
    for node in self.plan.nodes:
        users = self.plan.later_loops(node) if node.name in self.crossings.stored else []
        taken = {*self.overwritten, *guests.values()}
        if len(users) == 1 and users[0].name in kept and users[0].name not in taken:
            if may_be_guest(self, node, users[0]):
                guests[node.name] = users[0].name


def may_be_guest(writer: CppKernelWriter, node: Node, user: Node) -> bool:
    """Is each element of `node` read just to store one of the same size, by `user`, in the same
    place?  There the memory of the user's result serves both."""
    plan, buffers = writer.plan, writer.buffers
    has_scatter = any(isinstance(n.buffer.data, Scatter) for n in plan.nodes)
    if user.is_reduction or has_scatter:
        return False
    if buffers[user.name].layout.dtype != buffers[node.name].layout.dtype:
        return False
    body = plan.bodies[user.name]
    places = {access.index for access in body.writes()}
    places |= {access.index for access in body.reads() if access.name == node.name}
    return places == {plan.bodies[node.name].writes()[0].index}


setattr(CppKernelWriter, "decide", decide)
