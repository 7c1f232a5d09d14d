"""Eager kernels instead of generated ones, and errors in eager's words.

In:   a `Compilation` (compile.py).   Out: of aot_eager, the functional graph run by eager kernels;
      of a graph whose kernels may refuse a value, eager's own exception.

    >>> run = Interpreted(functional, written=[]).start()       # stands for a Program
    >>> told = with_eager_errors(run, gm)

Mirrors `aot_eager` (torch/_dynamo/backends/debugging.py).
"""

import linecache
import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx

from ..autograd.joint import Joint
from ..autograd.runtime import Plan, writable
from ..checks import may_raise
from ..compile import Compilation
from ..eager_graphs import runnable
from ..foreign import ours
from ..hooks import extends
from ..records import CompileRecord


@extends(Compilation)
class WithEagerKernels(Compilation):
    def decompositions(self) -> Any:
        return super().decompositions() if self.generates else None

    def rewritten(self, functional: fx.GraphModule) -> fx.GraphModule:
        return super().rewritten(functional) if self.generates else functional

    def laid_out(self, joint: fx.GraphModule) -> fx.GraphModule:
        return super().laid_out(joint) if self.generates else joint

    def compile_functional(
        self, functional: fx.GraphModule, record: CompileRecord, written: Sequence[tuple[str, str]]
    ) -> Any:
        if self.generates:
            return super().compile_functional(functional, record, written)
        return Interpreted(functional, written)

    def plan_of(self, joint: Joint, program: Any, forward: fx.GraphModule) -> Plan:
        plan = super().plan_of(joint, program, forward)
        plan.may_refuse = self.generates and may_refuse(forward)
        return plan

    def started(self, plan: Plan) -> Callable:
        run = super().started(plan)
        if not plan.may_refuse:
            return run
        return with_eager_errors(run, self.gm, writes=bool(plan.joint.written))


class Interpreted:
    """Stands for a Program: the functional graph run by eager kernels; mutated inputs are written
    back."""

    device = torch.device("cpu")  # of its kernels: it has none that could be recorded or replayed

    def __init__(self, gm: fx.GraphModule, written: Sequence[tuple[str, str]]):
        self.gm, self.written = gm, written

    def start(self) -> Callable:
        graph = runnable(self.gm)
        weakref.finalize(self.gm, forget_text, type(self.gm)).atexit = False
        names = [n.target for n in self.gm.graph.nodes if n.op == "placeholder"]

        def run(*inputs: object) -> list:
            recording = torch.is_grad_enabled()
            try:  # `with torch.no_grad()` could be cut short by an exception in its `__exit__`
                torch._C._set_grad_enabled(False)
                outputs, values = graph(*inputs)
                by_name = dict(zip(names, inputs))
                for (op, name), value in zip(self.written, values):
                    held = op != "placeholder"
                    holder = operator.attrgetter(name)(self.gm) if held else by_name[name]
                    holder.copy_(value)
                return writable(pytree.tree_leaves(outputs))
            finally:
                torch._C._set_grad_enabled(recording)

        return run


def forget_text(cls: Any) -> None:
    """torch.fx keeps the text of each graph that has run, for tracebacks: of the graph of this
    class, which has died, nobody needs it."""
    file = cls.forward.__code__.co_filename
    if torch.fx.graph_module._loader.eval_cache.pop(file, None) is not None:
        linecache.cache.pop(file, None)


# --- errors ---------------------------------------------------------------------------------------
def may_refuse(functional: fx.GraphModule) -> bool:
    """May a kernel raise for what it reads, and could the program run again then?"""
    tags = [getattr(n.target, "tags", ()) for n in functional.graph.nodes]
    if any(torch.Tag.nondeterministic_seeded in one for one in tags):
        return False
    return any(map(may_raise, functional.graph.nodes))


REPORT = "(in compiled kernel "  # how the message of a kernel that refuses a value ends


def with_eager_errors(run: Callable, gm: fx.GraphModule, writes: bool = False) -> Callable:
    """`run` of a graph that does not draw.  Where a kernel refuses a value, the graph runs once
    more with eager kernels, whose class and words of an exception are those that the program
    expects: scatter's is a RuntimeError, and our kernels know IndexError alone.

    writes: the graph writes to its tensors, so the second run has copies of them."""

    def call(*inputs: object) -> object:
        try:
            return run(*inputs)
        except ours(IndexError, RuntimeError) as error:
            if REPORT not in str(error):
                raise
            report = error
        try:
            # (`gm()` would print the error, and run the program's hooks of all modules)
            again = OnCopies(gm).run if writes else runnable(gm)
            again(*inputs)
            raise report  # eager has nothing to say: what our kernel has seen is not hidden
        finally:
            del report  # it knows this frame, which knows the inputs

    return call


class OnCopies(fx.Interpreter):
    """Runs a graph for its exception alone: nothing that it writes is the program's."""

    def __init__(self, gm: fx.GraphModule):
        super().__init__(gm)
        self.extra_traceback = False  # (it would add to the words of the exception)
        self.copies: dict[int, torch.Tensor] = {}

    def run(self, *inputs: Any) -> Any:
        recording = torch.is_grad_enabled()
        try:  # (autograd would refuse writes to what requires gradients)
            torch._C._set_grad_enabled(False)
            return super().run(*map(self.copied, inputs))
        finally:
            torch._C._set_grad_enabled(recording)

    def fetch_attr(self, target: str) -> Any:
        return self.copied(super().fetch_attr(target))

    def copied(self, value: Any) -> Any:
        """The same copy for the same tensor."""
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self.copies:
            self.copies[id(value)] = value.detach().clone()
        return self.copies[id(value)]
