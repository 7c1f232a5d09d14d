"""What can lie on the symbolic stack, one file a kind of value.  In the order in which one reads:
`base` (the protocol), `constant`, `registry` (the tables of rules), `symbolic`, `sequences`,
`dicts`, `functions`, `objects`, `classes`, `iterators`, `nn_modules`, `tensor`, `floats`; and from
a real object to its variable: `containers`, `builder`."""
