"""What was disabled for torch.compile: the program's functions break the graph here, too.

    @torch.compiler.disable
    def log(x): ...

In:   a Python function of a mark that `torch.compiler.disable` leaves.
Out:  a graph break; of torch's own methods (torch.compile, once used, wraps those of its
      optimizers) the function that was wrapped.
"""

from ..extras.extending import extends
from ..exceptions import Break
from ..symbolic_eval.evaluator import Frame
from ..symbolic_eval.registry import RULES
from ..symbolic_eval.torch_rules import is_leaf
from ..variables.base import Args, Named, Variable
from ..variables.functions import FunctionVar
from .untraced_code import refuse

call_any_function = Frame.call_function


@extends(Frame)
class Disabled(Frame):
    def call_function(self, function: FunctionVar, args: Args, kwargs: Named) -> Variable:
        fn = function.fn
        marked = getattr(fn, "_torchdynamo_disable", False)
        if not marked or fn in RULES or is_leaf(fn):
            return call_any_function(self, function, args, kwargs)
        if not (fn.__module__ or "").startswith("torch."):
            raise Break("disabled", f"{fn.__qualname__} is disabled by torch.compiler.disable")
        refuse(fn)
        return self.output.wrap_pinned(fn.__wrapped__).call(self, args, kwargs)
