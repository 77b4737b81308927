"""What short messages have in common, so that it need not be stored with each of them.

A deflated piece refers to what came before it, and in a short one hardly anything did. These phrases stand before every
piece, in the reader's mind and in the writer's. What is most likely stands last, where it costs least to refer to.

They are a part of the format: pieces that were written with them are read with them. Better ones get a mark of their own.
"""

from typing import Final

PHRASES: Final = (
    " Montag, Dienstag, der die das und ist nicht mit auf eine für werden haben wir Sie können bitte danke"
    " le la les des une est pas pour dans que vous nous avec sur plus merci bonjour je voudrais"
    " el los las una por para con como más está qué puede gracias quiero usted tiene necesito"
    " não uma você obrigado isso também がありますのでしました。ください。ています。これは、それでは、です。ます。のに"
    " 我们可以使用这个问题，的是在了不和有。请您需要什么？如果 안녕하세요 감사합니다 합니다. 있습니다. 입니다."  # noqa: RUF001 - as it is written there
    " Пожалуйста, это что как для не на по при если можно спасибо "
    "January February March April May June July August September October November December 2024 2025 2026 "
    "https://www.example.com/ http://localhost:8000/api/v1/ .github/workflows/ README.md pyproject.toml package.json "
    "node_modules/ src/main.py tests/test_ .py .js .ts .tsx .json .yaml .md .txt /home/user/ /usr/lib/python3/ "
    'Traceback (most recent call last):\n  File "", line 1, in <module>\nValueError: TypeError: KeyError: '
    "AssertionError: ModuleNotFoundError: No module named '' FAILED tests/ passed, failed, warnings in 0.1s\n"
    "error: warning: exit code 0 No such file or directory Permission denied command not found: \n"
    "diff --git a/ b/\nindex \n--- a/\n+++ b/\n@@ -1,3 +1,4 @@\n commit branch main merge pull request "
    "#include <stdio.h>\nint main(void) {\n    return 0;\n}\npublic static void const let var = => async await export default "
    "function () {\n    return this.props;\n  }\nimport React from 'react';\nSELECT * FROM WHERE id = ORDER BY LIMIT "
    'def __init__(self, name: str) -> None:\n        self. = \n    if not in is None:\n        raise ValueError(f"")\n'
    "    for in range(len()):\n        print()\n    try:\n    except Exception as error:\n    with open(path) as file:\n"
    "from import class return True False None else elif while lambda yield\n```python\n```bash\n```json\n```\n\n"
    "## Summary\n\n### 1. **Note:** - [ ] - [x] | --- | --- |\n1. First, 2. Second, 3. Third, 4. Finally, \n- "
    "customer order number reservation flight account address email phone payment credit card refund cancel change status "
    "user_id order_id item_id product price total amount date time city country name first_name last_name "
    "the number of because before after between during without within another however therefore although "
    "information available different following important example question problem solution project document version "
    "would like to know more about how to use this with your own code, and what it means when something goes wrong. "
    "Thank you for your help! You're welcome! Hello, how can I help you today? Sorry, I can't do that. I understand. "
    "Yes, please. No, thank you. That is correct. Is there anything else I can help you with? Please let me know if you "
    "have any other questions. Could you please provide me with some more details? I would like to change my "
    "What is the best way to do this? Why does it not work? Can you show me an example of that? I don't think so. "
    "I'll start by looking at the files in the project. Let me check what is there. Now I need to update the tests. "
    "Let me read the file first. I have found the problem: the function returns the wrong value. Let me fix it and run "
    "all of the tests again. The tests pass now. Here is what I have done: I've added, changed and removed "
    "which was that there are have been were from they them their will would should could can this that these those "
    "it is not in the on the at the of the to the for the and the with the is a an as by be or if we you I "
    '{"type":"text","text":"","cache_control":{"type":"ephemeral"}}],"reasoning_content":""},"refusal":null,"annotations":[]'
    '{"role":"assistant","content":null,"tool_calls":[{"id":"toolu_01","type":"function","function":{"name":"bash",'
    '"arguments":"{\\"command\\": \\"cd /workspace && ls -la\\"}"}}]}'
    '{"role":"tool","content":0,"tool_call_id":"call_","name":"read_file"}'
    '{"role":"assistant","content":0,"tool_calls":[{"id":"call_","type":"function","function":{"name":"search",'
    '"arguments":"{\\"path\\": \\"/\\", \\"query\\": \\"\\"}"}}]}'
).encode()
"""At the end: the shape of a message with calls, and of a result. Before that: what people and models say."""
