"""Help of commands: `-h` shows the usual options on one screen, `--help` everything, in named groups with examples.

A custom formatter for click: cloup adds 60 ms to each start, and rich-click 100 ms, more than `--help` takes here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import click

GROUPS = ("Selection", "Output", "Tables", "Messages", "SQL", "Damage", "Input", "Spark", "Limits", "Configuration")
"""Titles of the option groups, in this order; a command's own options come before them."""

OWN_GROUP = "Options"
MAX_WIDTH = 100
_NARROW_COLUMNS = 60
"""Minimum terminal width, in columns, for explanations beside their terms; otherwise they are below."""
_TERM_COLUMNS, _NARROW_TERM = 30, 10
_HEADING, _TERM = "1", "36"
_SENTENCE_END = re.compile(r"(?<=[.;])\s(?![^()]*\))")
_SHELL_WORDS = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")
_GLOBAL_LINE = "Global options: binlogtool --help"
_STATUS_LINE = "`binlogtool explain STATUS` describes each status."


class _PageWriter:
    """Writer that collects the lines of a help page. width: columns. has_colour: write colour codes."""

    def __init__(self, width: int, *, has_colour: bool) -> None:
        self.lines: list[str] = []
        self._width, self._has_colour = width, has_colour

    def write_usage(self, program: str, pieces: Sequence[str]) -> None:
        """Write the usage line."""
        self.lines += self._wrap(" ".join((program, *pieces)), "Usage: ", " " * 9)

    def write_heading(self, title: str) -> None:
        """Write a heading after an empty line."""
        self.lines += ["", self._paint(f"{title}:", _HEADING)]

    def write_text(self, text: str, indent: int = 2) -> None:
        """Write paragraphs, which are separated by empty lines."""
        for number, paragraph in enumerate(text.strip().split("\n\n")):
            self.lines += [""] if number else []
            self.lines += self._wrap(" ".join(paragraph.split()), " " * indent, " " * indent)

    def write_line(self, text: str) -> None:
        """Write a paragraph at the left margin, after an empty line."""
        self.lines += ["", *self._wrap(text, "", "  ")]

    def write_terms(self, rows: Sequence[tuple[str, str]]) -> None:
        """Write terms with their explanations: beside them, or below them if they do not fit."""
        longest = max((len(term) for term, _ in rows if len(term) <= _TERM_COLUMNS), default=0)
        is_narrow = self._width < max(_NARROW_COLUMNS, longest + 24) and longest > _NARROW_TERM
        indent = " " * (longest + 4 if longest and not is_narrow else 6)
        for term, text in rows:
            if is_narrow or len(term) > longest:
                self.lines += [self._paint(line, _TERM) for line in self._split_choices_over_lines(term)]
                self.lines += self._wrap(text, indent, indent) if text else []
                continue
            lines = self._wrap(text, indent, indent) or [""]
            lines[0] = f"  {self._paint(term, _TERM)}{' ' * (len(indent) - 2 - len(term))}{lines[0].lstrip()}".rstrip()
            self.lines += lines

    def write_examples(self, examples: Iterable[tuple[str, str]]) -> None:
        """Write command lines that can be pasted, each below the sentence that describes it."""
        for sentence, command_lines in examples:
            self.write_text(f"{sentence[:1].upper()}{sentence[1:]}:".replace("?:", "?"))
            for line in command_lines.splitlines():
                self.lines += [self._paint(one, _TERM) for one in fold_command(line, self._width, "    ")]

    def _split_choices_over_lines(self, term: str) -> Iterator[str]:
        """Split a list of choices that is too long for a line; other terms are short."""
        line = "  "
        for piece in re.split(r"(?<=[|, ])", term):
            if len(line) + len(piece) > self._width and line.strip():
                yield line.rstrip()
                line = "      "
            line += piece
        yield line.rstrip()

    def _wrap(self, text: str, first_indent: str, indent: str) -> list[str]:
        """Wrap text at blanks only, because option names contain hyphens."""
        lines, start = list[str](), first_indent
        for word in text.split():
            if lines and len(lines[-1]) + len(word) < self._width:
                lines[-1] += f" {word}"
            else:
                lines.append(f"{start}{word}")
                start = indent
        return lines

    def _paint(self, text: str, code: str) -> str:
        if not self._has_colour:
            return text
        blank = len(text) - len(text.lstrip())
        return f"{text[:blank]}\x1b[{code}m{text[blank:]}\x1b[0m"


def fold_command(line: str, width: int, indent: str) -> list[str]:
    """Fold a command line with a backslash at each fold, so that it can be pasted; a value stays with its option."""
    words = _SHELL_WORDS.findall(line)
    lines = [indent]
    for number, word in enumerate(words):
        following = words[number + 1] if word.startswith("-") and number + 1 < len(words) else "-"
        pair = len(word) + 1 + len(following)
        needed = len(word) if following.startswith("-") or len(indent) + pair + 4 > width else pair
        if lines[-1].strip() and len(lines[-1]) + needed + 3 > width:
            lines[-1] += " \\"
            lines.append(f"{indent}  ")
        lines[-1] += word if not lines[-1].strip() else f" {word}"
    return lines


