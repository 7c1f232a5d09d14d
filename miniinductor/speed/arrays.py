"""Accumulators of which there is one for each lane, or for each column: arrays.

In:   an `Accumulator`.  Out: the declaration of its array, and what one element takes in.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

from ..codegen.cpp_expressions import compute_type, limit_text
from ..codegen.cpp_reductions import Accumulator
from ..codegen.tree import Line

# partial sums of a vector loop, and places that argmax keeps apart: several vectors, whose
# latencies overlap
LANES = 64
VECTOR = 16  # floats in the widest
# types of arrays of values that loops keep: gcc takes bools one by one
IN_ARRAYS = {"bool": "uint8_t"}
SCRATCH = "memory for values between two loops"  # what lines that declare them are for


def room(length: int) -> int:
    """Elements of an array of floats that holds `length`: whole vectors."""
    return -(-length // VECTOR) * VECTOR


def is_lane_of_float16(writer: Any, dtype: torch.dtype) -> bool:
    """Is an element of this type, read or written now, one of the innermost loop's float16?"""
    is_inside = writer.plan.r[-1] in writer.inner_variables
    return dtype is torch.float16 and is_inside and not writer.in_mask()


def arrays_of(a: Accumulator) -> list[tuple[str, str, str]]:
    """(type, name, initial value) of what there is one of for each lane or column.  Of argmax the
    first place is 0: nothing replaces it if all elements are as low as the initial value."""
    if not a.is_arg:
        return [(IN_ARRAYS.get(a.c_type, a.c_type), a.name, a.initial)]
    lowest = limit_text(a.dtype, a.kind == "argmax")
    return [(compute_type(a.dtype), f"{a.name}_best", lowest), (place_type(a), f"{a.name}_at", "0")]


def place_type(a: Accumulator) -> str:
    return "int32_t" if a.few_places else "int64_t"


def array_declarations(
    accumulators: Iterable[Accumulator], width: int | str, used: int | str | None = None
) -> list[Line]:
    """Arrays of `width` elements, the first `used` of them set."""
    lines = []
    for a in accumulators:
        for c_type, name, start in arrays_of(a):
            lines += [
                a.line(f"{c_type} {name}[{width}];"),
                a.line(filled(name, used or width, start)),
            ]
    return lines


def filled(name: str, count: int | str, value: str) -> str:
    return f"for (int64_t k = 0; k < {count}; k++) {name}[k] = {value};"


def no_better(a: Accumulator) -> str:
    """The comparison of a worse or equal element with the best."""
    return "<=" if a.kind == "argmax" else ">="


def taken_if_better(a: Accumulator, place: str) -> list[Line]:
    """argmax of one lane, which takes in `a.term`.  Places grow, so only a better element replaces
    the best: not (v <= best), which a NaN is, unless best is one."""
    best, at, take = f"{a.name}_best[{place}]", f"{a.name}_at[{place}]", f"{a.name}_take"
    return [
        a.line(f"const bool {take} = !({a.term} {no_better(a)} {best}) & ({best} == {best});"),
        a.line(f"{best} = {take} ? {a.term} : {best};"),
        a.line(f"{at} = {take} ? ({place_type(a)})({a.at}) : {at};"),
    ]


def taken_in_turn(a: Accumulator, best: str, at: str) -> list[Line]:
    """The same of one row of several, as two choices: what follows from two bools gcc computes as
    bytes here, which took three times as long."""
    (value_type, _, _), (at_type, _, _) = arrays_of(a)
    was, new, there = f"{a.name}_was", f"{a.name}_new", f"{a.name}_there"
    is_better, is_number = f"!({a.term} {no_better(a)} {was})", f"{was} == {was}"
    return [
        a.line(f"const {value_type} {was} = {best};"),
        a.line(f"const {value_type} {new} = {is_better} ? {a.term} : {was};"),
        a.line(f"const {at_type} {there} = {is_better} ? ({at_type})({a.at}) : {at};"),
        a.line(f"{best} = {is_number} ? {new} : {was};"),
        a.line(f"{at} = {is_number} ? {there} : {at};"),
    ]


def taken_of_rows(a: Accumulator, rows: Iterable[Accumulator], place: str) -> list[Line]:
    """The same of several rows in turn, with the best in variables: gcc does not vectorise what
    is stored under one condition and read again."""
    best, at = f"{a.name}_better", f"{a.name}_place"
    lines = [
        a.line(f"{c_type} {local} = {name}[{place}];")
        for local, (c_type, name, _) in zip((best, at), arrays_of(a))
    ]
    for row in rows:
        one = taken_in_turn(replace(a, term=row.term, at=row.at), best, at)
        lines.append(a.line(f"{{ {' '.join(line.text for line in one)} }}"))
    return lines + [
        a.line(f"{name}[{place}] = {local};")
        for local, (_, name, _) in zip((best, at), arrays_of(a))
    ]


def merged(a: Accumulator) -> list[Line]:
    """To column k what a later part of the rows has added up."""
    if not a.is_arg:
        return [a.update(f"{a.name}s[part][k]", "[k]")]
    term, at = f"{a.name}_bests[part][k]", f"{a.name}_ats[part][k]"
    return taken_if_better(replace(a, term=term, at=at), "k")
