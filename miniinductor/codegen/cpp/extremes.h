namespace mini {
// argmax: the extreme and its place.  A NaN counts as the extreme; among equals the first place wins, in any order of combining.
template <class T> struct Extreme { T value; int64_t index; };
#define EXTREME(name, beyond) template <class T> OP Extreme<T> name(Extreme<T> a, Extreme<T> b) {                                   \
    bool nan_a = a.value != a.value, nan_b = b.value != b.value, equal = a.value == b.value || (nan_a && nan_b);                 \
    return (equal ? b.index < a.index : (nan_b || (!nan_a && b.value beyond a.value))) ? b : a;                                  \
}
EXTREME(larger, >) EXTREME(smaller, <)
}  // namespace mini
