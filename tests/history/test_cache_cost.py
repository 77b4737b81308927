import pytest

from minutebook.errors import InvalidSetting
from minutebook.history import CacheLedger
from minutebook.tokens import Prices

FIRST = [{"role": "user", "content": "a"}]
LONGER = [*FIRST, {"role": "assistant", "content": "b"}]


@pytest.mark.parametrize(
    ("prices", "cost"),
    [
        ((), 0.1 * 10 + 1.25 * 15),
        ((Prices(input=2.0, cache_read=0.5, cache_write=4.0),), 0.25 * 10 + 2 * 15),
        ((Prices(input=2.0),), 25),
    ],
)
def test_the_cost_is_in_plain_input_tokens_for_any_prices(prices, cost):
    ledger = CacheLedger(*prices)
    ledger.send(FIRST, [10])
    ledger.send(LONGER, [10, 5])

    assert (ledger.tokens, ledger.cached, ledger.busts) == (25, 10, 0)
    assert ledger.cost == cost


@pytest.mark.parametrize("price", [None, 0.0])
def test_prices_without_an_input_price_are_refused(price):
    with pytest.raises(InvalidSetting, match="expected prices with input above 0"):
        CacheLedger(Prices(input=price, cache_read=0.1))
