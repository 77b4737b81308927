"""The tools and the settings of a request, under the names that each provider's API has for them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

_NAMES: Final = {
    "openai-chat": {"limit": "max_completion_tokens", "temperature": "temperature", "top_p": "top_p", "stop": "stop"},
    "openai-responses": {"limit": "max_output_tokens", "temperature": "temperature", "top_p": "top_p"},
    "anthropic": {"limit": "max_tokens", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k"}
    | {"stop": "stop_sequences"},
    "gemini": {"limit": "maxOutputTokens", "temperature": "temperature", "top_p": "topP", "top_k": "topK"}
    | {"stop": "stopSequences"},
}
"""Format → setting → its name. The settings of Gemini are in `generationConfig`."""
_FUNCTION_KEYS: Final = frozenset({"name", "description", "parameters"})


def converted_settings(data: Mapping[str, Any], source: str, target: str) -> tuple[dict[str, Any], set[str]]:
    """The tools and settings of a request in another format, and the names of the fields of which nothing is lost.

    `data` are the fields around the messages of the request, or of a line of a batch with the request in it.
    """
    if source == target or source not in _NAMES or target not in _NAMES:
        return {}, set()
    request = next((body for body in map(data.get, ("body", "params")) if isinstance(body, Mapping)), data)
    fields: dict[str, Any] = {}
    complete_fields: set[str] = set()
    for name, (field, value) in _settings(request, source).items():
        if name in _NAMES[target]:
            fields[_NAMES[target][name]] = value
            complete_fields.add(field)
    if source == "gemini" and len(complete_fields) == len(request.get("generationConfig") or ()):
        complete_fields.add("generationConfig")
    if target == "gemini" and fields:
        fields = {"generationConfig": fields}
    functions = list(_functions(request.get("tools"), source))
    if convertible := [function for function in functions if function]:
        fields["tools"] = _tools(convertible, target)
        if all(function and function.keys() <= _FUNCTION_KEYS for function in functions):
            complete_fields.add("tools")
    return fields, complete_fields


def _settings(request: Mapping[str, Any], source: str) -> dict[str, tuple[str, Any]]:
    """The settings by their common names, each with its field and its value."""
    fields: Any = request.get("generationConfig") if source == "gemini" else request
    if not isinstance(fields, Mapping):
        return {}
    names = dict(_NAMES[source])
    if source == "openai-chat" and names["limit"] not in fields:
        names["limit"] = "max_tokens"  # its earlier name
    found = {name: (field, fields[field]) for name, field in names.items() if fields.get(field) is not None}
    if "stop" in found and isinstance(found["stop"][1], str):
        found["stop"] = (found["stop"][0], [found["stop"][1]])
    return found


def _functions(tools: Any, source: str) -> Iterator[dict[str, Any]]:
    """Each tool as a function with a name, a description and parameters; empty if it is of another kind."""
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, Mapping):
            yield {}
        elif source == "gemini":
            declarations = tool.get("functionDeclarations", tool.get("function_declarations"))
            yield from map(_declared_function, declarations or ({},))
        elif source == "anthropic":
            other = {key: value for key, value in tool.items() if key not in {"input_schema", "type"}}
            yield {**other, "parameters": tool["input_schema"]} if "input_schema" in tool else {}
        else:
            function = tool.get("function") if source == "openai-chat" else tool
            is_function = tool.get("type") == "function" and isinstance(function, Mapping)
            yield (
                {key: value for key, value in (function or {}).items() if value and key != "type"}
                if is_function
                else {}
            )


def _declared_function(declaration: Mapping[str, Any]) -> dict[str, Any]:
    """A declaration of Gemini as a function with a JSON schema. Gemini's schemas have the types in capitals."""
    schema = declaration.get("parameters", declaration.get("parametersJsonSchema"))
    function = {key: value for key, value in declaration.items() if key not in {"parameters", "parametersJsonSchema"}}
    return {**function, "parameters": _with_lower_case_types(schema)} if schema else function


def _with_lower_case_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return list(map(_with_lower_case_types, schema))
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: value.lower() if key == "type" and isinstance(value, str) else _with_lower_case_types(value)
        for key, value in schema.items()
    }


def _tools(functions: list[dict[str, Any]], target: str) -> list[dict[str, Any]]:
    declared = [{key: value for key, value in function.items() if key in _FUNCTION_KEYS} for function in functions]
    if target == "openai-chat":
        return [{"type": "function", "function": function} for function in declared]
    if target == "openai-responses":  # it takes functions as strict unless they say otherwise
        return [
            {"type": "function", "parameters": {"type": "object"}, **function, "strict": False} for function in declared
        ]
    if target == "anthropic":
        return [
            {key: function[key] for key in ("name", "description") if key in function}
            | {"input_schema": function.get("parameters") or {"type": "object"}}
            for function in declared
        ]
    names = {"parameters": "parametersJsonSchema"}
    declarations = [{names.get(key, key): value for key, value in function.items()} for function in declared]
    return [{"functionDeclarations": declarations}]
