import pytest

from tuner.csource.includes import includes, reached, resolved, with_recorded_names


def test_includes_are_found_in_every_branch_but_in_no_comment():
    text = '// #include "a.h"\n#if X\n# include <b.h> // b\n#else\n#include "c/d.h"\n#endif\n'
    assert [(one.name, one.quoted) for one in includes(text)] == [("b.h", False), ("c/d.h", True)]
    assert [text[slice(*one.span)] for one in includes(text)] == ["<b.h>", '"c/d.h"']


@pytest.mark.parametrize(
    ("file", "directive", "name"),
    [
        ("k.cu", '"a.h"', "a.h"),
        ("deep/b.h", '"a.h"', "deep/a.h"),
        ("deep/b.h", '"../a.h"', "a.h"),
        ("deep/b.h", '"other/c.h"', "other/c.h"),
        ("k.cu", '"../up.h"', "__parent__/up.h"),
        ("__parent__/up.h", '"../upper.h"', "__parent__/__parent__/upper.h"),
        ("__parent__/up.h", '"sub/../same.h"', "__parent__/same.h"),
        ("deep/b.h", "<a.h>", "a.h"),
        ("k.cu", "<gone.h>", None),
    ],
)
def test_a_name_is_looked_up_beside_the_including_file_first(file, directive, name):
    names = {
        "a.h",
        "deep/a.h",
        "other/c.h",
        "__parent__/up.h",
        "__parent__/same.h",
        "__parent__/__parent__/upper.h",
    }
    (include,) = includes(f"#include {directive}\n")
    assert resolved(file, include, names) == name


def test_recorded_headers_are_spelled_by_their_names():
    headers = {"deep/a.h": '#include "../b.h"\n', "b.h": "#define B 1\n", "unused.h": ""}
    source = '#include "deep/a.h"\n#include <stdint.h>\n'
    assert reached("k.cu", source, headers) == ("deep/a.h", "b.h")
    assert with_recorded_names("k.cu", source, headers) == source
    assert with_recorded_names("deep/a.h", headers["deep/a.h"], headers) == '#include "b.h"\n'
