"""The timeline as a PNG, decoded again by hand."""

from __future__ import annotations

import struct
import zlib

from holdfast.spark.pipelines.forensics import bitmap_font
from holdfast.spark.pipelines.forensics.png_report import png
from holdfast.spark.pipelines.forensics.timeline import Interval, Mark, Timeline


class Decoded:
    def __init__(self, data: bytes) -> None:
        assert data.startswith(b"\x89PNG\r\n\x1a\n")
        at, body = 8, b""
        self.names = []
        while at < len(data):
            (length,) = struct.unpack_from(">I", data, at)
            name, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
            assert struct.unpack_from(">I", data, at + 8 + length)[0] == zlib.crc32(name + content)
            self.names.append(name)
            if name == b"IHDR":
                self.width, self.height, depth, kind = struct.unpack_from(">IIBB", content)
                assert (depth, kind) == (8, 2)
            body += content if name == b"IDAT" else b""
            at += 12 + length
        raw = zlib.decompress(body)
        line = self.width * 3 + 1
        assert len(raw) == line * self.height
        self.rows = [raw[begin + 1 : begin + line] for begin in range(0, len(raw), line)]
        assert all(raw[begin] == 0 for begin in range(0, len(raw), line))

    def colours(self) -> set[tuple[int, ...]]:
        return {tuple(row[at : at + 3]) for row in self.rows for at in range(0, len(row), 3)}


def test_owners_have_their_colours_and_rebalances_their_lines() -> None:
    intervals = [Interval("orders", 0, "a", 0, 5_000), Interval("orders", 0, "b", 5_000, None)]
    drawing = Timeline.of("orders", intervals, [Mark(5_000, "a new member joined")]).drawing()
    without = Timeline.of("orders", intervals, []).drawing()

    picture, plain = Decoded(png(drawing, width=400)), Decoded(png(without, width=400))

    assert picture.names == [b"IHDR", b"IDAT", b"IEND"]
    assert picture.width == 400
    assert set(drawing.colours.values()) <= picture.colours()
    red = (214, 40, 40)
    assert red in picture.colours()
    assert red not in plain.colours(), "the control"


def test_a_picture_of_nothing_and_of_a_name_that_cannot_be_drawn() -> None:
    assert Decoded(png(Timeline.of("", []).drawing())).height > 0
    strange = Timeline.of("\ud800☃" * 500, [Interval("\x00", 0, "ünïcode" * 50, 0, 10)]).drawing()
    assert Decoded(png(strange)).width == 1200


def test_every_letter_is_drawn_in_its_box() -> None:
    for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.,:/()+='? az☃":
        drawn = bitmap_font.glyph(letter)
        assert [len(row) for row in drawn] == [bitmap_font.WIDTH] * bitmap_font.HEIGHT, letter
    different = [bitmap_font.glyph(letter) for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"]
    assert len(set(different)) == len(different)
