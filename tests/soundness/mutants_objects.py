"""Mutants of what is known of objects: which are one, what their classes answer, what custom
functions read and write, who has hooks."""

from minidynamo.convert import entries
from minidynamo.functions import custom_functions
from minidynamo.graph.output_graph import OutputGraph
from miniinductor.autograd import fake_mode as mode

from .mutants import mutant

SECONDS = "--seconds 55"


@mutant("keys may come to be one object", f"identity --only '(key|set)' --modes eager {SECONDS}")
def keys() -> None:
    entries.guard_keys_apart = lambda output: None


@mutant("a write may reach another object", f"identity --only written --modes eager {SECONDS}")
def writes() -> None:
    entries.guard_written_apart = lambda output, code: None


@mutant("what classes have is not guarded", f"class_code --only itself --modes eager {SECONDS}")
def classes() -> None:
    guard = OutputGraph.guard

    def fewer(self, source, kind, *args, **kwargs):
        if source.kind != "class_item":
            guard(self, source, kind, *args, **kwargs)

    OutputGraph.guard = fewer


@mutant(
    "a custom function's reads are not guarded",
    f"custom_functions --only 'nothing',.'between --modes aot_eager {SECONDS}",
)
def reads() -> None:
    custom_functions.Reads.methods = lambda self: None


@mutant(
    "what backward reads is that of the call",
    f"custom_functions --only 'nothing',.'before --modes aot_eager {SECONDS}",
)
def late() -> None:
    custom_functions.is_data = lambda variable: False


@mutant(
    "tensors from outside are written while tracing",
    f"custom_functions --only 'buffer' --modes eager {SECONDS}",
)
def written_for_real() -> None:
    mode.refuse_real_writes = lambda func, args, kwargs: None


@mutant(
    "hooks of all modules are not looked at",
    f"hooks --only 'register_module_forward_(pre_)?hook' --modes eager {SECONDS}",
)
def all_modules() -> None:
    OutputGraph.guard_no_global_hooks = lambda self: None
