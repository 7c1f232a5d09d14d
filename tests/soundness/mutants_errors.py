"""Mutants of the checks of values: each takes one of them away, or puts a simplification in that
eager does not make.

`FOCUS` tells the generators which operators to draw from, so that few cases are enough.
"""

import torch

from .mutants import mutant

aten = torch.ops.aten
# mutant -> names of OpInfos, or of conversions, kinds of layouts' cases, or changes of tensors
REFUSES_SINGULAR = "linalg.inv,linalg.cholesky,linalg.solve,linalg.lu_factor"
FOCUS = {
    "errors: checks without results are dead code": REFUSES_SINGULAR,
    "errors: values are checked where they are read": "gather,index_select,__getitem__,take",
    "errors: kernels that only check are dropped": "gather,index_select,index_add,index_copy",
    "errors: positions are not checked": "gather,index_select,scatter,index_add,index_copy,take",
    "errors: positions that nobody uses are not checked": "gather,scatter,scatter_add,index_select,"
    "scatter_reduce.sum,scatter_reduce.amax",
    "errors: negative positions count from the end": "index_add,index_copy,gather,index_select",
    "errors: every dtype has a kernel": "add,mul,exp,bitwise_not,nn.functional.gelu,floor_divide,"
    "sin,maximum",
    "errors: a probability may be anything": "nn.functional.binary_cross_entropy",
    "errors: integers are divided by zero": "floor_divide,remainder,fmod,div.floor_rounding,"
    "div.trunc_rounding",
    "errors: x + 0.0 is x": "add,sum,mean",
    "gradients keep their bits": "gradient",
    "no guard of the class": "__class__=",
    "no guard of requires_grad": "requires_grad=,requires_grad_",
    "no guard of the storage offset": "data=,set_",
    "results lose their bits": "lazy",
    "lazy views are copied as they are": "lazy",
    "aliases: copies may be left out before an output": "clone,to copy,torch.tensor,"
    "torch.asarray copy,repeat,cat",
}


@mutant("errors: checks without results are dead code", "errors --count 60 --modes aot_eager")
def no_checks():
    from miniinductor.autograd import functionalize

    functionalize.only_checks = lambda node: False


@mutant(
    "errors: the scheduler drops kernels without result",
    "randomness --only unread --modes inductor --seconds 60",
)
def no_effects():
    """(Kernels that only check stay for another reason: `Graph.checks`.)"""
    from miniinductor.schedule import scheduler

    scheduler.has_effect = lambda buffer: False


@mutant("errors: values are checked where they are read", "errors --count 150 --modes inductor")
def no_checks_of_the_rest():
    from miniinductor.lowering import graph

    graph.calls_to_store = lambda nodes, is_forward: set()


@mutant("errors: kernels that only check are dropped", "errors --count 150 --modes inductor")
def no_kernels_for_checks():
    from miniinductor.ir.loops import Graph

    Graph.checks = property(lambda self: set(), lambda self, value: None)


@mutant("errors: positions are not checked", "errors --count 150 --modes inductor")
def no_index_checks():
    from miniinductor.codegen.cpp.expressions import CppExpressions

    CppExpressions.error_if = lambda self, condition, error: None


@mutant("errors: positions that nobody uses are not checked", "errors --count 300 --modes inductor")
def no_unused_positions():
    from miniinductor.ir import handlers

    handlers.HAS_EFFECT = ("store",)


@mutant("errors: negative positions count from the end", "errors --count 200 --modes inductor")
def wrapped_positions():
    from miniinductor.codegen.cpp.expressions import CppExpressions

    plain = CppExpressions.indirect_indexing
    CppExpressions.indirect_indexing = lambda self, value, size, wrap_neg=True: plain(
        self, value, size, True
    )


@mutant("errors: every dtype has a kernel", "errors --count 100000 --only untouched")
def no_dtype_question():
    from miniinductor.autograd import fake_mode as eager_answers

    eager_answers.computes = lambda op: False


@mutant("errors: a probability may be anything", "errors --count 150 --modes inductor")
def any_probability():
    from torch._decomp import decomposition_table

    from miniinductor.lowering import decompositions, extern

    op = aten.binary_cross_entropy.default
    del extern.EXTERN[op]
    decompositions.OURS[op] = decomposition_table[op]


@mutant("errors: x + 0.0 is x", "errors --count 900 --modes inductor")
def plus_zero():
    from miniinductor.codegen.cpp.expressions import CppExpressions

    plain = CppExpressions.binary

    def binary(self, op, a, b):
        if op == "add" and b.text in ("0.0f", "0.0"):
            return a
        return plain(self, op, a, b)

    CppExpressions.add = lambda self, a, b: binary(self, "add", a, b)


@mutant("aliases: copies may be left out before an output", "aliases --count 60 --modes aot_eager")
def no_copies():
    from miniinductor.passes import graph_passes

    def remove(gm):
        for node in list(gm.graph.nodes):
            if node.target in (aten.clone.default, aten._to_copy.default):
                node.replace_all_uses_with(node.args[0])

        return 0

    graph_passes.CLEANING["no-ops"] = remove
