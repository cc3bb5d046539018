// Agents: each library runs its loop from the first question over a call of a tool to the answer. The parrots are three models:
// caller calls the tool, teller says what came of it, writer writes JSON. A relay puts the right one in the model's place.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import Anthropic from '@anthropic-ai/sdk';
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod';
import { OllamaEmbeddingFunction } from '@chroma-core/ollama';
import { OpenAIEmbeddingFunction } from '@chroma-core/openai';
import { Agent as MastraAgent } from '@mastra/core/agent';
import { createTool } from '@mastra/core/tools';
import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool as agentsTool } from '@openai/agents';
import { openAICompatible } from '@genkit-ai/compat-oai';
import { ChatAnthropic } from '@langchain/anthropic';
import { ChatOllama } from '@langchain/ollama';
import { ChatOpenAI } from '@langchain/openai';
import Instructor from '@instructor-ai/instructor';
import { Output, generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import { genkit, z as gz } from 'genkit';
import { ollama as genkitOllama } from 'genkitx-ollama';
import { createAgent, tool as langchainTool } from 'langchain';
import { agent as llamaAgent } from '@llamaindex/workflow';
import { tool as llamaTool } from 'llamaindex';
import { Anthropic as LlamaAnthropic, AnthropicSession } from '@llamaindex/anthropic';
import { ollama as llamaOllama } from '@llamaindex/ollama';
import { openai as llamaOpenAI } from '@llamaindex/openai';
import { createOllama } from 'ollama-ai-provider-v2';
import OpenAI from 'openai';
import { z } from 'zod';
import { vectors } from './asked.mjs';
import { checked, root } from './checked.mjs';

const said = 'It rains in Oslo.';
const question = 'How is the weather in Oslo?';
const named = /"model":"caller(-4)?"/; // a package takes only a name with -3 or -4 for one of a model that has tools
const result = /"type":"(function_call_output|tool_result)"|"role":"tool"/;

// The relay asks the server, with the model that is to answer.
const relay = createServer(async (request, answer) => {
  let body = '';
  for await (const piece of request) body += piece;
  if (body) body = JSON.stringify(JSON.parse(body));
  body = body.replace(named, result.test(body) ? '"model":"teller"' : '"model":"caller"');
  const { connection, host, 'content-length': length, ...headers } = request.headers;
  const got = await checked(root + request.url, { method: request.method, headers, body: body || undefined });
  if (got.status !== 200 && !body.includes('"thread":')) console.error(`${request.url}: ${await got.clone().text()}\n${body}`);
  answer.writeHead(got.status, { 'content-type': got.headers.get('content-type') });
  for await (const piece of got.body) answer.write(piece);
  answer.end();
});
await new Promise((done) => relay.listen(0, '127.0.0.1', done));
relay.unref();
const through = `http://127.0.0.1:${relay.address().port}`, baseURL = through + '/v1';
const openai = new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0 });
const city = z.object({ city: z.string() });

// weather is what the tool does; asked counts its calls.
let asked = 0;
async function weather({ city }) {
  assert.equal(city, 'Oslo');
  asked++;
  return 'rain';
}

// called runs f, in which the tool is called once.
async function called(f) {
  const before = asked;
  const text = await f();
  assert.equal(text.trim(), said);
  assert.equal(asked, before + 1);
}

async function vercel() {
  const provider = createOpenAI({ baseURL, apiKey: 'none' });
  const tools = { weather: tool({ description: 'weather', inputSchema: jsonSchema({ type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false }), execute: weather }) };
  const ollama = createOllama({ baseURL: through + '/api' });
  for (const of of [provider.chat, provider.responses, createAnthropic({ baseURL, apiKey: 'none' }), ollama]) {
    const ask = { model: of('caller'), prompt: question, tools, stopWhen: stepCountIs(3), maxRetries: 0 };
    await called(async () => (await generateText(ask)).text);
    await called(async () => {
      const stream = streamText(ask);
      let last = '';
      for await (const part of stream.fullStream) {
        assert.notEqual(part.type, 'error', JSON.stringify(part));
        if (part.type === 'start-step') last = '';
        if (part.type === 'text-delta') last += part.text;
      }
      return last;
    });
    const first = await generateText({ model: of('teller'), prompt: question, maxRetries: 0 });
    const again = await generateText({ model: of('teller'), messages: [{ role: 'user', content: question }, ...first.response.messages, { role: 'user', content: 'And now?' }], maxRetries: 0 });
    assert.equal(again.text, said);
    const { output } = await generateText({ model: of('writer'), prompt: question, output: Output.object({ schema: city }), maxRetries: 0, providerOptions: { anthropic: { structuredOutputMode: 'outputFormat' } } });
    assert.deepEqual(output, { city: 'Oslo' });
  }
  const { reasoningText } = await generateText({ model: provider.responses('teller'), prompt: question, maxRetries: 0, providerOptions: { openai: { reasoningSummary: 'auto', store: false, forceReasoning: true, include: ['reasoning.encrypted_content'] } } });
  assert.equal(reasoningText, 'So it is.');
}

