"""Grammar of `--where`, parsed by pyparsing; imported only when there is an expression."""

from __future__ import annotations

import functools
import re
from decimal import Decimal
from typing import Any

import pyparsing as pp

from binlogtool.errors import UsageError
from binlogtool.log.where_terms import (
    MOST_DIGITS,
    OPERATORS,
    Every,
    Field,
    Literal,
    Not,
    Operand,
    Some,
    Term,
    compared,
    globbed,
    is_null,
    like,
    moment,
    within,
)

MEMBERS = ("type", "seq", "time", "object", "origin", "txn", "record", "offset", "size")
"""What is known of a record before its body is read."""

INSIDE = ("body", "before", "after")
"""What a path into the body begins with."""

MOST_CHARACTERS = 8192
MOST_NESTED = 24
_WORDS = "and or not in is null like true false"
_TOKEN = re.compile(r"'(?:[^']|'')*'|`[^`]*`|[()]")
_END = re.compile("end of text$")
_SIGNS = sorted(OPERATORS, key=len, reverse=True)


@functools.lru_cache(16)
def parsed(text: str) -> Term:
    """Parse an expression.

    Raises:
        UsageError: it is invalid; the message names the column.
    """
    if len(text) > MOST_CHARACTERS:
        raise UsageError(
            f"--where: column {MOST_CHARACTERS + 1}: an expression has at most {MOST_CHARACTERS} characters"
        )
    _check_depth(text)
    try:
        term: Term = _grammar().parse_string(text, parse_all=True)[0]
    except pp.ParseBaseException as error:
        raise _wrong(
            error.loc, _END.sub("'and', 'or' or the end", error.msg[:1].lower() + error.msg[1:]), text
        ) from None
    return term


def _wrong(at: int, message: str, text: str) -> UsageError:
    rest = text[at:].lstrip()
    found = repr(re.split(r"(?<=\w)\b", rest, maxsplit=1)[0][:20]) if rest else "the end"
    return UsageError(f"--where: column {len(text) - len(rest) + 1}: {message}, found {found}")


def _check_depth(text: str) -> None:
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if depth > MOST_NESTED:
            raise _wrong(token.start(), f"parentheses are nested at most {MOST_NESTED} deep", text)


@functools.cache
def _grammar() -> pp.ParserElement:
    """Return the grammar: or < and < not < condition | ( expression )."""
    term = pp.Forward()
    nested = pp.Suppress("(") + term - pp.Suppress(pp.Literal(")").set_name("')'"))
    negated: pp.ParserElement = (_word("not")[...] + (nested | _condition()).set_name("a condition")).set_parse_action(
        _negated
    )
    negated.set_name("a condition")
    every = (negated + (pp.Suppress(_word("and")) - negated)[...]).set_parse_action(lambda t: _joined(Every, t))
    term <<= (every + (pp.Suppress(_word("or")) - every)[...]).set_parse_action(lambda t: _joined(Some, t))
    return term


def _word(name: str) -> pp.ParserElement:
    return pp.CaselessKeyword(name).set_name(f"'{name}'")


def _condition() -> pp.ParserElement:
    operand = (_literal() | _field()).set_name("a value or a member of a record")
    text = _text().set_name("a text in quotes")
    sign = pp.one_of(_SIGNS).set_name("a comparison")
    values = pp.Suppress("(") - pp.DelimitedList(_literal()) - pp.Suppress(pp.Literal(")").set_name("')'"))
    tails = (
        (sign - operand).set_parse_action(lambda t: lambda one: compared(t[0], one, t[1]))
        | (_word("is") - _word("not")[0, 1] + pp.Suppress(_word("null"))).set_parse_action(_null_tail)
        | (_word("in") - values).set_parse_action(lambda t: lambda one: within(one, tuple(t[1:])))
        | (_word("like") - text).set_parse_action(lambda t: lambda one: like(one, t[1].value))
        | (pp.Literal("~") - text).set_parse_action(lambda t: lambda one: globbed(one, t[1].value))
        | (pp.Literal("!~") - text).set_parse_action(lambda t: lambda one: Not(globbed(one, t[1].value)))
        | (_word("not") + (_word("in") - values)).set_parse_action(lambda t: lambda one: Not(within(one, tuple(t[2:]))))
        | (_word("not") + (_word("like") - text)).set_parse_action(lambda t: lambda one: Not(like(one, t[2].value)))
    ).set_name("a comparison, 'is', 'in', 'like' or '~'")
    condition: pp.ParserElement = (operand - tails).set_parse_action(lambda t: t[1](t[0]))
    return condition.set_name("a condition")


