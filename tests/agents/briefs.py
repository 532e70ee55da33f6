"""A small but complete brief for tests."""

from dataclasses import replace
from functools import cache

from pydantic import TypeAdapter

from agents.brief import Brief, RoundSummary, ShapeTimes, Specialist
from agents.replies import Suggestion
from agents.static_profile import StaticProfile
from tests.agents.devices import CPU
from tuner.experiment.fields import Source
from tuner.experiment.model import Experiment
from tuner.plan import Usage
from tuner.results.landscape import landscape
from tuner.results.parameters import Observation
from tuner.results.statistics import Comparison
from tuner.trial import Configuration

KERNEL = """\
// out[t][i] = 2 * x[t][i]
kernel void twice(global float *out, global const float *x, int d) {
  int i = get_global_id(0);
  size_t row = get_global_id(1);
  if (i < d) out[row * d + i] = 2 * x[row * d + i];
}
"""

OTHER = "kernel void twice(global float *out, global const float *x, int d) {}\n"
FAMILY = """\
// out[t][i] = 2 * x[t][i]; VEC neighbours to a work-item.
kernel void twice(global float *out, global const float *x, int d) {
  size_t row = get_global_id(1);
  for (int k = 0; k < VEC; ++k) {
    int i = get_global_id(0) * VEC + k;
    if (i < d) {
      float e = x[row * d + i];
      out[row * d + i] = MODE == MODE_sum ? e + e : 2 * e;
    }
  }
}
"""

SUGGESTION = Suggestion(
    bottleneck="one element at a time",
    strategy="vectors of several elements",
    expected_effect="twice as fast",
    refuted_by="no difference between VEC=1 and VEC=8",
)


@cache
def twice() -> Experiment:
    return TypeAdapter(Experiment).validate_python(
        {
            "version": 1,
            "name": "twice",
            "kernel": {
                "language": "opencl",
                "source": {"name": "twice.cl", "text": KERNEL},
                "entry": "twice",
                "options": ["-cl-mad-enable"],
                "launch": {"grid": ["ceil_div(d, 64)", "tokens"], "block": [64]},
            },
            "arguments": [
                {"name": "out", "kind": "out", "dtype": "float32", "shape": ["tokens", "d"]},
                {
                    "name": "x",
                    "kind": "in",
                    "dtype": "float32",
                    "shape": ["tokens", "d"],
                    "align": 16,
                },
                {"name": "d", "kind": "scalar", "dtype": "int32", "value": "d"},
            ],
            "shapes": {
                "domain": ["1 <= tokens", "1 <= d", "d <= 32768"],
                "tune": [{"tokens": 16, "d": 4096}, {"tokens": 32, "d": 5120}],
                "held_out": [{"tokens": 7, "d": 6917}],
            },
            "template": {
                "source": {"name": "twice.cl", "text": FAMILY},
                "entry": "twice",
                "parameters": {
                    "VEC": [1, 2, 4, 8, 16],
                    "BLOCK": [1, 16],
                    "MODE": ["sum", "product"],
                },
                "constraints": ["VEC * BLOCK <= 128"],
                "launch": {"grid": ["ceil_div(d, VEC * BLOCK)", "tokens"], "block": ["BLOCK"]},
            },
        },
        strict=False,
    )


def full_brief() -> Brief:
    experiment = twice()
    template = experiment.template
    assert template is not None
    trials = []
    for number, vector in enumerate([1, 2, 4, 8, 16] * 4):
        point = {
            "VEC": vector,
            "BLOCK": (1, 16)[number % 2],
            "MODE": ("sum", "product")[number // 2 % 2],
        }
        trials.append(
            Observation(
                configuration=Configuration.of(point),
                ratio=1.5 / vector + number / 500,
                code=f"{vector} {point['BLOCK']} {vector == 4 and point['MODE']}",
            )
            if number % 7
            else Observation(configuration=Configuration.of(point), rejected="wrong_result")
        )
    small = ShapeTimes(
        shape="tokens=16,d=4096", baseline=81.25, best=40.5, floor=11.0, moved=524288
    )
    large = ShapeTimes(shape="tokens=32,d=5120", baseline=1501.0)
    return Brief(
        experiment=replace(experiment, template=None),
        device=CPU,
        shapes=(small, large),
        static=StaticProfile(
            usage=Usage(
                registers=32,
                spill_bytes=0,
                static_shared_bytes=0,
                mix=(("arithmetic f32", 18), ("global load of 16 B", 2)),
            ),
            occupancy=0.75,
        ),
        best_static=StaticProfile(usage=Usage(registers=40), occupancy=0.5),
        incumbent=template,
        specialists=(
            Specialist(
                template=template,
                configuration=Configuration.of({"VEC": 8, "BLOCK": 16, "MODE": "sum"}),
                shapes=(replace(small, best=38.0),),
            ),
            Specialist(
                template=replace(template, source=Source(name="other.cl", text=OTHER)),
                configuration=Configuration.of({"VEC": 2, "BLOCK": 1, "MODE": "product"}),
                shapes=(replace(small, best=38.5), replace(large, best=1400.0)),
            ),
        ),
        landscape=landscape(template.parameters, trials),
        rounds=(
            RoundSummary(
                number=1,
                suggestion=SUGGESTION,
                verdict="improved",
                speedup=1.95,
                interval=(1.9, 2.01),
                roofline=(0.27, 0.5),
            ),
            RoundSummary(number=2, suggestion=SUGGESTION, verdict="no usable template"),
            RoundSummary(
                number=3,
                suggestion=SUGGESTION,
                verdict="no significant gain",
                speedup=1.96,
                interval=(1.91, 2.02),
                gain=Comparison(speedup=1.004, low=0.99, high=1.018, verdict="same", processes=5),
            ),
        ),
    )


def bare_brief() -> Brief:
    return Brief(
        experiment=replace(twice(), template=None),
        device=CPU,
        shapes=(ShapeTimes(shape="tokens=16,d=4096", baseline=81.25),),
    )
