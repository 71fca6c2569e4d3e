"""Tables and numbers as the generated pages write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Write a table.

    Args:
        head: The headings.
        rows: Their cells.
        right: Columns of numbers, which are set to the right.

    Returns:
        The table, without a newline at its end.
    """
    rule = ["---:" if at in right else "---" for at in range(len(head))]
    lines = [head, rule, *([cell.replace("\n", " ") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def megabytes(count: float) -> str:
    """Write a number of bytes.

    Args:
        count: Bytes.

    Returns:
        In MB, or in GB from 1 GB on; both count in thousands.
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"
