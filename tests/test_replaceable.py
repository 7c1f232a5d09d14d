"""A function of the core that coverage replaces."""

from miniinductor.replaceable import replaceable


def test_whoever_has_the_function_already_calls_what_replaced_it():
    @replaceable
    def price(name, times=1):
        """What it costs."""
        return times

    bought = [price]  # as `from .prices import price` does

    @price.replaced
    def dear(name, times=1):
        return 10 * times

    assert bought[0]("tea", times=2) == price("tea", 2) == dear("tea", 2) == 20
    assert price.__doc__ == "What it costs." and price.__name__ == "price"
