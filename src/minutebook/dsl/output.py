"""Schemas as dataclasses, which is what prompts ask for and answers are read into."""

from collections.abc import Sequence
from dataclasses import field, make_dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal

from minutebook.dsl.spec import FieldSpec, FieldType, SchemaSpec


def output_type(schema: SchemaSpec, schemas: Sequence[SchemaSpec]) -> type:
    """The frozen dataclass of a schema, the same one each time; `schemas` are those that it may refer to."""
    return _made(schema, tuple(schemas))


@lru_cache(maxsize=1024)
def _made(schema: SchemaSpec, schemas: tuple[SchemaSpec, ...]) -> type:
    fields = [_field(each, schemas) for each in schema.fields]
    return make_dataclass(schema.name, fields, frozen=True, kw_only=True, namespace={"__doc__": ""})


def _field(spec: FieldSpec, schemas: tuple[SchemaSpec, ...]) -> tuple[str, Any, Any]:
    hint = _hint(spec.type, schemas)
    if spec.description:
        hint = Annotated[hint, spec.description]
    return spec.name, hint, field(default=None) if spec.type.kind == "optional" else field()


def _hint(kind: FieldType, schemas: tuple[SchemaSpec, ...]) -> Any:
    match kind.kind:
        case "choice":
            return Literal[kind.options]
        case "list":
            assert kind.item is not None
            item: Any = _hint(kind.item, schemas)
            return tuple[item, ...]
        case "optional":
            assert kind.item is not None
            return _hint(kind.item, schemas) | None
        case "schema":
            return _made(next(each for each in schemas if each.name == kind.schema), schemas)
    return {"string": str, "int": int, "float": float, "bool": bool}[kind.kind]
