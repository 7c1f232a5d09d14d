"""What Triton's interpreter lacks: libdevice, rounding to bfloat16, fast reductions with functions
of one's own, and a check of addresses.

In:   the file of a kernel.  Out: its function, to be called as `function[grid](...)` with CPU
      tensors.

    TRITON_INTERPRET=1 python ...

The interpreter runs a kernel's Python with numpy arrays as tiles.  torch's own functions stand in
for libdevice's; float32 is rounded to bfloat16 instead of cut off; a tile is reduced by folding it
in halves, as a GPU does, instead of element by element; indices are checked, and so is every
address.
"""

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ...devices import FLOAT8
from ...sizes.symbols import extent
from ...toolchain import CompilerError

# functions of libdevice that torch has not, or calls otherwise
OTHERWISE: dict[str, Callable[..., torch.Tensor]] = {
    "rint": torch.round,
    "fmod": lambda a, b: torch.from_numpy(np.fmod(a.numpy(), b.numpy())),
}
for dtype in FLOAT8:
    name = str(dtype).removeprefix("torch.")
    OTHERWISE[f"to_{name}"] = lambda x, to=dtype: x.to(to).view(torch.uint8)
    OTHERWISE[f"{name}_to_float"] = lambda x, of=dtype: x.view(of).float()


