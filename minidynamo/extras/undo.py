"""A graph that raised: undo what it wrote to the program's tensors and drew, so that plain Python
can run the frame from the start.

In:   the `OutputGraph` and its GraphModule, before a backend sees it.
Out:  `around(compiled)`, which puts the tensors back where the graph raises, and `raised`, which
      the replacement code calls then: it returns if the frame may run as plain Python, up to the
      error with its own message and line or to the program's own handler.

        with torch.inference_mode():
            graph_break()
            x.add_(1)
            y = x[index]        # out of range: x is put back, then plain Python adds and raises

The random number generators, too, are put back to where they stood: plain Python draws the same
numbers again. Copies are made where an error may come that fake tensors do not foresee: at the
first run, since kernels look closer (dtypes of a matrix product, of a result in place), and at each
run on a CPU if data decide (an index, a singular matrix).  Left out, so that the error leaves the
frame as it is: no memory left, a `resize_` to more of it, a write into the history that autograd
keeps of a tensor, and more memory than `config.undo_bytes`: a cache of keys and values is not
copied for each token. PyTorch: the graph's error leaves the frame, with what it has written,
whatever `try` or `with` stands around the operation.
"""

import linecache
import re
import sys

import torch
import torch.utils.checkpoint

from .. import config, records
from ..conversion import RECOVERIES, Recovery
from ..foreign import is_foreign, ours

# Names of operations that look at data and may refuse them.
DATA = re.compile(
    r"index|gather|scatter|embedding|^take|^put|one_hot|bincount|interleave|entropy"
    r"|nll_loss|ctc_loss|margin_loss|masked_scatter|multinomial|bernoulli|^normal"
    r"|linalg_(?!.*norm)|cholesky|inverse|solve|lstsq|pinv|slogdet"
    r"|^lu(_|$)|^qr$|^svd|^eig|^matrix_|^_?assert|_check|unpool|histogram|histc|^gcd|^lcm"
    r"|^binomial|^poisson|segment_reduce|searchsorted|vander|geometric|cauchy|exponential"
    r"|log_normal"
)
# Names of those that refuse a divisor of 0, where they compute with integers.
DIVISIONS = re.compile(r"div|floordiv|remainder|mod_?$")
# What torch.utils.checkpoint's hooks raise once they have recomputed all that backward needs: no
# error of the graph's, and what was written stays, as in eager.
STOPPED = getattr(torch.utils.checkpoint, "_StopRecomputationError", None)
# ... that draw random numbers, perhaps
DRAWS = re.compile(
    r"rand|dropout|bernoulli|multinomial|poisson|rrelu|gumbel|attention"
    r"|(normal|uniform|exponential|cauchy|geometric)_?$|^(lstm|gru|rnn)"
)


class Undo(Recovery):
    """`places`, `attributes`: inputs and parameters of the graph that it writes to, perhaps through
    a view.  `write`: the first node that does. `in_order`: the backend runs the nodes in the
    program's order.  `drawing`: it may draw random numbers.  `copying`: at the next run;
    `always_copying`: at each."""

    def __init__(self, output, gm, function, in_order):
        self.function, self.in_order, self.code, nodes = (
            function,
            in_order,
            type(gm).forward.__code__,
            list(output.graph.nodes),
        )
        writes = {}
        for node, fake in output.written:
            writes.setdefault(storage(fake), node)
        changed = [
            node
            for node in nodes
            if node.op in ("placeholder", "get_attr")
            and isinstance(fake := node.meta["example_value"], torch.Tensor)
            and storage(fake) in writes
        ]
        order = {node: n for n, node in enumerate(nodes)}
        self.write = min(
            (writes[storage(node.meta["example_value"])] for node in changed),
            key=order.get,
            default=None,
        )
        inputs = [variable.node for variable in output.inputs]
        self.places = [inputs.index(node) for node in changed if node in inputs]
        self.attributes = [
            output.attributes[node.target] for node in changed if node.op == "get_attr"
        ]
        effects = [node for node in nodes if node is self.write or draws(node)]
        self.drawing = any(map(draws, effects))
        after = nodes[order[effects[0]] :] if in_order and effects else nodes if effects else ()
        if any(node.meta["example_value"].layout is not torch.strided for node in changed):
            after = ()  # without a memory of its own
        self.always_copying = any(map(needs_data, after))
        self.copying = bool(after)

    def around(self, compiled):
        if not self.copying:
            return compiled

        def run(*args):
            if not self.copying:
                return compiled(*args)
            tensors = [*(args[n] for n in self.places), *self.attributes]
            memories = {
                memory._cdata: memory for memory in map(torch.Tensor.untyped_storage, tensors)
            }.values()
            if sum(memory.nbytes() for memory in memories) > config.undo_bytes:
                self.copying = self.always_copying
                return compiled(*args)
            before, generators = (
                [(tensor, state(tensor)) for tensor in tensors],
                states_of_generators() if self.drawing else (),
            )
            contents = [(memory, memory.clone()) for memory in memories]
            try:
                results = compiled(*args)
            except ours(Exception) as error:
                if type(error) is STOPPED:
                    raise
                vars(error)["undone"] = undo(before, contents, generators)
                raise
            self.copying = self.always_copying
            return results

        return run

    def raised(self):
        """The graph raised: return if the frame may run as plain Python, else raise again."""
        error = sys.exception() if sys.version_info >= (3, 12) else sys.exc_info()[1]
        if type(error) is STOPPED or is_foreign(error):
            raise
        if config.raise_internal_errors and not self.in_order:
            raise
        repeatable = vars(error).pop("undone", False) or not self.has_written(error)
        records.counters["raised" if repeatable else "raised_after_write"][
            f"{self.function}: {type(error).__name__}: {error}"
        ] += 1
        if not repeatable:
            raise

    def has_written(self, error):
        """Had the graph come to its first write?  Its code is in the traceback, unless a backend
        has replaced it."""
        if self.write is None:
            return False
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code is not self.code:
            trace = trace.tb_next
        lines = linecache.getlines(self.code.co_filename)
        return (
            trace is None
            or not lines
            or any(f" {self.write.name} = " in line for line in lines[: trace.tb_lineno - 1])
        )


