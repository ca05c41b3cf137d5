"""Judgements and patterns as a person reads them."""

from __future__ import annotations

import sys

from strandline.advice.anti_patterns import AntiPattern
from strandline.advice.forces import MOST
from strandline.advice.gates import GateAnswer
from strandline.advice.judgement import Judgement
from strandline.advice.safe_operation import RuleState
from strandline.advice.sizing import Figure
from strandline.cli.common.output import Output, colours_wanted

_ANSWERS = {True: "yes", False: "no", None: "?"}
_WIDTH = 10


class AdvicePage:
    """A page with headings on the left and text on the right."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._colours = output.is_terminal and colours_wanted(sys.stdout)
        self._heading = ""

    def heading(self, word: str) -> None:
        self._output.line("")
        self._heading = word

    def line(self, text: str, *, first: str = "", indent: int = 0) -> None:
        """Print a line, with the heading before the first one, and `first` before the text."""
        left, self._heading = self._heading, ""
        rest = " " * (_WIDTH + indent + len(first))
        begin = f"{self._bold(f'{left:{_WIDTH}}')}{' ' * indent}{first}"
        self._output.hanging(begin, rest, text)

    def title(self, text: str) -> None:
        self._output.line(self._bold(text))

    def _bold(self, text: str) -> str:
        return f"\033[1m{text}\033[0m" if self._colours and text.strip() else text


def show_judgement(output: Output, judgement: Judgement, about: str) -> None:
    page = AdvicePage(output)
    page.title(f"{judgement.workload}: {judgement.sentence}")
    if about:
        page.line(about)
    _reasons(page, judgement)
    page.heading("gates")
    width = max(len(gate.name) for gate in judgement.gates)
    for gate in judgement.gates:
        page.line(_gate_words(gate), first=f"{gate.name:{width}}  {_ANSWERS[gate.answer]:3}  ")
    page.heading("for it")
    page.line(f"{judgement.score} of {MOST} forces speak for a log")
    width = max(len(force.name) for force in judgement.forces)
    for force in judgement.forces:
        if force.holds is not None:
            page.line(force.why, first=f"{'+' if force.holds else '-'} {force.name:{width}}  ")
    unknown = [force.name for force in judgement.forces if force.holds is None]
    if unknown:
        page.line(f"not described: {', '.join(unknown)}", first="? ")
    if judgement.limits:
        page.heading("against")
        for limit in judgement.limits:
            page.line(f"{limit.name} ({limit.limit_class}): {limit.why}")
            page.line(limit.moved_by, first="moved by: ", indent=2)
    if judgement.verdict.has_topic:
        _sizing(page, judgement)
        _rules(page, judgement)


def _reasons(page: AdvicePage, judgement: Judgement) -> None:
    if judgement.deciding:
        page.heading("deciding")
        for reason in judgement.deciding:
            page.line(reason)
    if judgement.advice:
        page.heading("do")
        page.line(judgement.advice)


def _gate_words(gate: GateAnswer) -> str:
    return gate.why.partition(". ")[0]


def _sizing(page: AdvicePage, judgement: Judgement) -> None:
    known = [figure for figure in judgement.figures if figure.value is not None]
    unknown = [figure for figure in judgement.figures if figure.value is None]
    page.heading("sizing")
    for figure in known:
        page.line(figure.shown, first=f"{figure.name:10}  ")
        page.line(_formula_words(figure), first="= ", indent=12)
    for figure in unknown:
        page.line(f"unknown; it needs {' and '.join(figure.lacks)}", first=f"{figure.name:10}  ")


def _formula_words(figure: Figure) -> str:
    inputs = ", ".join(f"{each.name} {each.value} ({each.source})" for each in figure.inputs)
    return f"{figure.formula}: {inputs}" if inputs else figure.formula


def _rules(page: AdvicePage, judgement: Judgement) -> None:
    page.heading("rules")
    for rule in judgement.rules:
        page.line(rule.rule, first=f"{rule.number}  {rule.state:8}  ")
        page.line(rule.why, indent=13)
        if rule.advice and rule.state is RuleState.BROKEN:
            page.line(rule.advice, first="do: ", indent=13)


def show_pattern(output: Output, pattern: AntiPattern) -> None:
    page = AdvicePage(output)
    word = "" if pattern.is_found else " (suspected, on weak signs)"
    page.title(f"{pattern.topic}: {pattern.pattern}{word}")
    for sign in pattern.signs:
        page.line(sign.text, first="seen: ")
    if pattern.unknown:
        page.line("; ".join(pattern.unknown), first="not measured: ")
    page.line(pattern.advice, first="do: ")
    output.line("")
