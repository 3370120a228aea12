"""What griffe needs to know about the docstrings of the Python package.

Those of the estimators share a table of parameters and are f-strings, which griffe does not evaluate. And roles as
Sphinx has them (:class:`wiski.Stats`) become links of mkdocstrings.
"""

import ast
import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|meth|func):`~?([\w.]+)`")


class Docstrings(griffe.Extension):
    def on_class_node(self, *, node: Any, agent: Any, **kwargs: Any) -> None:
        self.constants(agent)

    def constants(self, agent: Any) -> dict[str, str]:
        """The text constants of modules read so far, by name."""
        found = {}
        for path in agent.current.package.filepath.parent.glob("_*.py"):
            for item in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str):
                    found[item.targets[0].id] = item.value.value
        return found

    def on_class_members(self, *, node: Any, cls: griffe.Class, agent: Any, **kwargs: Any) -> None:
        for item in getattr(node, "body", []):
            if isinstance(item, ast.Assign) and item.targets[0].id == "__doc__" and isinstance(item.value, ast.JoinedStr):
                text = eval(compile(ast.Expression(item.value), "docstring", "eval"), self.constants(agent))  # noqa: S307
                cls.docstring = griffe.Docstring(text, lineno=item.lineno, endlineno=item.end_lineno, parent=cls)

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = ROLE.sub(lambda m: self.link(m[1], obj), obj.docstring.value)

    def link(self, name: str, obj: griffe.Object) -> str:
        if name.startswith("wiski."):
            full = name
        elif name[0].isupper():
            full = f"wiski.{name}"
        else:
            # A method of the same class. Those of base classes are shown with the estimators.
            full = f"wiski.OnlineGPRegressor.{name}"
        return f"[`{name}`][{full}]"
