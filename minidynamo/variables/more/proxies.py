"""Objects from outside that read through to another one: a mappingproxy, a super() object.

In:   types.MappingProxyType({...}).   Out: a ProxyVar of the dictionary behind it.

    >>> wrap_mapping_proxy(builder, types.MappingProxyType(table), source).getitem(tx, key)
"""

import collections
import gc
import operator
import types
from typing import Any

from ...extras.extending import extends
from ...exceptions import Break
from ...guards import NAMES
from ...sources import KINDS
from ..base import Codegen, OutputGraph, Source, Variable
from ..containers import Container
from ..iterators import iterator_of, KeysIterator
from ..registry import SHARED


KINDS["behind"] = "get_referents({p})[0]"
NAMES["get_referents"] = gc.get_referents


class ProxyVar(Container):
    """types.MappingProxyType: reads of the dict behind it."""

    dict: Any
    cls = types.MappingProxyType
    shared = False

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_object(types.MappingProxyType, self.dict)


OF_THE_DICT = "truth length iterate getitem get contains"
OF_THE_DICT += " method_get method_keys method_values method_items method_copy"
for _name in OF_THE_DICT.split():
    extends(ProxyVar, _name)(property(operator.attrgetter(f"dict.{_name}")))

iterator_of(ProxyVar)(KeysIterator)


@SHARED.rule(types.MappingProxyType)
def wrap_mapping_proxy(builder: OutputGraph, value: Any, source: Source) -> ProxyVar:
    behind = gc.get_referents(value)[0]
    if type(behind) not in (dict, collections.OrderedDict):
        raise Break("dictionary", f"a mappingproxy of a {type(behind).__name__}")
    return ProxyVar(builder.wrap(behind, source.child("behind")), source=source)


@SHARED.rule(test=lambda value: issubclass(type(value), super))
def wrap_super_object(builder: OutputGraph, value: Any, source: Source) -> Variable:
    raise Break("object", "a super() object that was made before this frame")
