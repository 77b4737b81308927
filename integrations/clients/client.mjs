// OpenAI's JavaScript client runs a conversation with tools: node client.mjs BASE_URL KIND CONVERSATION TURNS
// KIND is chat, chat-stream, responses or responses-stream. Prints the messages as JSON.

import { createRequire } from "node:module";

const require = createRequire(process.env.OPENAI_HOME);
const OpenAI = require("openai").default;
const [baseURL, kind, conversation, turns] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", defaultHeaders: { "X-Conversation-Id": conversation } });
const parameters = { type: "object", properties: { at: { type: "string" } } };

async function chat(stream) {
  const tools = [{ type: "function", function: { name: "look_up", parameters } }];
  const history = [{ role: "system", content: "You look things up." }];
  for (let turn = 0; turn < Number(turns); turn += 1) {
    history.push({ role: "user", content: `Question ${turn}: ${"word ".repeat(20)}` });
    for (;;) {
      const request = { model: "gpt-4o", messages: history, tools };
      const completion = stream
        ? await client.chat.completions.stream(request).finalChatCompletion()
        : await client.chat.completions.create(request);
      const message = completion.choices[0].message;
      const calls = message.tool_calls ?? [];
      history.push({ role: "assistant", content: message.content, ...(calls.length ? { tool_calls: calls } : {}) });
      if (!calls.length) break;
      for (const call of calls) {
        history.push({ role: "tool", tool_call_id: call.id, content: `Found ${call.id}. ${"fact ".repeat(40)}` });
      }
    }
  }
  return history;
}

async function responses(stream) {
  const tools = [{ type: "function", name: "look_up", parameters, strict: false }];
  const stored = await client.conversations.create({});
  const messages = [];
  for (let turn = 0; turn < Number(turns); turn += 1) {
    let input = [{ role: "user", content: `Question ${turn}: ${"word ".repeat(20)}` }];
    messages.push({ role: "user", content: input[0].content });
    for (;;) {
      const request = { model: "gpt-4o", conversation: stored.id, input, tools };
      const response = stream
        ? await client.responses.stream(request).finalResponse()
        : await client.responses.create(request);
      const calls = response.output.filter((item) => item.type === "function_call");
      if (response.output_text) messages.push({ role: "assistant", content: response.output_text });
      if (!calls.length) break;
      input = calls.map((call) => ({
        type: "function_call_output",
        call_id: call.call_id,
        output: `Found ${call.call_id}. ${"fact ".repeat(40)}`,
      }));
      messages.push(...input.map((item) => ({ role: "tool", tool_call_id: item.call_id, content: item.output })));
    }
  }
  return { conversation: stored.id, messages };
}

const result = await (kind.startsWith("chat") ? chat : responses)(kind.endsWith("stream"));
console.log(JSON.stringify(result));
