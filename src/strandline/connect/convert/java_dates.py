"""Patterns of Java's SimpleDateFormat, in English and UTC: moments to text and back.

Parsing is lenient, as Java's default: the 32nd of January is the 1st of February, and text behind the match is ignored.
The calendar is Gregorian for all times; Java's is Julian before 1582.
"""

from __future__ import annotations

import re
import time
from typing import Final, NamedTuple

from strandline.connect.convert.logical import DAY_MS

LETTERS: Final = frozenset("GyYMLwWDdFEuaHkKhmsSzZX")
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_TEXT_LETTERS: Final = frozenset("GEazZX")
_ZONES: Final = {"UTC": 0, "GMT": 0, "UT": 0, "Z": 0, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5}
_WESTERN_ZONES: Final = {"MST": -7, "MDT": -6, "PST": -8, "PDT": -7}
_OFFSET: Final = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2}):?(\d{2})?")
_NUMBER: Final = re.compile(r"-?\d+")
_CENTURY_YEARS_BACK: Final = 80
"""A year of two digits is at most 80 years ago, and less than 20 ahead."""
_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000


class _Item(NamedTuple):
    letter: str
    """Empty for a literal text."""
    width: int
    literal: str = ""


class JavaDateFormat:
    """A pattern."""

    def __init__(self, pattern: str) -> None:
        """Raise ValueError, in Java's words, if there is no such pattern."""
        self.pattern = pattern
        self._items = _parsed(pattern)

    def format(self, epoch_ms: int) -> str:
        """Return the text of a moment."""
        moment = _Moment(epoch_ms)
        return "".join(
            each.literal if not each.letter else moment.shown(each.letter, each.width) for each in self._items
        )

    def parse(self, text: str) -> int | None:
        """Return the milliseconds since 1970 that a text begins with; None if it does not match."""
        parsing = _Parsing(text)
        for index, each in enumerate(self._items):
            if not each.letter:
                if not text.startswith(each.literal, parsing.at):
                    return None
                parsing.at += len(each.literal)
                continue
            following = self._items[index + 1] if index + 1 < len(self._items) else None
            # Numbers side by side have exactly the digits of the pattern, as in yyyyMMdd.
            is_fixed = following is not None and following.letter != "" and following.letter not in _TEXT_LETTERS
            if not parsing.take(each.letter, each.width, is_fixed=is_fixed):
                return None
        return parsing.result()


def _parsed(pattern: str) -> list[_Item]:
    items: list[_Item] = []
    literal = ""
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "'":
            if pattern.startswith("''", at):
                literal, at = literal + "'", at + 2
                continue
            text, at = _quoted(pattern, at + 1)
            literal += text
            continue
        if not (character.isascii() and character.isalpha()):
            literal, at = literal + character, at + 1
            continue
        if character not in LETTERS:
            raise ValueError(f"Illegal pattern character '{character}'")
        if literal:
            items.append(_Item("", 0, literal))
            literal = ""
        end = at
        while end < len(pattern) and pattern[end] == character:
            end += 1
        items.append(_Item(character, end - at))
        at = end
    return [*items, _Item("", 0, literal)] if literal else items


def _quoted(pattern: str, at: int) -> tuple[str, int]:
    """Return the text up to the closing quote, and what follows it; two quotes are one in the text."""
    text = ""
    while at < len(pattern):
        if pattern.startswith("''", at):
            text, at = text + "'", at + 2
        elif pattern[at] == "'":
            return text, at + 1
        else:
            text, at = text + pattern[at], at + 1
    raise ValueError("Unterminated quote")


