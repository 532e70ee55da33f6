"""Random well-typed expressions over ``a``, ``b`` (integers), ``f`` (a bool), ``M`` (a name)."""

from hypothesis import strategies as st

from tuner.expressions import Expression

INTEGERS = st.one_of(
    st.integers(-4, 40),
    st.sampled_from([2**31, 2**32 + 1, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1, 3037000500]),
)
MEMBERS = st.sampled_from(["u", "vv"])


def environments():
    point = st.fixed_dictionaries({"a": INTEGERS, "b": INTEGERS, "f": st.booleans(), "M": MEMBERS})
    return st.lists(point, min_size=1, max_size=6)


def expressions():
    names = st.one_of(st.just("M"), MEMBERS.map(repr))
    leaves = st.one_of(st.sampled_from(["a", "b", "f"]), INTEGERS.map(lambda n: f"({n})"))

    def larger(inner):
        pair = st.tuples(inner, inner)
        return st.one_of(
            st.builds(
                lambda p, op: f"({p[0]} {op} {p[1]})",
                pair,
                st.sampled_from(
                    ["+", "-", "*", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "and", "or"]
                ),
            ),
            st.builds(lambda p, x: f"({p[0]} <= {p[1]} < {x})", pair, inner),
            st.builds(lambda x, p: f"({x} in ({p[0]}, {p[1]}))", inner, pair),
            st.builds(lambda p, x: f"({p[0]} if {x} else {p[1]})", pair, inner),
            st.builds(lambda x, op: f"({op} {x})", inner, st.sampled_from(["-", "+", "not"])),
            st.builds(lambda x, op: f"{op}({x})", inner, st.sampled_from(["abs", "log2"])),
            st.builds(
                lambda p, op: f"{op}({p[0]}, {p[1]})",
                pair,
                st.sampled_from(["min", "max", "ceil_div", "round_up"]),
            ),
            st.builds(
                lambda x, y, op: f"({x} {op} {y})", names, names, st.sampled_from(["==", "!="])
            ),
        )

    return st.recursive(leaves, larger, max_leaves=12).map(Expression.parse)
