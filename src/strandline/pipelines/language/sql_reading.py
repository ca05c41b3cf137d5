"""One statement of a pipeline's SQL file, word by word; what is missing is refused with its line (pure)."""

from __future__ import annotations

from strandline.pipelines.failures import PipelineRefused, guess, refused
from strandline.pipelines.language.model import Place
from strandline.pipelines.language.sql_tokens import Token, TokenKind


def place_of(text: str, file: str, at: int) -> Place:
    return Place(file, text.count("\n", 0, at) + 1)


class StatementReader:
    """A reader of the tokens of a statement, from the first to the last."""

    def __init__(self, text: str, file: str, tokens: list[Token]) -> None:
        self.text = text
        """Of the whole file."""
        self.file = file
        self.at = place_of(text, file, tokens[0].start)
        self._tokens = tokens
        self._next = 0

    def rest(self) -> list[Token]:
        """Return what has not been read."""
        return self._tokens[self._next :]

    def skip(self, count: int) -> None:
        self._next += count

    def clause(self, words: tuple[str, ...]) -> str:
        token = self.peek()
        if token is None or not token.says(*words):
            what = self.what()
            raise self.refused(f"here is {what}{guess(what.upper(), words)}: it can be {', '.join(words)}")
        self._next += 1
        return token.text.upper()

    def word(self, word: str) -> None:
        if not self.maybe(word):
            raise self.refused(f"here is {self.what()} and {word} is missing: write {word}")

    def maybe(self, word: str) -> bool:
        token = self.peek()
        if token is None or not token.says(word):
            return False
        self._next += 1
        return True

    def name(self, what: str) -> str:
        token = self.peek()
        if token is None or not token.is_name:
            raise self.refused(f"here is {self.what()} and {what} is missing: write a name")
        self._next += 1
        return token.name

    def names(self) -> tuple[str, ...]:
        self.sign("(")
        found = [self.name("a column")]
        while self.is_sign(","):
            self._next += 1
            found.append(self.name("a column"))
        self.sign(")")
        return tuple(found)

    def options(self) -> dict[str, str]:
        self.sign("(")
        found: dict[str, str] = {}
        while True:
            token = self.peek()
            is_quoted = token is not None and token.kind is TokenKind.TEXT
            name = self.quoted() if is_quoted else self._dotted()
            self.sign("=")
            found[name] = self.quoted()
            if not self.is_sign(","):
                break
            self._next += 1
        self.sign(")")
        return found

    def _dotted(self) -> str:
        name = self.name("an option")
        while self.is_sign("."):
            self._next += 1
            name += "." + self.name("an option")
        return name

    def quoted(self) -> str:
        token = self.peek()
        if token is None or token.kind is not TokenKind.TEXT:
            raise self.refused(f"here is {self.what()} and a text in quotes is missing: write it like 'this'")
        self._next += 1
        return token.unquoted

    def number(self) -> int:
        token = self.peek()
        if token is None or not token.text.isdigit():
            raise self.refused(f"here is {self.what()} and a number is missing: write one")
        self._next += 1
        return int(token.text)

    def parenthesised_text(self) -> str:
        """Return what stands between these parentheses, without comments."""
        depth, words = 0, []
        for index in range(self._next, len(self._tokens)):
            token = self._tokens[index]
            depth += token.is_sign("(") - token.is_sign(")")
            words.append(token)
            if depth == 0:
                self._next = index + 1
                break
        else:
            raise self.refused("the parenthesis ( is not closed: close it")
        inner = words[1:-1]
        if not inner:
            raise self.refused("there are no columns between the parentheses: name some, or leave out the parentheses")
        return " ".join(token.text for token in inner)

    def sign(self, sign: str) -> None:
        if not self.is_sign(sign):
            raise self.refused(f"here is {self.what()} and {sign} is missing: write {sign}")
        self._next += 1

    def is_sign(self, sign: str) -> bool:
        token = self.peek()
        return token is not None and token.is_sign(sign)

    def peek(self) -> Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def is_done(self) -> bool:
        return self.peek() is None

    def end(self) -> None:
        if not self.is_done():
            raise self.refused(f"here is {self.what()} and the statement should end: write ;")

    def what(self) -> str:
        token = self.peek()
        return "the end of the statement" if token is None else token.text

    def refused(self, sentence: str) -> PipelineRefused:
        token = self.peek() or self._tokens[-1]
        return refused(sentence, place_of(self.text, self.file, token.start))
