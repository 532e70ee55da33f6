"""What every compiler does. An adapter's test class inherits this and gives its language."""

from abc import abstractmethod

import pytest

from tuner.plan import Binary, Build
from tuner.trial import Code, Rejected, Stage
from workers.compilers.port import Compiler


class CompilerConformance:
    """Inherit, and give :meth:`compiler` and :meth:`source`."""

    @pytest.fixture
    @abstractmethod
    def compiler(self) -> Compiler:
        raise NotImplementedError

    @abstractmethod
    def build(self, body: str, **fields: object) -> Build:
        """A build of a kernel ``probe(float *out)`` with this body, which starts on line 3."""
        raise NotImplementedError

    def test_a_good_source_compiles(self, compiler) -> None:
        build = self.build("out[0] = SCALE;", defines=(("SCALE", 3),))
        binary = compiler.compile(build)
        assert isinstance(binary, Binary), binary
        assert binary.build == build.digest
        assert binary.code
        assert [entry for entry, _ in binary.usage] == list(build.entries)
        assert [entry for entry, _ in binary.symbols] == list(build.entries)
        assert binary.compile_seconds > 0

    def test_an_error_names_the_users_file_and_line(self, compiler) -> None:
        rejected = compiler.compile(self.build("out[0] = not_there;"))
        assert isinstance(rejected, Rejected)
        assert (rejected.stage, rejected.code) == (Stage.COMPILE, Code.COMPILE_ERROR)
        assert "not_there" in rejected.detail
        assert "probe.src:3" in rejected.detail or "probe.src(3)" in rejected.detail

    def test_a_missing_entry_is_named(self, compiler) -> None:
        rejected = compiler.compile(self.build("out[0] = 1;", entries=("absent",)))
        assert isinstance(rejected, Rejected)
        assert rejected.code == Code.COMPILE_ERROR
        assert "absent" in rejected.detail

    def test_a_header_of_the_experiment_is_found(self, compiler) -> None:
        build = self.build(
            "out[0] = FROM_HEADER;",
            before='#include "parts/values.h"',
            headers=(("parts/values.h", "#define FROM_HEADER 4\n"),),
        )
        assert isinstance(compiler.compile(build), Binary)

    @pytest.mark.parametrize("name", ["/etc/passwd", "../secret.h", "a/../../b.h"])
    def test_an_include_of_anything_else_is_refused(self, compiler, name) -> None:
        rejected = compiler.compile(self.build("out[0] = 1;", before=f'#include "{name}"'))
        assert isinstance(rejected, Rejected)
        assert name in rejected.detail

    def test_what_lies_in_the_current_folder_is_not_found(
        self, compiler, tmp_path, monkeypatch
    ) -> None:
        (tmp_path / "lying.h").write_text("#define LYING 1\n")
        monkeypatch.chdir(tmp_path)
        rejected = compiler.compile(self.build("out[0] = LYING;", before='#include "lying.h"'))
        assert isinstance(rejected, Rejected)
        assert "lying.h" in rejected.detail

    def test_a_long_report_is_cut(self, compiler) -> None:
        body = "\n".join(f"out[{i}] = absent_{i};" for i in range(2000))
        rejected = compiler.compile(self.build(body))
        assert isinstance(rejected, Rejected)
        assert len(rejected.detail) < 20_000
