"""What the documentation shows works."""

import re

import pytest


@pytest.mark.parametrize("name", ["README.md", "bindings/python/README.md"])
def test_examples_of_the_readme(project, name):
    blocks = re.findall(r"```python\n(.*?)```", (project / name).read_text(encoding="utf-8"), re.S)
    assert blocks
    for block in blocks:
        values = {}
        exec(block, values)
        assert abs(values["mean"][0] - 5 * 0.1411) < 4 * values["std"][0]


def test_stubs_name_what_there_is(project):
    """The stubs of the extension and the extension have the same members."""
    import ast

    from wiski import _core

    tree = ast.parse((project / "bindings/python/python/wiski/_core.pyi").read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    # What the estimators have in common is written once, in a base class that is there for type checkers only.
    assert {name for name in classes if not name.startswith("_")} == {
        name for name, value in vars(_core).items() if isinstance(value, type)
    }

    def members(node):
        own = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        return own.union(*(members(classes[base.id]) for base in node.bases))

    for name, node in classes.items():
        if not name.startswith("_"):
            real = {member for member in vars(getattr(_core, name)) if not member.startswith("__")}
            assert members(node) - {"__new__"} == real, name


def test_the_program_that_type_checkers_read_runs(project):
    import runpy

    runpy.run_path(str(project / "bindings/python/tests/program.py"), run_name="__main__")
