"""Names of structs in formats that define a name once: two structs of one name may have different fields.

The change events of a table are such: of the row before, fewer fields are sure to be known.
"""

from __future__ import annotations

from dataclasses import replace

from strandline.connect.schema import Schema


class StructNames:
    """Names for the structs of one schema. If several shapes have one name, the last keeps it.

    The others get the name of the field that they were first found in, behind an underscore.
    """

    def __init__(self) -> None:
        self._shapes: dict[str, list[tuple[Schema, str]]] = {}
        self._names: dict[str, list[str]] | None = None

    def add(self, name: str, schema: Schema, field: str) -> None:
        """Note a struct that is found in a field, in the order of the schema."""
        bare = bare_struct(schema)
        shapes = self._shapes.setdefault(name, [])
        if all(each != bare for each, _ in shapes):
            shapes.append((bare, field))

    def name(self, name: str, schema: Schema) -> str:
        """Return the name of a struct, after all were added."""
        shapes = self._shapes[name]
        if len(shapes) == 1:
            return name
        if self._names is None:
            self._names = self._chosen()
        bare = bare_struct(schema)
        place = next(at for at, (each, _) in enumerate(shapes) if each == bare)
        return self._names[name][place]

    def _chosen(self) -> dict[str, list[str]]:
        taken = set(self._shapes)
        found: dict[str, list[str]] = {}
        for name, shapes in self._shapes.items():
            names = found[name] = []
            for _, field in shapes[:-1]:
                wanted = made = f"{name}_{field}"
                number = 1
                while made in taken:
                    number += 1
                    made = f"{wanted}{number}"
                taken.add(made)
                names.append(made)
            names.append(name)
        return found


def bare_struct(schema: Schema) -> Schema:
    """Return a struct without what belongs to the place where it is used."""
    return replace(schema, optional=False, default=None, doc=None)
