"""Branches on what is the same for all vector lanes: gcc vectorizes none.

    if (tmp3) tmp4 = in0[r0];           ->      const int64_t tmp5 = tmp3 ? 1024 : 0;
                                                if (r0 < tmp5) tmp4 = in0[r0];

In:   the mask of a branch in the innermost loop.  Out: an equal one that differs from lane to lane.
"""

import torch

from .. import config
from ..codegen.code import code, named
from ..codegen.common import Value
from ..codegen.cpp_expressions import CppExpressions
from ..lowerings.cpp_masks import lane_mask


@lane_mask.replaced
def mask_of_lanes(writer: CppExpressions, mask: Value) -> Value:
    plan = writer.plan
    is_along_lanes = writer.inner_variables and writer.inner_variables.issubset(plan.r)
    if not is_along_lanes or mask.inner or not config.vectorize:
        return mask
    count = writer.make("{} ? {} : 0", torch.int64, mask, writer.size(plan.inner[-1]))
    return Value(code("{} < {}", named(plan.r[-1]), count), torch.bool, True)
