"""One frame in, one cache entry out: which frames are looked at, attempts at one, its entries, and
the guards of a whole entry."""
