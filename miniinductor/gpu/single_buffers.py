"""GPU memory is for what both halves of a training step keep: there, each large intermediate is the
allocator's, and returned after its last use; small ones are parts of one workspace."""

from ..hooks import extends
from ..ir import Buffer
from ..memory import MemoryPlan
from ..sizes.symbols import Size, hint

# type of a device -> bytes of an intermediate that has memory of its own
SINGLE = {"cuda": 1 << 16}


@extends(MemoryPlan)
class SingleBuffers(MemoryPlan):
    def may_share(self, buffer: Buffer, nbytes: Size) -> bool:
        single = SINGLE.get(self.device.type)
        in_training = self.record.joint_graph is not None
        if in_training and single is not None and hint(nbytes, 1) >= single:
            return False
        return super().may_share(buffer, nbytes)
