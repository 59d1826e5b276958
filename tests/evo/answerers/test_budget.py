import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from evo.answerers.budget import Budget, BudgetExhausted, Price


def spend(budget: Budget, *, reserved: float, cost: float) -> None:
    with budget.reserve(reserved) as charge:
        charge.settle(cost)


def test_a_price_is_per_million_tokens():
    price = Price(prompt_usd=2.0, completion_usd=10.0)
    assert price.cost_usd(prompt_tokens=500_000, completion_tokens=200_000) == 3.0


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_a_price_or_a_limit_that_is_none_is_an_error(bad):
    with pytest.raises(ValueError, match="finite number"):
        Price(prompt_usd=bad)
    with pytest.raises(ValueError, match="finite number"):
        Price(completion_usd=bad)
    with pytest.raises(ValueError, match="finite number"):
        Budget(limit_usd=bad)


def test_what_a_call_cost_is_spent_and_the_rest_of_its_reservation_is_free_again():
    budget = Budget(limit_usd=1.0)
    spend(budget, reserved=0.75, cost=0.25)
    spend(budget, reserved=0.75, cost=0.5)
    assert budget.spent_usd == 0.75


def test_the_cap_is_hard_before_the_call_and_may_be_met_exactly():
    budget = Budget(limit_usd=1.0, spent_usd=0.5)
    spend(budget, reserved=0.5, cost=0.5)
    with pytest.raises(BudgetExhausted, match=r"may cost 0\.2500 USD; 1\.0000 of 1\.0 are spent"), budget.reserve(0.25):
        pass
    assert budget.spent_usd == 1.0
    spend(budget, reserved=0.0, cost=0.0)


def test_a_charge_that_nobody_settles_counts_in_full():
    budget = Budget(limit_usd=1.0)
    with pytest.raises(KeyError), budget.reserve(0.5):
        raise KeyError("the call failed in some way that nobody foresaw")
    assert budget.spent_usd == 0.5


def test_a_call_that_cost_more_than_it_could_is_counted():
    budget = Budget(limit_usd=1.0)
    spend(budget, reserved=0.5, cost=3.0)
    with pytest.raises(BudgetExhausted), budget.reserve(0.01):
        pass


def test_without_a_limit_the_spend_is_counted():
    budget = Budget()
    spend(budget, reserved=1e9, cost=5.0)
    assert (budget.limit_usd, budget.spent_usd) == (None, 5.0)


def test_a_reservation_waits_for_calls_that_may_leave_enough():
    budget = Budget(limit_usd=1.0)
    held, release = threading.Event(), threading.Event()

    def first() -> None:
        with budget.reserve(0.75) as charge:
            held.set()
            release.wait(10)
            charge.settle(0.25)

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(first)
        held.wait(10)
        two = pool.submit(spend, budget, reserved=0.75, cost=0.75)
        release.set()
        one.result(10)
        two.result(10)
    assert budget.spent_usd == 1.0


def test_many_threads_never_exceed_the_cap():
    budget = Budget(limit_usd=5.0)

    def call(_: int) -> bool:
        try:
            spend(budget, reserved=0.5, cost=0.25)
        except BudgetExhausted:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        went = sum(pool.map(call, range(100)))
    assert budget.spent_usd == 0.25 * went
    assert went == 19


def test_half_and_four_fifths_are_said_once_each(caplog):
    budget = Budget(limit_usd=10.0)
    for _ in range(8):
        spend(budget, reserved=1.0, cost=1.0)
    assert [record.getMessage() for record in caplog.records] == [
        "50 % of the budget is spent: 5.0000 of 10.0 USD",
        "80 % of the budget is spent: 8.0000 of 10.0 USD",
    ]


def test_a_resumed_budget_does_not_warn_again(caplog):
    spend(Budget(limit_usd=10.0, spent_usd=6.0), reserved=1.0, cost=1.0)
    assert caplog.records == []
