"""A frame evaluator of another tool, as torch.compile and debuggers install one.  No torch."""

import ctypes
import mmap
import platform
import unittest


def installed_evaluator() -> int:
    """The address of what evaluates the frames of this process; 0 where that cannot be asked."""
    api = ctypes.pythonapi
    if not hasattr(api, "_PyInterpreterState_GetEvalFrameFunc"):
        return 0
    api.PyInterpreterState_Get.restype = ctypes.c_void_p
    api._PyInterpreterState_GetEvalFrameFunc.argtypes = [ctypes.c_void_p]
    api._PyInterpreterState_GetEvalFrameFunc.restype = ctypes.c_void_p
    return api._PyInterpreterState_GetEvalFrameFunc(api.PyInterpreterState_Get())


class Evaluator:
    """Machine code that counts the frames, and has `next_one`, or Python, run them.

    `with Evaluator():` it is installed meanwhile."""

    def __init__(self, next_one: int | None = None) -> None:
        self.api = ctypes.pythonapi
        if not hasattr(self.api, "_PyInterpreterState_SetEvalFrameFunc"):
            raise unittest.SkipTest("the symbol is hidden")
        if platform.machine() != "x86_64":
            raise unittest.SkipTest("needs machine code for this machine")
        self.api._PyInterpreterState_SetEvalFrameFunc.argtypes = [ctypes.c_void_p] * 2
        self.default = ctypes.cast(self.api._PyEval_EvalFrameDefault, ctypes.c_void_p).value
        self.memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self.count = ctypes.c_int64.from_buffer(self.memory, 64)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        count = (self.address + 64).to_bytes(8, "little")
        target = (next_one or self.default).to_bytes(8, "little")
        # mov rax, count; inc [rax]; mov rax, target; jmp rax
        code = b"\x48\xb8" + count + b"\x48\xff\x00" + b"\x48\xb8" + target + b"\xff\xe0"
        self.memory[: len(code)] = code

    def installed(self) -> int:
        return installed_evaluator()

    def install(self, address: int) -> None:
        self.api._PyInterpreterState_SetEvalFrameFunc(self.api.PyInterpreterState_Get(), address)

    def __enter__(self) -> "Evaluator":
        self.before = self.installed()
        self.install(self.address)
        return self

    def __exit__(self, *error: object) -> None:
        self.install(self.before)
