"""A graph that raised: undo what it wrote to the program's tensors and drew, so that plain Python
can run the frame from the start.

In:   the `OutputGraph` and its GraphModule, before a backend sees it.
Out:  `around(compiled)`, which puts the tensors back where the graph raises, and the `handler` in
      the replacement code, which calls `raised` then: it returns if the frame may run as plain
      Python, up to the error with its own message and line or to the program's own handler.

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
copied for each token.  A graph that raises in call after call, where plain Python does not, runs
twice each time; that is told at its second error. PyTorch: the graph's error leaves the frame, with
what it has written, whatever `try` or `with` stands around the operation.
"""

import linecache
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils.checkpoint

from .extending import extends, noted, notes_of
from .. import config, frame_hook, hooks, records
from ..bytecode import Instruction
from ..exceptions import BackendError
from ..foreign import is_foreign, ours
from ..graph_capture import OutputGraph
from ..reconstruct import Codegen
from ..replacement import Head
from ..resume import is_resume_code
from ..symbolic_eval.evaluator import RootFrame
from ..variables.base import Variable
from .once import tell
from .thread_state import StateChanges, push_state, restoring

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
# Names of those that may draw random numbers.
DRAWS = re.compile(
    r"rand|dropout|bernoulli|multinomial|poisson|rrelu|gumbel|attention"
    r"|(normal|uniform|exponential|cauchy|geometric)_?$|^(lstm|gru|rnn)"
)
# What torch.utils.checkpoint's hooks raise once they have recomputed all that backward needs: no
# error of the graph's, and what was written stays, as in eager.
STOPPED = getattr(torch.utils.checkpoint, "_StopRecomputationError", None)
INPUTS = ("placeholder", "get_attr")


class Undo:
    """What is known of one graph.

    `places`, `attributes`: its inputs (by number) and parameters that it writes to, perhaps through
    a view.  `write`: the first node that does.  `in_order`: does the backend run the nodes in the
    program's order?  `drawing`: may the graph draw random numbers?  `copying`: are tensors copied
    before the next run?  `always_copying`: before each?  `eager`: the graph in PyTorch's own
    kernels, with `raise_internal_errors` on: it is asked whether an error is the program's."""

    def __init__(self, output: OutputGraph, gm: torch.fx.GraphModule) -> None:
        root = output.root
        self.function = root.code.co_name if is_resume_code(root.code) else root.function.name
        self.errors = 0  # that plain Python ran the frame for
        self.in_order = not output.generates_code
        before = noted(output, StateChanges).before
        asks = config.raise_internal_errors and not self.in_order
        self.eager = restoring(gm.forward, dict(before)) if asks else None
        self.code = type(gm).forward.__code__
        nodes = list(output.graph.nodes)
        writes: dict[int, torch.fx.Node] = {}  # memory -> the first node that writes to it
        for node, fake in output.written:
            writes.setdefault(storage(fake), node)
        fakes = {node: node.meta["example_value"] for node in nodes if node.op in INPUTS}
        changed = [
            node
            for node, fake in fakes.items()
            if isinstance(fake, torch.Tensor) and storage(fake) in writes
        ]
        writers = {writes[storage(fakes[node])] for node in changed}
        self.write = next((node for node in nodes if node in writers), None)
        inputs = [variable.node for variable in output.inputs]
        self.places = [inputs.index(node) for node in changed if node in inputs]
        self.attributes = [output.attributes[n.target] for n in changed if n.op == "get_attr"]
        effects = [n for n, node in enumerate(nodes) if node is self.write or draws(node)]
        self.drawing = any(map(draws, nodes))
        after: list[torch.fx.Node] = []  # those that may raise when something was written or drawn
        # (a sparse tensor has no memory of its own to be copied)
        if effects and all(fakes[node].layout is torch.strided for node in changed):
            after = nodes[effects[0] :] if self.in_order else nodes
        self.always_copying = any(map(needs_data, after))
        self.copying = bool(after)

    def around(self, compiled: Callable) -> Callable:
        asking = self.eager is not None and self.write is None
        if not self.copying and not asking:
            return compiled

        def run(*args: Any) -> Any:
            refused = bool(self.places) and self.is_refused(args)
            if refused and not self.in_order:
                raise refusal()
            if not self.copying and not asking and not refused:
                return compiled(*args)
            tensors = [*(args[n] for n in self.places), *self.attributes]
            memories = {m._cdata: m for m in map(torch.Tensor.untyped_storage, tensors)}.values()
            if sum(memory.nbytes() for memory in memories) > config.undo_bytes:
                self.copying = self.always_copying
                return compiled(*args)
            before = [(tensor, state(tensor)) for tensor in tensors]
            generators = states_of_generators() if self.drawing else []
            contents = [(memory, memory.clone()) for memory in memories]
            try:
                results = compiled(*args)
            except ours(Exception) as error:
                if type(error) is STOPPED:
                    raise
                undone = undo(before, contents, generators)
                if undone and self.eager is not None:
                    undone = raises(self.eager, args) and undo(before, contents, generators)
                vars(error)["undone"] = undone
                raise
            self.copying = self.always_copying
            return results

        return run

    def is_refused(self, args: tuple) -> bool:
        """Is a tensor of inference mode written outside of it?  No guard looks at that.  Eager's
        kernel writes, and raises behind that; a generated one would not raise."""
        made_there = any(args[n].is_inference() for n in self.places)
        return made_there and not torch.is_inference_mode_enabled()

    def handler(self, frame: RootFrame, call: list[Instruction]) -> list[Instruction]:
        """Nothing has happened yet but what the graph did, so plain Python repeats it."""
        handler = Codegen(frame)
        handler.emit("PUSH_EXC_INFO")
        handler.call_object(frame_hook.disabled(self.raised))
        # `raised` raises: no longer handled
        cleanup = [Instruction("COPY", 3), Instruction("POP_EXCEPT"), Instruction("RERAISE", 1)]
        for instruction in handler.instructions:
            instruction.exc = cleanup[0], 1, True
        for op in ("POP_TOP", "POP_TOP", "POP_EXCEPT"):
            handler.emit(op)
        push_state(handler, noted(frame.output, StateChanges).before)
        for instruction in call:
            instruction.exc = handler.instructions[0], 0, False
        return cleanup + handler.instructions

    def raised(self) -> None:
        """The graph raised: return if the frame may run as plain Python, else raise again."""
        error: Any = sys.exc_info()[1]
        if type(error) is STOPPED or isinstance(error, BackendError) or is_foreign(error):
            raise
        undone = vars(error).pop("undone", False)
        if config.raise_internal_errors and not self.in_order and not undone:
            raise
        repeatable = undone or not self.has_written(error)
        records.counters["raised" if repeatable else "raised_after_write"][
            f"{self.function}: {type(error).__name__}: {error}"
        ] += 1
        if not repeatable:
            raise
        self.errors += 1
        if self.errors > 1:  # the first is the program's own as a rule, which says it itself
            tell(
                ("raised", self.function, type(error)),
                f"the compiled graph of {self.function} raises {type(error).__name__}: {error}; "
                f"plain Python runs such calls, after the graph has tried",
            )

    def has_written(self, error: BaseException) -> bool:
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


