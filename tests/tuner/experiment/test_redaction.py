"""Secrets in the lines that messages quote, of any length."""

import time

import pytest

from tuner.experiment.problems import Mark, Problem
from tuner.experiment.redaction import has_secret, hidden, hidden_part

LENGTH = 100_000


@pytest.mark.parametrize(
    "repeated",
    [
        *("9", "a ", "/", "//a", "a:", ":", "a:/", "@", "a@", "a:@", "a@//", "#", "//#", "//a#"),
        *("?", "?key", "key", "?key=", "&a=b", "sk-", "-sk-abc", "eyJ.", "%", "\t", "'//a:b", "é:"),
    ],
)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        *(("", ""), ("//", "@"), ("//a@", ""), ("//a#", "#")),
        *(("?", "="), ("?key", ""), ("a:b@", "#a"), ("a:", "@")),
    ],
)
def test_a_long_line_takes_no_time(before, repeated, after):
    text = before + repeated * (LENGTH // len(repeated)) + after
    begun = time.process_time()
    shown = hidden(text)
    has_secret(text)
    assert time.process_time() - begun < 0.8
    assert len(shown) == len(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("//user:p@ss@host", "//*********@host"),
        ("user:p@ss@host", "*********@host"),
        ("a/user:word@host", "a/*********@host"),
        ("mail me@host: 'https://host/a'", "mail me@host: 'https://host/a'"),
        ("https://host:80/a b@c", "https://host:80/a b@c"),
        ("//host/#", "//host/#"),
        ("//u@host/?key=a/b:c@d&e", "//" + "*" * 19 + "&e"),
        ("?sk-token-abc=value", "?" + "*" * 18),
        ("?key=key=a&mode=b", "?" + "*" * 9 + "&mode=b"),
        ("task-based: SK-123456", "task-based: *********"),
    ],
)
def test_a_secret_is_hidden_and_what_is_none_is_not(text, shown):
    assert hidden(text) == shown
    assert has_secret(text) == (shown != text)


@pytest.mark.parametrize(
    "secret", ["https://user:sekrit@host", "//h/?api_key=sekrit", "/sk-sekrit"]
)
@pytest.mark.parametrize("filling", ["x", "x "])
def test_a_secret_at_the_edge_of_what_is_shown_is_hidden(secret, filling):
    text = f"a: '{filling * 5000}{secret}/{filling * 5000}'"
    whole = hidden(text)
    place = text.index(secret)
    for start in range(place - 110, place + len(secret) + 10):
        assert hidden_part(text, start, start + 100) == whole[start : start + 100]
    for column in range(place - 80, place + len(secret) + 110):
        told = str(Problem("spec.yaml", Mark(1, column), text, "is wrong"))
        assert not {"sek", "ekr", "kri", "rit"} & {told[n : n + 3] for n in range(len(told))}
