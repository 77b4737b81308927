"""The signatures of `Conversation` for type checkers: those of `AsyncConversation` without `async`."""

import ast
import subprocess
import sys
from pathlib import Path

from minutebook.conversation.handle import async_conversation, sync_conversation

PAGE = Path(sync_conversation.__file__ or "").with_suffix(".pyi")
_HEAD = "# Written by docs/generate.py from AsyncConversation; change that.\n"


class _WithoutAsync(ast.NodeTransformer):
    """Turns the class `AsyncConversation` into the stub of `Conversation`."""

    _overloads: frozenset[str] = frozenset()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.FunctionDef | None:
        names = {"__aenter__": "__enter__", "__aexit__": "__exit__"}
        decorators = [decorator.id for decorator in node.decorator_list if isinstance(decorator, ast.Name)]
        returns = node.returns
        if isinstance(returns, ast.Subscript) and getattr(returns.value, "id", "") == "AsyncIterator":
            kind = "AbstractContextManager" if "asynccontextmanager" in decorators else "Iterator"
            returns = ast.Subscript(ast.Name(kind), returns.slice)
        if isinstance(returns, ast.Subscript) and getattr(returns.value, "id", "") == "AsyncGenerator":
            assert isinstance(returns.slice, ast.Tuple)
            returns = ast.Subscript(ast.Name("Iterator"), returns.slice.elts[0])
        function = ast.FunctionDef(
            names.get(node.name, node.name), node.args, node.body, [], returns, lineno=0, type_params=[]
        )
        return self.visit_FunctionDef(function)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef | None:
        if node.name == "__repr__" or (node.name.startswith("_") and not node.name.startswith("__")):
            return None
        self.generic_visit(node)
        node.body = [ast.Expr(ast.Constant(...))]
        is_overload = any(getattr(decorator, "id", "") == "overload" for decorator in node.decorator_list)
        if node.name in self._overloads and not is_overload:
            return None
        self._overloads |= {node.name} if is_overload else set()
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return ast.Name("Conversation") if node.value == "AsyncConversation" else node


def sync_stub() -> str:
    """The text of `sync_conversation.pyi`."""
    tree = ast.parse(Path(async_conversation.__file__).read_text(encoding="utf-8"))
    source = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "AsyncConversation")
    fields = ast.parse("store: ConversationStore\nprovider: Provider").body
    stub = _WithoutAsync().visit(source)
    stub.name = "Conversation"
    stub.body = [*fields, *(node for node in stub.body[1:] if isinstance(node, ast.FunctionDef))]
    text = ast.unparse(stub)
    used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    contexts = sorted(used & {"AbstractAsyncContextManager", "AbstractContextManager"})
    imports = [f"from contextlib import {', '.join(contexts)}"] if contexts else []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module != "contextlib":
            names = [alias.name for alias in node.names if alias.name in used]
            names += ["Iterator"] if node.module == "collections.abc" and "Iterator" in used - set(names) else []
            imports += [f"from {node.module} import {', '.join(names)}"] if names else []
    imports.append("from minutebook.conversation.handle.async_conversation import MessageInput")
    return _formatted(_HEAD + "\n".join(sorted(imports)) + "\n\n" + text + "\n")


def _formatted(text: str) -> str:
    arguments = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", str(PAGE), "-"]
    return subprocess.run(arguments, input=text, text=True, capture_output=True, check=True).stdout  # noqa: S603