RECOVERIES.append(Undo)


def state(tensor):
    """What a write may change beside the contents."""
    memory = tensor.untyped_storage()
    return (
        None if tensor.is_inference() else tensor._version,
        (tensor.shape, tensor.stride(), tensor.storage_offset()),
        (memory._cdata, memory.nbytes()),
        tensor.requires_grad,
        tensor.grad_fn,
    )


def states_of_generators():
    """[(generator, state)]: numbers of the host, for a GPU's too, which nobody waits for."""
    gpus = (
        torch.cuda.default_generators
        if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing()
        else ()
    )
    return [(generator, generator.get_state()) for generator in (torch.default_generator, *gpus)]


def undo(before, contents, generators):
    """Put states and contents back; False where that cannot be done."""
    for tensor, (_, _, memory, requires_grad, history) in before:
        _, _, memory_now, *autograd = state(tensor)
        if (
            memory_now != memory
            or autograd != [requires_grad, history]
            and (requires_grad or tensor._is_view())
        ):
            return False
    for memory, saved in contents:
        memory.copy_(saved)
    for tensor, (version, layout, _, requires_grad, _) in before:
        if tensor.requires_grad and not requires_grad:
            tensor.detach_()
        if state(tensor)[1] != layout:  # unsqueeze_
            with torch.no_grad() if version is not None else torch.inference_mode():
                tensor.as_strided_(*layout)
        if version is not None:
            torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))
    for generator, drawn_from in generators:
        generator.set_state(drawn_from)
    return True


def storage(fake):
    return fake.untyped_storage()._cdata if fake.layout is torch.strided else id(fake)


def name_of(node):
    return (
        node.target
        if isinstance(node.target, str)
        else getattr(node.target, "__name__", str(node.target))
    )


def draws(node):
    name, args = name_of(node), node.args
    on = (
        (*args[4:5], node.kwargs.get("dropout_p"))[0]
        if "attention" in name
        else (*args[2:3], node.kwargs.get("training", True))[0]
        if "dropout" in name
        else True
    )
    return node.op.startswith("call") and bool(DRAWS.search(name)) and bool(on)


def needs_data(node):
    """May this node raise because of what is in a tensor?  On a GPU nobody waits for that."""
    if not node.op.startswith("call"):  # an input may be called `getitem`
        return False
    name, index = name_of(node), []
    if name in ("getitem", "setitem"):
        torch.fx.node.map_arg(
            node.args[1], lambda part: index.append(part.meta.get("example_value"))
        )
        return any(isinstance(part, torch.Tensor) for part in index)
    values = [part.meta.get("example_value") for part in node.all_input_nodes]
    if all(getattr(value, "device", None) != torch.device("cpu") for value in values):
        return False
    return bool(DATA.search(name)) or bool(DIVISIONS.search(name)) and gives_integers(node)


def gives_integers(node):
    """Does it compute with integers?  Those refuse a divisor of 0; floats give infinity."""
    value = node.meta["example_value"]
    return isinstance(value, torch.Tensor) and not value.is_floating_point()
