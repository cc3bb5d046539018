import assert from 'node:assert/strict';
import { ChatOpenAI, OpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { z } from 'zod';
import { checked, url } from './checked.mjs';
import { answer, caller, cities, code, continued, model, noVectors, question, vectors, weather } from './asked.mjs';

const common = { apiKey: 'none', configuration: { baseURL: url, fetch: checked }, maxRetries: 0, temperature: 0 };
const demo = new ChatOpenAI({ ...common, model, maxTokens: 128 });
const tools = [{ type: 'function', function: { name: 'weather', parameters: weather } }];

async function chat() {
  const whole = await demo.invoke(question);
  assert.equal(whole.content, answer);
  let sum;
  for await (const chunk of await demo.stream(question)) sum = sum ? sum.concat(chunk) : chunk;
  assert.equal(sum.content, answer);
  assert.equal(sum.usage_metadata.total_tokens, whole.usage_metadata.total_tokens);
}

async function completions() {
  assert.equal(await new OpenAI({ ...common, model, maxTokens: 8 }).invoke(code), continued);
}

async function calls() {
  const forced = new ChatOpenAI({ ...common, model: caller, maxTokens: 64 }).bindTools(tools, { tool_choice: 'required', parallel_tool_calls: false });
  const [call] = (await forced.invoke(question)).tool_calls;
  assert.equal(call.name, 'weather');
  assert(cities.includes(call.args.city));
}

async function structured() {
  const schema = z.object({ city: z.enum(cities), people: z.number().int() });
  const got = await demo.withStructuredOutput(schema, { name: 'city', method: 'jsonSchema', strict: true }).invoke(question);
  assert.equal(got.city, 'Cairo');
}

async function embeddings() {
  await assert.rejects(new OpenAIEmbeddings({ ...common, model }).embedQuery('a'), noVectors);
  const [a] = await new OpenAIEmbeddings({ ...common, model: vectors }).embedDocuments(['a', 'b c']);
  assert(Math.abs(a.reduce((sum, x) => sum + x * x, 0) - 1) < 1e-5);
}

export default [chat, completions, calls, structured, embeddings];