class Libdevice:
    """`libdevice.tanh(tile)`: torch.tanh on the numpy array behind the tile."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = OTHERWISE[name] if name in OTHERWISE else getattr(torch, name)

        def call(*tiles: Any) -> Any:
            import triton.language as tl
            from triton.runtime.interpreter import TensorHandle

            arrays = np.broadcast_arrays(*[t.handle.data for t in tiles])
            result = function(*[torch.from_numpy(np.ascontiguousarray(a)) for a in arrays]).numpy()
            result = result.reshape(arrays[0].shape)  # a scalar is an array of one element
            kind = element = getattr(tl, str(result.dtype))
            if any(t.type.is_block() for t in tiles):
                kind = tl.block_type(element, list(result.shape))
            return tl.core.tensor(TensorHandle(result, element), kind)

        return call


class CheckedMemory:
    """Triton's module of reads and writes; they must stay within the tensors that a kernel was
    given (memcheck for kernels that see no GPU)."""

    def __init__(self, own: Any) -> None:
        self.own, self.running = own, threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def check(self, addresses: np.ndarray, mask: np.ndarray, size: int) -> None:
        used = addresses[mask.astype(bool)]
        spans = getattr(self.running, "spans", [(0, 2**64)])  # else a kernel that Triton alone runs
        inside = [(start <= used) & (used + np.uint64(size) <= end) for start, end in spans]
        if used.size and not np.any(inside, 0).all():
            raise IndexError("memory outside of the kernel's tensors")

    def load(self, addresses: np.ndarray, mask: np.ndarray, other: Any, dtype: Any) -> Any:
        self.check(addresses, mask, np.dtype(dtype).itemsize)
        return self.own.load(addresses, mask, other, dtype)

    def store(self, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray) -> Any:
        self.check(addresses, mask, values.itemsize)
        return self.own.store(addresses, values, mask)

    def atomic_rmw(self, operation: Any, addresses: Any, values: Any, mask: Any, order: Any) -> Any:
        self.check(addresses, mask, values.itemsize)
        return self.own.atomic_rmw(operation, addresses, values, mask, order)


# --- what is slow or wrong in Triton's own --------------------------------------------------------
def mend(interpreter: Any) -> None:
    """Put our own in the place of what is slow or wrong there (once per process)."""
    if interpreter.ReduceOps.generic_reduce is fold_in_halves:
        return
    interpreter.ReduceOps.generic_reduce = fold_in_halves
    interpreter._interpreter = CheckedMemory(interpreter._interpreter)
    interpreter.interpreter_builder.options = dataclasses.replace(
        interpreter.interpreter_builder.options, debug=True, sanitize_overflow=False
    )
    mend_bfloat16(interpreter)
    mend_scalars(interpreter)
    np.seterr(all="ignore")  # tiles compute on elements that a mask hides


def fold_in_halves(self: Any, input: Any) -> Any:
    """ReduceOps.generic_reduce for tiles whose reduced side is a power of two: log2(n) calls on
    arrays."""
    axis = self.axis
    arrays = [t.handle.data for t in input]
    while arrays[0].shape[axis] > 1:
        half = arrays[0].shape[axis] // 2
        parts = [np.split(a, [half], axis) for a in arrays]
        sides = [
            [self.to_tensor(p[side], t.dtype) for p, t in zip(parts, input)] for side in (0, 1)
        ]
        combined = self.combine_fn.fn(*sides[0], *sides[1])
        arrays = [t.handle.data for t in (combined if isinstance(combined, tuple) else (combined,))]
    if not self.keep_dims:
        arrays = [a.squeeze(axis) for a in arrays]
    return [self.to_tensor(a, t.dtype) for a, t in zip(arrays, input)]


def mend_bfloat16(interpreter: Any) -> None:
    """Tiles of bfloat16 hold bits, not numbers.  Triton's own conversions cut off instead of
    rounding, and get denormal numbers wrong."""
    import triton.language as tl

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    cast, dot = builder.cast_impl, builder.create_dot

    def widened(source: Any) -> Any:
        return handle((source.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def rounded(source: Any) -> Any:
        bits = torch.from_numpy(np.ascontiguousarray(source.data)).bfloat16().view(torch.int16)
        return handle(bits.numpy().view(np.uint16).reshape(source.data.shape), tl.bfloat16)

    def cast_and_round(self: Any, source: Any, target: Any) -> Any:
        kinds = source.get_element_ty(), target.scalar
        if kinds == (tl.bfloat16, tl.float32):
            return widened(source)
        return rounded(source) if kinds == (tl.float32, tl.bfloat16) else cast(self, source, target)

    def dot_of_values(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        wide = [widened(t) if t.dtype.scalar == tl.bfloat16 else t for t in (a, b)]
        return dot(self, *wide, *rest)

    builder.cast_impl, builder.create_dot = cast_and_round, dot_of_values


def mend_scalars(interpreter: Any) -> None:
    import triton.language as tl

    splat, patch = interpreter.InterpreterBuilder.create_splat, interpreter._patch_lang_tensor

    def splat_of_truth(self: Any, shape: Any, scalar: Any) -> Any:
        """The handle of a comparison says the dtype of what was compared."""
        if scalar.data.dtype == bool:
            scalar = interpreter.TensorHandle(scalar.data, tl.int1)
        return splat(self, shape, scalar)

    def patch_and_index(tensor: Any, scope: Any) -> None:
        """Triton 3.6: numpy 2.4 makes no int of an array of one element."""
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter.InterpreterBuilder.create_splat = splat_of_truth
    interpreter._patch_lang_tensor = patch_and_index


# --- kernels --------------------------------------------------------------------------------------
def load_interpreted(path: str, name: str) -> "CheckedKernel":
    """The interpreted function `name` of the file.  Raises CompilerError if triton was imported
    without the interpreter."""
    from triton.runtime import interpreter

    names: dict[str, Any] = {"__name__": name}
    with open(path) as file:
        exec(compile(file.read(), path, "exec"), names)
    function, tl = names[name], names["tl"]
    if not all(isinstance(f, interpreter.InterpretedFunction) for f in (function, tl.sum)):
        raise CompilerError("set TRITON_INTERPRET=1 before triton is imported")
    mend(interpreter)
    names["libdevice"] = Libdevice()
    names |= {name: getattr(names["libdevice"], name) for name in OTHERWISE}
    return CheckedKernel(function, interpreter._interpreter)


class CheckedKernel:
    """`kernel[grid](tensors, sizes, block sizes)`.  Raises InterpreterError where an address lies
    outside of the tensors."""

    def __init__(self, function: Any, memory: CheckedMemory) -> None:
        self.function, self.memory = function, memory

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def run(*arguments: Any, **named: Any) -> None:
            tensors = [t for t in arguments if isinstance(t, torch.Tensor) and t.numel()]
            sizes = [(extent(t.shape, t.stride()) or 0) * t.element_size() for t in tensors]
            pairs = zip([t.data_ptr() for t in tensors], sizes)
            self.memory.running.spans = [(start, start + n) for start, n in pairs]
            try:
                self.function[grid](*arguments, **named)
            finally:
                del self.memory.running.spans

        return run
