"""Inputs that the caller hands over: each is freed after its last use.

In:   the backward half of a training step.  Out: another entry of its wrapper, which takes a list
      of its inputs, and empties it.

    def call_owned(inputs):
        saved0, tangent0, = inputs
        inputs.clear()         # no other reference keeps them
        ...
        del saved0

Mirrors `boxed` calls in torch/_functorch/_aot_autograd/utils.py.
"""

from typing import cast

from ..hooks import extends
from ..ir import InputBuffer
from ..listings import indent
from ..memory import MemoryPlan
from ..records import CompileRecord
from ..wrapper import WrapperWriter


def are_owned(record: CompileRecord) -> bool:
    """Does the caller hand its inputs over, so that each can be freed after its last use?"""
    return getattr(record.functional_graph, "meta", {}).get("owned", False)


@extends(MemoryPlan)
class OwningPlan(MemoryPlan):
    @property
    def frees_inputs(self) -> bool:
        return are_owned(self.record)

    def is_local(self, name: str) -> bool:
        if self.frees_inputs and isinstance(self.buffers.get(name), InputBuffer):
            return (
                name not in self.pinned
                and name not in self.schedule.escaping
                and name not in self.memory_of.values()
            )
        return super().is_local(name)


@extends(WrapperWriter)
class OwningWriter(WrapperWriter):
    def definition(self, body: list[str]) -> list[str]:
        inputs = ", ".join(self.graph.inputs)
        memory = cast(OwningPlan, self.memory)
        if not (memory.frees_inputs and inputs):
            return super().definition(body)
        return [
            "def call(*inputs):",
            "    return call.owned(list(inputs))",
            "",
            "def call_owned(inputs):",
            f"    {inputs}, = inputs",
            "    inputs.clear()         # no other reference keeps them",
            *indent(body),
        ]