async function langchain() {
  const tools = [langchainTool(weather, { name: 'weather', description: 'weather', schema: city })];
  const openai = (useResponsesApi) => (model) => new ChatOpenAI({ model, apiKey: 'none', maxRetries: 0, useResponsesApi, configuration: { baseURL } });
  const anthropic = (model) => new ChatAnthropic({ model, apiKey: 'none', maxRetries: 0, anthropicApiUrl: through });
  const ollama = (model) => new ChatOllama({ model, baseUrl: through, maxRetries: 0 });
  for (const of of [openai(false), openai(true), anthropic, ollama]) {
    const agent = createAgent({ model: of('caller'), tools }), ask = { messages: [{ role: 'user', content: question }] };
    await called(async () => (await agent.invoke(ask)).messages.at(-1).text);
    await called(async () => {
      let last = '';
      for await (const [piece] of await agent.stream(ask, { streamMode: 'messages' })) last = piece.type === 'tool' ? '' : last + piece.text;
      return last;
    });
    assert.deepEqual(await of('writer').withStructuredOutput(city, { method: 'jsonSchema', name: 'city' }).invoke(question), { city: 'Oslo' });
  }
}

async function anthropic() {
  const client = new Anthropic({ baseURL: through, apiKey: 'none', maxRetries: 0 });
  const ask = { model: 'caller', max_tokens: 512, messages: [{ role: 'user', content: question }], tools: [betaZodTool({ name: 'weather', description: 'weather', inputSchema: city, run: weather })] };
  await called(async () => (await client.beta.messages.toolRunner(ask)).content.at(-1).text);
  await called(async () => {
    let last;
    for await (const stream of client.beta.messages.toolRunner({ ...ask, stream: true })) last = await stream.finalMessage();
    return last.content.at(-1).text;
  });
}

async function agents() {
  setTracingDisabled(true);
  for (const useResponses of [false, true]) {
    const runner = new Runner({ modelProvider: new OpenAIProvider({ openAIClient: openai, useResponses }), tracingDisabled: true });
    const tools = [agentsTool({ name: 'weather', description: 'weather', parameters: city, execute: weather })];
    const agent = new Agent({ name: 'a', instructions: 'Be brief.', model: 'caller', tools });
    await called(async () => (await runner.run(agent, question)).finalOutput);
    await called(async () => {
      const stream = await runner.run(agent, question, { stream: true });
      await stream.completed;
      return stream.finalOutput;
    });
    const teller = new Agent({ name: 't', instructions: 'Be brief.', model: 'teller' });
    const first = await runner.run(teller, question);
    assert.equal((await runner.run(teller, [...first.history, { role: 'user', content: 'And now?' }])).finalOutput, said);
    assert.deepEqual((await runner.run(new Agent({ name: 'w', model: 'writer', outputType: city }), question)).finalOutput, { city: 'Oslo' });
  }
}

async function instructor() {
  for (const mode of ['TOOLS', 'FUNCTIONS', 'JSON', 'MD_JSON', 'JSON_SCHEMA']) {
    const client = Instructor({ client: openai, mode });
    const model = mode === 'TOOLS' || mode === 'FUNCTIONS' ? 'caller' : 'writer';
    const got = await client.chat.completions.create({ model, messages: [{ role: 'user', content: question }], response_model: { schema: city, name: 'weather' } });
    assert.equal(got.city, 'Oslo', mode);
  }
}

async function google() {
  const ai = genkit({ plugins: [openAICompatible({ name: 'karat', apiKey: 'none', baseURL })] });
  const tools = [ai.defineTool({ name: 'weather', description: 'weather', inputSchema: gz.object({ city: gz.string() }), outputSchema: gz.string() }, weather)];
  await called(async () => (await ai.generate({ model: 'karat/caller', prompt: question, tools })).text);
  await called(async () => (await ai.generateStream({ model: 'karat/caller', prompt: question, tools })).response.then((r) => r.text));
  const ollama = genkit({ plugins: [genkitOllama({ models: [{ name: 'caller', type: 'chat', supports: { tools: true } }], serverAddress: through })] });
  const own = ollama.defineTool({ name: 'weather', description: 'weather', inputSchema: gz.object({ city: gz.string() }), outputSchema: gz.string() }, weather);
  await called(async () => (await ollama.generate({ model: 'ollama/caller', prompt: question, tools: [own] })).text); // its streams fail where two lines come in one piece
}

async function llamaindex() {
  const tools = [llamaTool({ name: 'weather', description: 'weather', parameters: city, execute: weather })];
  const anthropic = new LlamaAnthropic({ model: 'caller-4', session: new AnthropicSession({ apiKey: 'none', baseURL: through, maxRetries: 0 }) });
  for (const llm of [llamaOpenAI({ model: 'caller', apiKey: 'none', baseURL, maxRetries: 0 }), anthropic, llamaOllama({ model: 'caller', config: { host: through } })]) {
    await called(async () => (await llamaAgent({ llm, tools }).run(question)).data.result);
  }
}

async function mastra() {
  const provider = createOpenAI({ baseURL, apiKey: 'none' });
  const tools = { weather: createTool({ id: 'weather', description: 'weather', inputSchema: city, execute: (input) => weather(input.context ?? input) }) };
  const agent = new MastraAgent({ id: 'a', name: 'a', instructions: 'Be brief.', model: provider.chat('caller'), tools });
  await called(async () => (await agent.generate(question, { maxSteps: 3 })).steps.at(-1).text);
}

async function chroma() {
  const texts = ['a', 'b c'];
  const openai = await new OpenAIEmbeddingFunction({ apiKey: 'none', modelName: vectors, apiBase: baseURL }).generate(texts);
  const ollama = await new OllamaEmbeddingFunction({ url: through, model: vectors }).generate(texts);
  assert.equal(openai.length, 2);
  assert.deepEqual(openai.map((v) => v.map(Math.fround)), ollama.map((v) => v.map(Math.fround)));
}

export default [vercel, langchain, anthropic, agents, instructor, google, llamaindex, mastra, chroma];
