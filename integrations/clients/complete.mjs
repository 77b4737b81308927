// OpenAI's JavaScript client answers histories: node complete.mjs BASE_URL CONVERSATION
// Reads a history as one line of JSON, prints the answer as one line of JSON, until the input ends.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(process.env.OPENAI_HOME);
const OpenAI = require("openai").default;
const [baseURL, conversation] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", defaultHeaders: { "X-Conversation-Id": conversation } });

for await (const line of createInterface({ input: process.stdin })) {
  const completion = await client.chat.completions.create({ model: "m", messages: JSON.parse(line) });
  console.log(JSON.stringify(completion.choices[0].message.content));
}
