"""What griffe, which reads the docstrings of the Python package for its reference, has to be told.

* Those of the estimators share a table of parameters: they are f-strings, which griffe does not evaluate.
* Roles as Sphinx has them (:class:`wiski.Stats`) become links of mkdocstrings.
* A doctest without a heading gets one, or it would be taken for a quotation.
"""

import ast
import re
from pathlib import Path
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|meth|func):`~?([\w.]+)`")
DOCTEST = re.compile(r"\n\n(?=>>> )")


def constants(folder: Path) -> dict[str, str]:
    """The texts that modules of the package have names for."""
    found = {}
    for path in folder.glob("_*.py"):
        for item in ast.parse(path.read_text(encoding="utf-8")).body:
            match item:
                case ast.Assign(targets=[ast.Name(name)], value=ast.Constant(str(text))):
                    found[name] = text
    return found


class Docstrings(griffe.Extension):
    def on_class_members(self, *, node: Any, cls: griffe.Class, agent: Any, **kwargs: Any) -> None:
        for item in getattr(node, "body", []):
            match item:
                case ast.Assign(targets=[ast.Name("__doc__")], value=ast.JoinedStr() as text):
                    value = eval(compile(ast.Expression(text), "docstring", "eval"), constants(agent.filepath.parent))
                    cls.docstring = griffe.Docstring(
                        value,
                        lineno=item.lineno,
                        endlineno=item.end_lineno,
                        parent=cls,
                        parser=agent.docstring_parser,
                        parser_options=agent.docstring_options,
                    )
                    self.tidy(cls.docstring)

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            self.tidy(obj.docstring)

    def tidy(self, docstring: griffe.Docstring) -> None:
        text = ROLE.sub(self.link, docstring.value)
        if "Examples\n---" not in text:
            text = DOCTEST.sub("\n\nExamples\n--------\n", text, count=1)
        docstring.value = text

    def link(self, role: re.Match[str]) -> str:
        name = role[1]
        if name.startswith("wiski."):
            place = name
        elif name[0].isupper():
            place = f"wiski.{name}"
        else:  # a method that both estimators have
            place = f"wiski.OnlineGPRegressor.{name}"
        return f"[`{name}`][{place}]"
