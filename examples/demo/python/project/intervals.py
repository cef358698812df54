"""Bookings of a meeting room, as half-open intervals (start, end)."""


def merge(bookings):
    """Return the bookings in order, those that touch or overlap joined."""
    merged = []
    for start, end in sorted(bookings):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged
