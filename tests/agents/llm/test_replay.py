import asyncio
import json
import tempfile
from pathlib import Path

import pytest

from agents.llm.port import LanguageModel, ModelUnavailable, Reply, Request
from agents.llm.replay import Exchange, Header, Replay, read_transcript, write_transcript
from tests.conformance.language_model import KERNEL, LanguageModelConformance, request_at
from tuner.errors import SpecError

HEADER = Header(experiment="demo", kernel=KERNEL, made="by hand, for a test")


def transcript(path: Path, answers: dict[Request, Reply]) -> Path:
    exchanges = [
        Exchange(step=request.position.step, request=request.digest, reply=reply)
        for request, reply in answers.items()
    ]
    write_transcript(path, HEADER, exchanges)
    return path


class TestReplay(LanguageModelConformance):
    def make(self, answers: dict[Request, Reply]) -> LanguageModel:
        with tempfile.TemporaryDirectory() as folder:
            return Replay(read_transcript(transcript(Path(folder) / "t.jsonl", answers)))


def test_the_position_decides_and_not_the_text(tmp_path: Path) -> None:
    path = transcript(tmp_path / "t.jsonl", {request_at(text="1.52 µs"): Reply(text="x")})
    replay = Replay(read_transcript(path))
    assert asyncio.run(replay.complete(request_at(text="1.49 µs"))) == Reply(text="x")


def test_a_transcript_of_another_kernel_is_named(tmp_path: Path) -> None:
    read = read_transcript(transcript(tmp_path / "t.jsonl", {request_at(): Reply(text="x")}))
    assert read.matches("demo", KERNEL)
    assert not read.matches("demo", "b" * 64)
    other = request_at()
    other = Request(
        position=type(other.position)(experiment="demo", kernel="b" * 64, step=other.position.step),
        messages=other.messages,
    )
    with pytest.raises(ModelUnavailable, match=r"recorded for demo with kernel aaaaaaaa"):
        asyncio.run(Replay(read).complete(other))


def test_exchanges_survive_the_file(tmp_path: Path) -> None:
    answers = {
        request_at(1): Reply(text="µ\u2028\r\n\x00", cost_usd=0.25),
        request_at(2, 1): Reply(text="", finish_reason="length"),
    }
    read = read_transcript(transcript(tmp_path / "t.jsonl", answers))
    assert read.header == HEADER
    assert [exchange.reply for exchange in read.exchanges] == list(answers.values())


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda lines: [], r"t\.jsonl:1: not the header"),
        (lambda lines: [lines[1]], r"t\.jsonl:1: not the header"),
        (lambda lines: [lines[0].replace('"version": 1', '"version": 2')], r":1: .*version"),
        (lambda lines: [lines[0], lines[1][:-9]], r":2: not an exchange"),
        (lambda lines: [lines[0], lines[1], lines[1]], r":3: r1-d0-planning-a0 is recorded twice"),
        (lambda lines: [lines[0], "[" * 5000], r":2: not an exchange"),
        (lambda lines: [lines[0], lines[1].replace('"text"', '"txt"')], r":2: .*reply\.text"),
    ],
)
def test_damage_is_named_by_its_line(tmp_path: Path, edit: object, message: str) -> None:
    path = transcript(tmp_path / "t.jsonl", {request_at(): Reply(text="x")})
    lines = path.read_text().splitlines()
    path.write_text("\n".join(edit(lines)))  # type: ignore[operator]
    with pytest.raises(SpecError, match=message):
        read_transcript(path)


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such transcript"):
        read_transcript(tmp_path / "t.jsonl")
    (tmp_path / "t.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="not UTF-8"):
        read_transcript(tmp_path / "t.jsonl")


def test_the_header_needs_to_say_how_it_was_made(tmp_path: Path) -> None:
    path = transcript(tmp_path / "t.jsonl", {})
    row = json.loads(path.read_text())
    row["made"] = ""
    path.write_text(json.dumps(row))
    with pytest.raises(SpecError, match="made"):
        read_transcript(path)
