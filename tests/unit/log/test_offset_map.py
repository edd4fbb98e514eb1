"""The last offset of each key, for many keys."""

import itertools
import time

from holdfast.log.offset_map import OffsetMap


def test_the_last_offset_of_each_key_is_known_whatever_its_length() -> None:
    keys = [b"%d" % number * (1 + number % 20) for number in range(3000)]
    offsets = OffsetMap(100, 1 << 30)

    for offset, key in enumerate([*keys, *keys[:1000]], start=100):
        offsets.put(key, offset)
    offsets.put(keys[0], 5)

    assert len(offsets) == len(set(keys))
    expected = {key: offset for offset, key in enumerate([*keys, *keys[:1000]], start=100)}
    assert {key: offsets.last_offset(key) for key in expected} == expected
    assert offsets.last_offset(b"another") == -1


def test_the_limit_counts_keys_and_not_records() -> None:
    offsets = OffsetMap(0, 10_000)
    for offset in range(1000):
        offsets.put(b"the same", offset)
    assert not offsets.is_full

    for offset in range(1000):
        offsets.put(b"key %d" % offset, offset)
    assert offsets.is_full


def test_growing_never_takes_long() -> None:
    """No other thread runs while a dictionary is copied into a larger one."""
    offsets = OffsetMap(0, 128 * 1024 * 1024)
    longest = 0.0

    numbers = itertools.count()
    while not offsets.is_full:
        before = time.thread_time()
        for number in itertools.islice(numbers, 1000):
            offsets.put(b"key-%08d" % number, number)
        longest = max(longest, time.thread_time() - before)

    assert len(offsets) > 500_000
    assert longest < 0.02, "a thousand keys take one or two milliseconds; growing all at once took 40"
