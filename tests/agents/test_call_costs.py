from agents.call_costs import by_role, by_round, calls_csv, notes_of
from agents.llm.port import Reply, Role, StepKey, TokenUsage
from agents.llm.replay import Exchange


def exchange(number: int, role: Role, cost: float, model: str = "m", *notes: str) -> Exchange:
    return Exchange(
        step=StepKey(round=number, draft=0, role=role, attempt=0),
        request="0" * 64,
        reply=Reply(
            text="x",
            model=model,
            usage=TokenUsage(input_tokens=100, output_tokens=10),
            cost_usd=cost,
            notes=notes,
        ),
    )


CALLS = (
    exchange(1, Role.PLANNING, 0.25),
    exchange(1, Role.GENERATION, 0.5, "=cmd|' /C calc'!A0", "seed is not taken"),
    exchange(2, Role.PLANNING, 0.125, "m", "seed is not taken"),
)


def test_sums_by_role_and_by_round() -> None:
    assert [(name, one.calls, one.cost_usd) for name, one in by_role(CALLS).items()] == [
        ("planning", 2, 0.375),
        ("generation", 1, 0.5),
    ]
    rounds = by_round(CALLS)
    assert str(rounds["round 1"]) == "2 calls, 200 tokens read, 20 written, 0.7500 USD"
    assert str(rounds["round 2"]).startswith("1 call, ")
    assert sum(one.input_tokens for one in rounds.values()) == 300


def test_each_note_is_told_once() -> None:
    assert notes_of(CALLS) == ("seed is not taken",)


def test_a_row_for_each_call_and_no_formula() -> None:
    rows = calls_csv(CALLS).splitlines()
    assert len(rows) == 4
    assert rows[1] == "r1-d0-planning-a0,m,stop,100,10,0.25,"
    assert ",'=cmd|" in rows[2]