def _null_tail(tokens: pp.ParseResults) -> Any:
    def tail(one: Operand) -> Term:
        return Not(is_null(one)) if len(tokens) > 1 else is_null(one)

    return tail


def _negated(tokens: pp.ParseResults) -> Term:
    term: Term = tokens[-1]
    return Not(term) if len(tokens) % 2 == 0 else term


def _joined(kind: type[Every] | type[Some], tokens: pp.ParseResults) -> Term:
    terms: tuple[Term, ...] = tuple(tokens)
    return terms[0] if len(terms) == 1 else kind(terms)


def _text() -> pp.ParserElement:
    return pp.Regex(r"'(?:[^']|'')*'").set_parse_action(lambda t: Literal(t[0][1:-1].replace("''", "'")))


def _literal() -> pp.ParserElement:
    """Return the grammar of numbers, texts, x'bytes', times, true, false, null."""
    number = pp.Regex(r"[+-]?[0-9]+(?:\.[0-9]+)?(?![\w.])").set_name("a value").set_parse_action(_number)
    octets = pp.Regex(r"[xX]'(?:[0-9a-fA-F]{2})*'").set_parse_action(lambda t: Literal(bytes.fromhex(t[0][2:-1])))
    times = pp.Regex(r"(?i:time)\s*'([^']*)'").set_parse_action(_time)
    words = {"null": None, "true": True, "false": False}
    constants = [_word(name).set_parse_action(functools.partial(_constant, value)) for name, value in words.items()]
    return (number | octets | times | _text() | pp.MatchFirst(constants)).set_name("a value")


def _constant(value: Any) -> Literal:
    return Literal(value)


def _number(text: str, at: int, tokens: pp.ParseResults) -> Literal:
    if len(tokens[0]) > MOST_DIGITS:
        raise pp.ParseFatalException(text, at, f"a number has at most {MOST_DIGITS} digits")
    return Literal(Decimal(tokens[0]) if "." in tokens[0] else int(tokens[0]))


def _time(text: str, at: int, tokens: pp.ParseResults) -> Literal:
    found = moment(tokens[0][tokens[0].index("'") + 1 : -1])
    if found is None:
        raise pp.ParseFatalException(text, at, "expected a time such as time '2026-01-31T12:00:00Z'")
    return Literal(found)


def _field() -> pp.ParserElement:
    quoted = pp.Regex(r"`[^`]+`").set_name("a name").set_parse_action(lambda t: t[0][1:-1])
    first = quoted | ~pp.one_of(_WORDS, caseless=True, as_keyword=True) + pp.Regex(r"[^\W\d]\w*")
    name = (quoted | pp.Regex(r"\w+")).set_name("a name")
    index = (pp.Suppress("[") - pp.Regex(r"[0-9]{1,9}").set_name("a number") - pp.Suppress("]")).set_parse_action(
        lambda t: int(t[0])
    )
    field: pp.ParserElement = (first + (pp.Suppress(".") - name | index)[...]).set_parse_action(_known)
    return field.set_name("a member of a record")


def _known(text: str, at: int, tokens: pp.ParseResults) -> Field:
    path = tuple(tokens)
    if path[0] not in (*MEMBERS, *INSIDE):
        members = ", ".join((*MEMBERS, *(f"{name}.NAME" for name in INSIDE)))
        raise pp.ParseFatalException(text, at, f"a record has {members}")
    if (len(path) == 1) is (path[0] in INSIDE):
        what = "needs a name behind it" if path[0] in INSIDE else "has nothing below it"
        raise pp.ParseFatalException(text, at, f"{path[0]} {what}")
    return Field(path)
