"""What each kind of device can do, and which language its kernels are written in: two registries;
and what the processor can do.

In:   `register_language(Language(...))` and `register_device(Device(...))`: languages.py calls them
      for all that we have.  Out: what the stages ask.

    >>> language_of(torch.device("cpu")).name
    'cpp'
    >>> why_not(torch.device("meta"))
    'there is no code generator for device meta'

A name is registered once.  A stage does the plain thing where nothing is registered.  Mirrors
`register_backend_for_device` in torch/_inductor/codegen/common.py.
"""

import functools
import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from . import config
from .errors import ours
from .records import CompileRecord

if TYPE_CHECKING:
    from .codegen.kernels import Kernel
    from .ir.loops import Graph
    from .schedule.nodes import Schedule, ScheduledNode


@dataclass
class Language:
    """How kernels of one language are written and built.

    writers(): kind of group -> the class whose `write()` gives its Kernel, made of (group, buffers,
      names to keep, places of FX nodes, overwritten inputs).
    build: (device, kernels, bytes that each moves) -> functions, in the same order; raises
      CompilerError.
    most_pointers: how many pointers one kernel takes.
    rewrites: run over the loop IR, in order, before anything of it is scheduled.
    joiners: (schedule, record) -> its nodes, of which some stand for several.
    why_not: why its kernels cannot be built for a device, or None.
    """

    name: str
    writers: Callable[[], dict[type, Callable[..., Any]]]
    build: Callable[[torch.device, Sequence["Kernel"], Sequence[int]], list[Callable]]
    most_pointers: int
    rewrites: list[Callable[["Graph", CompileRecord], None]] = field(default_factory=list)
    joiners: list[Callable[["Schedule", CompileRecord], "list[ScheduledNode]"]] = field(
        default_factory=list
    )
    why_not: Callable[[torch.device], str | None] = field(default=lambda device: None)


@dataclass(frozen=True)
class Device:
    """What the stages ask about one type of device.

    language: of its kernels; None: the one that `config.cpu_backend` names.
    arena_limit: in training, intermediates of so many bytes or more lie outside of the arena, and
      go back to the allocator after their last use.
    prepare: called with a graph's number of nodes before it is traced (Triton: start its workers).
    replays_in: the module that records calls as CUDA graphs and replays them.
    """

    type: str
    language: str | None = None
    arena_limit: float = math.inf
    prepare: Callable[[int], None] = lambda nodes: None
    replays_in: str = ""

    @property
    def replay(self) -> Any:
        """That module, imported when it is first asked for; None where there is none."""
        name = f"{__package__}.{self.replays_in}"
        return importlib.import_module(name) if self.replays_in else None


LANGUAGES: dict[str, Language] = {}
DEVICES: dict[str, Device] = {}


def register_language(language: Language) -> None:
    registered(LANGUAGES, language.name, language)


def register_device(device: Device) -> None:
    registered(DEVICES, device.type, device)


def registered(table: dict[str, Any], name: str, entry: Any) -> None:
    """Raises ValueError where somebody else has the name."""
    if name in table:
        raise ValueError(f"{name!r} is registered already")
    table[name] = entry


def entry_of(device: torch.device) -> Device:
    """The registry's entry for this type of device; an empty one if nobody has registered it."""
    return DEVICES.get(device.type) or Device(device.type, language="")


def language_of(device: torch.device) -> Language:
    """Which language the kernels of a device are written in.  Raises NotImplementedError."""
    name = entry_of(device).language
    language = LANGUAGES.get(config.cpu_backend if name is None else name)
    if language is None:
        raise NotImplementedError(f"there is no code generator for device {device}")
    return language


def recomputes(device: torch.device) -> bool:
    """Is a value with several readers rather computed again than stored?  Kernels of a GPU wait
    for memory, and not for arithmetic."""
    try:
        return language_of(device).name == "triton"
    except NotImplementedError:
        return False


# loaded, stored and converted, but not computed with
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


@functools.cache
def e4m3_most() -> float:
    """What a number too large for float8_e4m3fn becomes: the largest one, or 480, which is NaN
    (by torch's version)."""
    with _disable_current_modes():
        return torch.tensor(1e9, device="cpu").to(FLOAT8[0]).float().nan_to_num(480).item()


def why_not(device: torch.device) -> str | None:
    """Why no kernels can be built for a device, or None."""
    try:
        return language_of(device).why_not(device)
    except NotImplementedError as reason:
        return str(reason)


# --- the processor --------------------------------------------------------------------------------
@functools.cache
def cpu_flags() -> list[str]:
    try:
        with open("/proc/cpuinfo") as file:
            found = [line for line in file if line.startswith(("flags", "Features"))]  # x86, Arm
            return sorted(found[0].split()) if found else []
    except ours(OSError):
        return []


def vector_bits() -> int:
    """How wide the vectors are for which C++ kernels are written."""
    return 512 if "avx512bw" in cpu_flags() else 256
