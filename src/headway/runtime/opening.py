"""Opens the book where the last process closed it: its memory, its prices, its month."""

from __future__ import annotations

from headway.core.quota.book import Book
from headway.core.quota.demand import Price
from headway.runtime.clock import hour, today
from headway.runtime.store import Kept


def open_book(kept: Kept, now: float) -> Book:
    """The book of a user, as it was found."""

    def price_at(model: str, input_tokens: int) -> Price | None:
        """Prices take half a second to import, and nobody needs them without a money budget."""
        if all(ledger.budget.microusd is None for _, ledger in book.purse.statistics().ledgers):
            return None
        from headway.runtime import prices

        return prices.price_at(model, input_tokens)

    book = Book(kept.memory, price_at, now, kept.age_s)
    turn(book, now)
    return book


def turn(book: Book, now: float) -> None:
    """Tell a book what the clock on the wall says: budgets are for months, habits for hours."""
    book.purse.turn(today())
    book.lanes.turn(hour(), now)