def group_options(params: Iterable[click.Parameter]) -> dict[str, list[click.Option]]:
    """Return the visible options by the title of their group; a command's own options come first."""
    groups: dict[str, list[click.Option]] = {title: [] for title in (OWN_GROUP, *GROUPS)}
    for param in params:
        if isinstance(param, click.Option) and not param.hidden:
            groups[getattr(param, "group", None) or OWN_GROUP].append(param)
    return {title: options for title, options in groups.items() if options}


def describe_option(param: click.Option, context: click.Context) -> tuple[str, str]:
    """Return an option's names with its value, and its explanation."""
    record = param.get_help_record(context)
    return (record[0] if record else "", param.help or "")


def render_command_help(
    command: click.Command,
    context: click.Context,
    *,
    params: Sequence[click.Parameter],
    examples: Sequence[tuple[str, str]],
    outputs: Sequence[str],
    width: int,
    is_full: bool,
    has_colour: bool = False,
) -> str:
    """Return the help of one command.

    Args:
        params: the command's own parameters, without the global options.
        examples: sentences with command lines.
        outputs: values of -O; the first is the default.
        width: columns.
        is_full: show all options with full explanations; False = only the usual ones, on one screen.
        has_colour: write colour codes.
    """
    page = _PageWriter(width, has_colour=has_colour)
    path = context.command_path
    page.write_usage(path, command.collect_usage_pieces(context))
    page.lines.append("")
    page.write_text(command.help or "" if is_full else (command.help or "").strip().partition("\n\n")[0])
    groups = group_options(params)
    hidden_count = 0
    for title, options in groups.items():
        shown = options if is_full else [one for one in options if getattr(one, "is_common", False)]
        hidden_count += len(options) - len(shown)
        if shown:
            page.write_heading(title)
            rows = [describe_option(one, context) for one in shown]
            page.write_terms(rows if is_full else [(term, _first_sentence(text)) for term, text in rows])
    title = "Form of the report (-O)" if any(one.name == "to" for one in params) else "Output formats (-O)"
    if is_full:
        _write_help_page_end(page, command.name or "", examples, outputs, title)
    else:
        if outputs:
            page.write_line(f"{title}: {', '.join(outputs)}")
        more = (
            f"{hidden_count} more option{'s'[: hidden_count != 1]}, examples, exit status"
            if hidden_count
            else "Examples, exit status"
        )
        page.write_line(f"{more}: {path} --help")
        page.lines.append(_GLOBAL_LINE)
    return "\n".join(page.lines)


def _write_help_page_end(
    page: _PageWriter, command: str, examples: Sequence[tuple[str, str]], outputs: Sequence[str], title: str
) -> None:
    """Write the end of a `--help` page, after the options."""
    from binlogtool.exit_status_texts import list_command_statuses

    if outputs:
        page.write_heading(title)
        page.write_text(f"{', '.join(outputs)}; default: {outputs[0]}")
    if examples:
        page.write_heading("Examples")
        page.write_examples(examples)
    page.write_heading("Exit status")
    page.write_terms(list_command_statuses(command))
    page.write_text(_STATUS_LINE)
    page.write_line(_GLOBAL_LINE)


def render_group_help(
    context: click.Context,
    *,
    text: str,
    commands: Mapping[str, Sequence[tuple[str, str]]],
    params: Sequence[click.Parameter],
    width: int,
    is_full: bool,
    has_colour: bool = False,
) -> str:
    """Return the help of the program: the commands by group and, if `is_full`, the global options."""
    page = _PageWriter(width, has_colour=has_colour)
    page.write_usage(context.command_path, ["[OPTIONS]", "COMMAND", "[OPTIONS]", "[PATH...]"])
    page.lines.append("")
    page.write_text(text if is_full else text.strip().partition("\n\n")[0])
    for title, rows in commands.items():
        page.write_heading(title)
        page.write_terms(rows)
    if is_full:
        for title, options in group_options(params).items():
            page.write_heading(f"{title} (global options)")
            page.write_terms([describe_option(one, context) for one in options])
    page.write_line("Help of a command: binlogtool COMMAND -h (one screen), binlogtool COMMAND --help (everything)")
    if not is_full:
        page.lines.append(_GLOBAL_LINE)
    return "\n".join(page.lines)


def _first_sentence(text: str) -> str:
    """Return the first sentence of an explanation."""
    sentence = _SENTENCE_END.split(text, 1)[0]
    return f"{sentence[:-1]}." if sentence[-1:] == ";" else sentence
