"""A template made from the plain kernel by rules, without a model.

Every rule keeps the kernel's meaning and notes what it did and why. Each configuration is verified
all the same; device limits are applied by the search.
"""

from dataclasses import dataclass, replace

from agents.generation.constants import constants
from agents.generation.draft import Draft, RuleNote
from agents.generation.geometry import geometry
from agents.generation.loops import unroll
from tuner.backends.registry import traits_of
from tuner.errors import SpecError
from tuner.experiment.fields import Source
from tuner.experiment.model import CompilerFlag, Experiment, Template
from tuner.expressions import Expression

REGISTER_CAPS = (0, 32, 64, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanicalTemplate:
    """A template, and what each rule found in the kernel, in order."""

    template: Template
    notes: tuple[RuleNote, ...]


def mechanical_template(experiment: Experiment) -> MechanicalTemplate:
    """Make a template of the experiment's kernel.

    Raises:
        SpecError: no rule applies, so there is nothing to search.
    """
    kernel = experiment.kernel
    draft = Draft.of(experiment)
    draft = constants(draft, experiment)
    for rule in (unroll, geometry):
        draft = draft.each(rule, experiment)
    draft = _register_cap(draft, experiment)
    if not draft.parameters:
        why = dict.fromkeys(note.why for note in draft.notes)
        reasons = [
            f"  {', '.join(note.what for note in draft.notes if note.why == one)}: {one}"
            for one in why
        ]
        remedy = (
            "write a template, the kernel with what may vary as parameters, and name it in the "
            "spec (`template: FILE`), as docs/templates.md says; or let a model write one "
            "(`--model`)"
        )
        found = f"{kernel.source.name}: nothing to vary was found in {kernel.entry}"
        raise SpecError("\n".join((found, *reasons, remedy)))
    alone = draft.launch if kernel.launch else None
    template = Template(
        source=Source(name=kernel.source.name, text=draft.source),
        entry=draft.entry,
        parameters=dict(draft.parameters),
        constraints=draft.constraints,
        launch=alone,
        launches=() if alone else draft.steps,
        options=(*kernel.options, *draft.flags) if draft.flags else None,
        rationale=" ".join(f"{note.what}: {note.why}." for note in draft.notes),
    )
    return MechanicalTemplate(template=template, notes=draft.notes)


def _register_cap(draft: Draft, experiment: Experiment) -> Draft:
    cap = traits_of(draft.language).register_cap_flag
    if cap is None or draft.bounded:
        return draft
    if any(cap.strip("-") in option for option in experiment.kernel.options):
        return draft.noted("register cap", "the kernel's own options set one")
    name = draft.fresh("REGISTERS", experiment, common=True)
    flag = CompilerFlag(
        flag=cap,
        value=Expression.parse(name),
        when=Expression.parse(f"{name} > 0"),
    )
    capped = replace(draft, flags=(*draft.flags, flag)).with_parameter(name, REGISTER_CAPS)
    return capped.noted(name, "fewer registers let more blocks be resident; 0 leaves it open")