def look(output: OutputGraph, gm: torch.fx.GraphModule) -> None:
    notes_of(output)[Undo] = Undo(output, gm)


def recovering(compiled: Callable, output: OutputGraph, results: list[Variable]) -> Callable:
    """`compiled`, prepared for an error."""
    return notes_of(output)[Undo].around(compiled)


hooks.GRAPH_MODULES.append(look)
hooks.ADAPTERS.append(recovering)
call_plainly = Head.call_graph


@extends(Head)
class Recovering(Head):
    def call_graph(self, graph: Callable[..., Any], inputs: Sequence[Any]) -> None:
        start = len(self.instructions)
        call_plainly(self, graph, inputs)
        undo: Undo = notes_of(self.output)[Undo]
        self.handler = undo.handler(self.output.root, self.instructions[start:])


def refusal() -> RuntimeError:
    """Nothing was done: plain Python runs, and says it in its own words."""
    error = RuntimeError("a write to what was made in inference mode, outside of it")
    vars(error)["undone"] = True
    return error


def raises(graph: Callable, args: tuple) -> bool:
    try:
        graph(*args)
    except ours(Exception):
        return True
    return False


def state(tensor: torch.Tensor) -> tuple:
    """What a write may change beside the contents."""
    memory = tensor.untyped_storage()
    return (
        None if tensor.is_inference() else tensor._version,
        (tensor.shape, tensor.stride(), tensor.storage_offset()),
        (memory._cdata, memory.nbytes()),
        tensor.requires_grad,
        tensor.grad_fn,
    )


def states_of_generators() -> list[tuple[torch.Generator, torch.Tensor]]:
    """[(generator, state)]: numbers of the host, for a GPU's too, which nobody waits for."""
    generators = [torch.default_generator]
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        generators += torch.cuda.default_generators
    return [(generator, generator.get_state()) for generator in generators]


def undo(before: list, contents: list, generators: list) -> bool:
    """Put states and contents back; False where that cannot be done."""
    for tensor, (_, _, memory, requires_grad, history) in before:
        _, _, memory_now, *autograd = state(tensor)
        history_changed = autograd != [requires_grad, history]
        if memory_now != memory or history_changed and (requires_grad or tensor._is_view()):
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


def storage(fake: torch.Tensor) -> int:
    return fake.untyped_storage()._cdata if fake.layout is torch.strided else id(fake)


def name_of(node: torch.fx.Node) -> str:
    target = node.target
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def argument(node: torch.fx.Node, place: int, name: str, default: Any = None) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def draws(node: torch.fx.Node) -> bool:
    """May it draw random numbers?"""
    name = name_of(node)
    if not node.op.startswith("call") or not DRAWS.search(name):
        return False
    if "attention" in name:
        return bool(argument(node, 4, "dropout_p"))
    return "dropout" not in name or bool(argument(node, 2, "training", True))


def needs_data(node: torch.fx.Node) -> bool:
    """May this node raise because of what is in a tensor?  On a GPU nobody waits for that."""
    if not node.op.startswith("call"):  # an input may be called `getitem`
        return False
    name = name_of(node)
    if name in ("getitem", "setitem"):
        index: list[Any] = []
        torch.fx.node.map_arg(node.args[1], index.append)
        return any(isinstance(part.meta.get("example_value"), torch.Tensor) for part in index)
    values = [part.meta.get("example_value") for part in node.all_input_nodes]
    if all(getattr(value, "device", None) != torch.device("cpu") for value in values):
        return False
    return bool(DATA.search(name)) or bool(DIVISIONS.search(name)) and gives_integers(node)


def gives_integers(node: torch.fx.Node) -> bool:
    """Does it compute with integers?  Those refuse a divisor of 0; floats give infinity."""
    value = node.meta["example_value"]
    return isinstance(value, torch.Tensor) and not value.is_floating_point()
