"""How a prompt asks for its answer as JSON."""

import json
from functools import lru_cache

from minutebook.prompt.schema import json_schema

_FORMAT = """## {number}. Response format

Answer with one JSON object that fits this JSON Schema, and nothing else:

```json
{schema}
```"""


@lru_cache(maxsize=256)
def response_format(output_type: type, number: int) -> str:
    """The section that ends a prompt whose answer is a dataclass."""
    return _FORMAT.format(number=number, schema=json.dumps(json_schema(output_type), ensure_ascii=False))
