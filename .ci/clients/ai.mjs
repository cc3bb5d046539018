import assert from 'node:assert/strict';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { Output, embedMany, generateText, jsonSchema, streamText, tool } from 'ai';
import { z } from 'zod';
import { checked, url } from './checked.mjs';
import { answer, caller, cities, code, model, noVectors, question, vectors, weather } from './asked.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false; // that completions have no tools
const karat = createOpenAICompatible({ name: 'karat', baseURL: url, apiKey: 'none', fetch: checked, includeUsage: true, supportsStructuredOutputs: true });
const greedy = { model: karat(model), prompt: question, temperature: 0, maxOutputTokens: 128, maxRetries: 0 };
const tools = { weather: tool({ inputSchema: jsonSchema(weather) }) };
const forced = { ...greedy, model: karat(caller), tools, toolChoice: 'required', maxOutputTokens: 64 };

async function chat() {
  const whole = await generateText(greedy);
  assert.equal(whole.text, answer);
  assert.equal(whole.finishReason, 'stop');
  const stream = streamText(greedy);
  let text = '';
  for await (const piece of stream.textStream) text += piece;
  assert.equal(text, answer);
  const { inputTokens, outputTokens } = await stream.usage;
  assert.deepEqual([inputTokens, outputTokens], [whole.usage.inputTokens, whole.usage.outputTokens]);
  assert(outputTokens > 0);
}

async function completions() {
  const whole = await generateText({ ...greedy, model: karat.completionModel(model), prompt: code, maxOutputTokens: 8 });
  assert.equal(whole.finishReason, 'length');
  assert(whole.text.length > 0); // of another prompt: the package writes "user:" around it
  assert.equal(whole.usage.outputTokens, 8);
}

async function calls() {
  const whole = await generateText(forced);
  assert.equal(whole.toolCalls[0].toolName, 'weather');
  assert(cities.includes(whole.toolCalls[0].input.city));
  const stream = streamText(forced);
  assert.deepEqual((await stream.toolCalls)[0].input, whole.toolCalls[0].input);
}

async function structured() {
  const schema = z.object({ city: z.enum(cities), people: z.number().int() });
  const { output } = await generateText({ ...greedy, output: Output.object({ schema }) });
  assert.equal(output.city, 'Cairo');
}

async function embeddings() {
  await assert.rejects(embedMany({ model: karat.embeddingModel(model), values: ['a'], maxRetries: 0 }), noVectors);
  const { embeddings: all, usage } = await embedMany({ model: karat.embeddingModel(vectors), values: ['a', 'b c'] });
  assert.equal(all.length, 2);
  assert(usage.tokens > 0 && all.every((v) => Math.abs(v.reduce((sum, x) => sum + x * x, 0) - 1) < 1e-5));
}

export default [chat, completions, calls, structured, embeddings];