class _Moment:
    """The fields of a moment."""

    def __init__(self, epoch_ms: int) -> None:
        self.days, rest = divmod(epoch_ms, DAY_MS)
        self.year, self.month, self.day = _civil(self.days)
        self.hour, rest = divmod(rest, _HOUR_MS)
        self.minute, rest = divmod(rest, _MINUTE_MS)
        self.second, self.millisecond = divmod(rest, 1000)
        self.weekday = (self.days + 4) % 7
        """0 is Sunday."""

    def shown(self, letter: str, count: int) -> str:
        if letter == "y":
            year = self.year if self.year > 0 else 1 - self.year
            return f"{year % 100:02}" if count == 2 else str(year).zfill(count)
        if letter in "ML" and count >= 3:
            name = _MONTHS[self.month - 1]
            return name if count > 3 else name[:3]
        match letter:
            case "G":
                return "AD" if self.year > 0 else "BC"
            case "E":
                return _DAYS[self.weekday] if count > 3 else _DAYS[self.weekday][:3]
            case "a":
                return "PM" if self.hour >= 12 else "AM"
            case "z":
                return "Coordinated Universal Time" if count > 3 else "UTC"
            case "Z":
                return "+0000"
            case "X":
                return "Z"
            case "Y":
                year, _ = self._week()
                return f"{year % 100:02}" if count == 2 else str(year).zfill(count)
        return str(self._number(letter)).zfill(count)

    def _number(self, letter: str) -> int:
        match letter:
            case "M" | "L":
                return self.month
            case "d":
                return self.day
            case "H":
                return self.hour
            case "k":
                return self.hour or 24
            case "K":
                return self.hour % 12
            case "h":
                return self.hour % 12 or 12
            case "m":
                return self.minute
            case "s":
                return self.second
            case "S":
                return self.millisecond
            case "D":
                return self.days - _days(self.year, 1, 1) + 1
            case "F":
                return (self.day - 1) // 7 + 1
            case "u":
                return self.weekday or 7
            case "W":
                first_weekday = (self.weekday - (self.day - 1)) % 7
                return (self.day - 1 + first_weekday) // 7 + 1
        return self._week()[1]

    def _week(self) -> tuple[int, int]:
        """Return the year of the week and the week in it: weeks begin on Sunday, the first has the 1st of January."""
        saturday = self.days + 6 - self.weekday
        year = _civil(saturday)[0]
        return year, (saturday - _days(year, 1, 1)) // 7 + 1


class _Parsing:
    """The fields that were read so far."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._fields: dict[str, int] = {}
        self._offset_ms = 0

    def take(self, letter: str, count: int, *, is_fixed: bool) -> bool:
        """Read one field; return whether it is there."""
        while self.text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1
        if letter in "zZX":
            return self._zone(iso=letter == "X")
        if letter in "ML" and count >= 3:
            return self._name("M", _MONTHS, 1)
        match letter:
            case "E":
                return self._name("E", _DAYS, 0)
            case "a":
                return self._name("a", ("AM", "PM"), 0)
            case "G":
                return self._name("G", ("BC", "AD"), 0)
        found = _NUMBER.match(self.text, self.at, self.at + count if is_fixed else len(self.text))
        if found is None:
            return False
        number = int(found[0])
        if letter == "y" and count <= 2 and found.end() - self.at == 2 and number >= 0:
            number = _in_century(number)
        self.at = found.end()
        self._fields["M" if letter == "L" else letter] = number
        return True

    def _name(self, letter: str, names: tuple[str, ...], first: int) -> bool:
        rest = self.text[self.at :].lower()
        for length in (max(map(len, names)), 3):
            for index, name in enumerate(names):
                wanted = name[:length].lower()
                if rest.startswith(wanted):
                    self.at += len(wanted)
                    self._fields[letter] = index + first
                    return True
        return False

    def _zone(self, *, iso: bool) -> bool:
        found = _OFFSET.match(self.text, self.at)
        if found is not None:
            minutes = int(found[2]) * 60 + int(found[3] or 0)
            self._offset_ms = (-1 if found[1] == "-" else 1) * minutes * _MINUTE_MS
            self.at = found.end()
            return True
        names = {"Z": 0} if iso else _ZONES | _WESTERN_ZONES
        for name in sorted(names, key=len, reverse=True):
            if self.text[self.at : self.at + len(name)].upper() == name:
                self._offset_ms = names[name] * _HOUR_MS
                self.at += len(name)
                return True
        return False

    def result(self) -> int:
        get = self._fields.get
        year = get("y", get("Y", 1970))
        if get("G") == 0:
            year = 1 - year
        if "D" in self._fields and "d" not in self._fields:
            days = _days(year, 1, 1) + self._fields["D"] - 1
        else:
            days = _days(year, get("M", 1), get("d", 1))
        if "h" in self._fields or "K" in self._fields:
            hour = get("K", get("h", 0) % 12) + 12 * get("a", 0)
        else:
            hour = get("H", get("k", 0) % 24)
        milliseconds = hour * _HOUR_MS + get("m", 0) * _MINUTE_MS + get("s", 0) * 1000 + get("S", 0)
        return days * DAY_MS + milliseconds - self._offset_ms


def _in_century(year: int) -> int:
    first = time.gmtime().tm_year - _CENTURY_YEARS_BACK
    found = first - first % 100 + year
    return found if found >= first else found + 100


def _civil(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a day since 1970, for any year."""
    era, of_era = divmod(days + 719_468, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year_of_era + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def _days(year: int, month: int, day: int) -> int:
    """Return the day since 1970 of a date, whose month and day may be beyond their ends."""
    more_years, month = divmod(month - 1, 12)
    year, month = year + more_years, month + 1
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + of_year + day - 1 - 719_468
