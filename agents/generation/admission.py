"""Checks of a model's template on its text, before anything is compiled.

Runs the checks of any template (:mod:`tuner.experiment.check`) and the source rules
(:mod:`tuner.integrity.source_rules`), and words what they find for the model.
"""

from collections.abc import Sequence
from dataclasses import replace

from tuner.csource.tree import without_comments
from tuner.experiment.check import check
from tuner.experiment.model import Experiment, Template
from tuner.integrity.source_rules import source_violations
from tuner.trial import Value

_MAX_PROBLEMS = 12


def refusal(experiment: Experiment, template: Template) -> str | None:
    """The problems of ``template`` as a message to its author; ``None`` if there are none.

    The unchanged kernel, apart from comments and layout, is refused too: a search of it is wasted.
    """
    kernel = experiment.kernel
    same_source = _words(template.source.text) == _words(kernel.source.text)
    if (
        same_source
        and template.steps == kernel.steps
        and template.options in (None, kernel.options)
    ):
        return "this is the plain kernel, unchanged"
    problems = [
        f"{_place(finding.path)}: {finding.message}"
        for finding in check(replace(experiment, template=template))
        if finding.path[:1] == ("template",)
    ]
    problems += source_violations(experiment, template)
    if not problems:
        return None
    hidden = len(problems) - _MAX_PROBLEMS
    more = [f"and {hidden} more"] if hidden > 0 else []
    return "\n".join([*problems[:_MAX_PROBLEMS], *more])


def usable_seeds(
    template: Template, seeds: Sequence[dict[str, Value]]
) -> tuple[dict[str, Value], ...]:
    """The seeds that name every parameter with one of its values; the others are dropped."""
    return tuple(
        {name: seed[name] for name in template.parameters}
        for seed in seeds
        if seed.keys() == template.parameters.keys()
        and all(
            any(type(seed[name]) is type(value) and seed[name] == value for value in values)
            for name, values in template.parameters.items()
        )
    )


def _place(path: Sequence[object]) -> str:
    return ".".join(map(str, path[1:])) or "template"


def _words(source: str) -> list[str]:
    return without_comments(source).split()
