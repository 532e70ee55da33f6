"""Admission of a model's template as far as text alone can tell, before anything is compiled.

Owns the order of the text gates and the wording of their findings for a model. What the spec
requires of any template is :mod:`tuner.experiment.check`; what no source may say is
:mod:`tuner.integrity.source_rules`.
"""

from collections.abc import Sequence
from dataclasses import replace

from tuner.csource.tree import without_comments
from tuner.experiment.check import check
from tuner.experiment.model import Experiment, Template
from tuner.integrity.source_rules import source_violations
from tuner.trial import Value

_MOST_FINDINGS = 12


def refusal(experiment: Experiment, template: Template) -> str | None:
    """Why ``template`` may not go on, in words that can be quoted to its author; ``None``: it may.

    The kernel as it stands, comments and layout aside, is refused too: it would be searched for
    nothing.
    """
    kernel = experiment.kernel
    same_source = _words(template.source.text) == _words(kernel.source.text)
    if (
        same_source
        and template.steps == kernel.steps
        and template.options in (None, kernel.options)
    ):
        return "this is the plain kernel, unchanged"
    findings = [
        f"{_place(finding.path)}: {finding.message}"
        for finding in check(replace(experiment, template=template))
        if finding.path[:1] == ("template",)
    ]
    findings += source_violations(experiment, template)
    if not findings:
        return None
    hidden = len(findings) - _MOST_FINDINGS
    more = [f"and {hidden} more"] if hidden > 0 else []
    return "\n".join([*findings[:_MOST_FINDINGS], *more])


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
