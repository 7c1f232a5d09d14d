"""Members of enumerations, where the program reads their attributes.

In:   a member.   Out: an object whose entries are guarded; everywhere else it is a constant.

    >>> wrap_member(output, Color.RED).getattr(tx, "value")
"""

from ..constant import MEMBERS, ConstantVar
from ..objects import ObjectVar


class MemberVar(ObjectVar):
    """A member of an enumeration, where its attributes are read; everywhere else it is a
    constant."""

    __slots__ = ()

    def receiver(self):
        return ConstantVar(self.value)


@MEMBERS.rule(test=lambda value: True)
def wrap_member(builder, value):
    """The object behind a member, one in each attempt."""
    known = builder.members.get(id(value))
    if known is None:
        source = builder.tree.pinned(value)
        fields = builder.fields_of(value, source.instance_dict())
        known = builder.members[id(value)] = MemberVar(type(value), value, source, fields)
    return known
