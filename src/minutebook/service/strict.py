"""Routes whose bodies are read strictly, before anything else looks at them."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from minutebook.service.reading import parsed


class StrictRequest(Request):
    """A request whose JSON was read already."""

    strict: Any = None

    async def json(self) -> Any:
        return self.strict


class StrictRoute(APIRoute):
    """A route that refuses JSON which is not plain. Every router of the service uses it: `route_class=StrictRoute`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            body = await strict.body()
            kind = strict.headers.get("content-type", "").partition(";")[0].strip().lower()
            if body and (kind == "application/json" or kind.endswith("+json")):
                strict.strict = parsed(body, max_depth=request.app.state.service.config.limits.json_depth)
            return await handle(strict)

        return handled
