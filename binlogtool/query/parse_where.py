"""Grammar of `--where` for pyparsing; imported only when there is an expression."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyparsing as pp

from binlogtool.errors import UsageError
from binlogtool.query.conditions import (
    BODY_MEMBERS,
    MAX_DIGITS,
    MEMBERS,
    OPERATORS,
    AndTerm,
    Comparison,
    Constant,
    MemberPath,
    NotTerm,
    Operand,
    OrTerm,
    Term,
    make_comparison,
    make_glob_test,
    make_in_test,
    make_like_test,
    make_null_test,
    parse_timestamp,
)

MAX_CHARACTERS = 8192
MAX_NESTING = 24
_KEYWORDS = "and or not in is null like true false"
_TOKEN = re.compile(r"'(?:[^']|'')*'|`[^`]*`|[()]")
_END_MESSAGE = re.compile("end of text$")
_OPERATOR_SIGNS = sorted(OPERATORS, key=len, reverse=True)


@functools.lru_cache(16)
def parse_expression(text: str) -> Term:
    """Parse an expression. Raises UsageError: it is invalid; the message names the column."""
    if len(text) > MAX_CHARACTERS:
        raise UsageError(f"--where: column {MAX_CHARACTERS + 1}: an expression has at most {MAX_CHARACTERS} characters")
    _check_depth(text)
    try:
        term: Term = _grammar().parse_string(text, parse_all=True)[0]
    except pp.ParseBaseException as error:
        raise _make_syntax_error(
            error.loc, _END_MESSAGE.sub("'and', 'or' or the end", error.msg[:1].lower() + error.msg[1:]), text
        ) from None
    return term


def iter_compared_object_and_type_names(text: str) -> Iterator[tuple[str, str]]:
    """Yield ("object" or "type", name) for each name that a condition compares by = or in, but not after `not`."""
    terms = [parse_expression(text)]
    while terms:
        term = terms.pop(0)
        if isinstance(term, AndTerm | OrTerm):
            terms += term.terms
        elif isinstance(term, Comparison) and term.holds is operator.eq:
            paths = [one.path for one in term.operands if isinstance(one, MemberPath)]
            names = [one.value for one in term.operands if isinstance(one, Constant) and isinstance(one.value, str)]
            if names and paths in ([("object",)], [("type",)]):
                yield str(paths[0][0]), names[0]


def _make_syntax_error(at: int, message: str, text: str) -> UsageError:
    rest = text[at:].lstrip()
    found_text = repr(re.split(r"(?<=\w)\b", rest, maxsplit=1)[0][:20]) if rest else "the end"
    hint = "; a text has single quotes" if rest.startswith('"') else ""
    hint = hint or ("; write a name such as @1 in backquotes" if rest.startswith("@") else "")
    return UsageError(f"--where: column {len(text) - len(rest) + 1}: {message}, found {found_text}{hint}")


def _check_depth(text: str) -> None:
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if depth > MAX_NESTING:
            raise _make_syntax_error(token.start(), f"parentheses are nested at most {MAX_NESTING} deep", text)


@functools.cache
def _grammar() -> pp.ParserElement:
    """Return the grammar of expressions; precedence: or < and < not < condition | ( expression )."""
    term = pp.Forward()
    nested = pp.Suppress("(") + term - pp.Suppress(pp.Literal(")").set_name("')'"))
    negated: pp.ParserElement = (
        _keyword("not")[...] + (nested | _condition_grammar()).set_name("a condition")
    ).set_parse_action(_apply_not)
    negated.set_name("a condition")
    every = (negated + (pp.Suppress(_keyword("and")) - negated)[...]).set_parse_action(
        lambda t: _combine_terms(AndTerm, t)
    )
    term <<= (every + (pp.Suppress(_keyword("or")) - every)[...]).set_parse_action(lambda t: _combine_terms(OrTerm, t))
    return term


def _keyword(name: str) -> pp.ParserElement:
    return pp.CaselessKeyword(name).set_name(f"'{name}'")


def _condition_grammar() -> pp.ParserElement:
    operand = (_literal_grammar() | _field_grammar()).set_name("a value or a member of a record")
    text = _text_grammar().set_name("a text in quotes")
    sign = pp.one_of(_OPERATOR_SIGNS).set_name("a comparison")
    values = pp.Suppress("(") - pp.DelimitedList(_literal_grammar()) - pp.Suppress(pp.Literal(")").set_name("')'"))
    tails = (
        (sign - operand).set_parse_action(lambda t: lambda one: make_comparison(t[0], one, t[1]))
        | (_keyword("is") - _keyword("not")[0, 1] + pp.Suppress(_keyword("null"))).set_parse_action(_make_null_test)
        | (_keyword("in") - values).set_parse_action(lambda t: lambda one: make_in_test(one, tuple(t[1:])))
        | (_keyword("like") - text).set_parse_action(lambda t: lambda one: make_like_test(one, t[1].value))
        | (pp.Literal("~") - text).set_parse_action(lambda t: lambda one: make_glob_test(one, t[1].value))
        | (pp.Literal("!~") - text).set_parse_action(lambda t: lambda one: NotTerm(make_glob_test(one, t[1].value)))
        | (_keyword("not") + (_keyword("in") - values)).set_parse_action(
            lambda t: lambda one: NotTerm(make_in_test(one, tuple(t[2:])))
        )
        | (_keyword("not") + (_keyword("like") - text)).set_parse_action(
            lambda t: lambda one: NotTerm(make_like_test(one, t[2].value))
        )
    ).set_name("a comparison, 'is', 'in', 'like' or '~'")
    condition: pp.ParserElement = (operand - tails).set_parse_action(lambda t: t[1](t[0]))
    return condition.set_name("a condition")


def _make_null_test(tokens: pp.ParseResults) -> Any:
    def tail(operand: Operand) -> Term:
        return NotTerm(make_null_test(operand)) if len(tokens) > 1 else make_null_test(operand)

    return tail


def _apply_not(tokens: pp.ParseResults) -> Term:
    term: Term = tokens[-1]
    return NotTerm(term) if len(tokens) % 2 == 0 else term


def _combine_terms(kind: type[AndTerm] | type[OrTerm], tokens: pp.ParseResults) -> Term:
    terms: tuple[Term, ...] = tuple(tokens)
    return terms[0] if len(terms) == 1 else kind(terms)


def _text_grammar() -> pp.ParserElement:
    return pp.Regex(r"'(?:[^']|'')*'").set_parse_action(lambda t: Constant(t[0][1:-1].replace("''", "'")))


def _literal_grammar() -> pp.ParserElement:
    """Return the grammar of numbers, texts, x'bytes', times, true, false, null."""
    number = pp.Regex(r"[+-]?[0-9]+(?:\.[0-9]+)?(?![\w.])").set_name("a value").set_parse_action(_make_number)
    octets = pp.Regex(r"[xX]'(?:[0-9a-fA-F]{2})*'").set_parse_action(lambda t: Constant(bytes.fromhex(t[0][2:-1])))
    times = pp.Regex(r"(?i:time)\s*'([^']*)'").set_parse_action(_make_time)
    words = {"null": None, "true": True, "false": False}
    constants = [
        _keyword(name).set_parse_action(functools.partial(_make_constant, value)) for name, value in words.items()
    ]
    return (number | octets | times | _text_grammar() | pp.MatchFirst(constants)).set_name("a value")


def _make_constant(value: Any) -> Constant:
    return Constant(value)


def _make_number(text: str, at: int, tokens: pp.ParseResults) -> Constant:
    if len(tokens[0]) > MAX_DIGITS:
        raise pp.ParseFatalException(text, at, f"a number has at most {MAX_DIGITS} digits")
    return Constant(Decimal(tokens[0]) if "." in tokens[0] else int(tokens[0]))


def _make_time(text: str, at: int, tokens: pp.ParseResults) -> Constant:
    timestamp = parse_timestamp(tokens[0][tokens[0].index("'") + 1 : -1])
    if timestamp is None:
        raise pp.ParseFatalException(text, at, "expected a time such as time '2026-01-31T12:00:00Z'")
    return Constant(timestamp)


def _field_grammar() -> pp.ParserElement:
    quoted = pp.Regex(r"`[^`]+`").set_name("a name").set_parse_action(lambda t: t[0][1:-1])
    first = quoted | ~pp.one_of(_KEYWORDS, caseless=True, as_keyword=True) + pp.Regex(r"[^\W\d]\w*")
    name = (quoted | pp.Regex(r"\w+")).set_name("a name")
    index = (pp.Suppress("[") - pp.Regex(r"[0-9]{1,9}").set_name("a number") - pp.Suppress("]")).set_parse_action(
        lambda t: int(t[0])
    )
    field: pp.ParserElement = (first + (pp.Suppress(".") - name | index)[...]).set_parse_action(_make_field)
    return field.set_name("a member of a record")


def _make_field(text: str, at: int, tokens: pp.ParseResults) -> MemberPath:
    path = tuple(tokens)
    if path[0] not in (*MEMBERS, *BODY_MEMBERS):
        members = ", ".join((*MEMBERS, *(f"{name}.NAME" for name in BODY_MEMBERS)))
        raise pp.ParseFatalException(text, at, f"a record has {members}")
    has_name = len(path) > 1 and isinstance(path[1], str)
    if has_name is not (path[0] in BODY_MEMBERS) or (path[0] in MEMBERS and len(path) > 1):
        problem = "needs the name of a member" if path[0] in BODY_MEMBERS else "has no members"
        raise pp.ParseFatalException(text, at, f"{path[0]} {problem}")
    return MemberPath(path)
