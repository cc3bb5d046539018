// A loaded model, with the functions of OpenAI's client.
import { trouble } from './hub.js';

const id = kind => kind + '-' + Array.from(crypto.getRandomValues(new Uint8Array(12)), x => x.toString(16).padStart(2, '0')).join('');
const now = () => Math.floor(Date.now() / 1000);

// Fields of a request, and their names in the engine.
const SAMPLING = { temperature: 'temperature', top_p: 'topP', top_k: 'topK', min_p: 'minP', presence_penalty: 'presencePenalty', frequency_penalty: 'frequencyPenalty', repetition_penalty: 'repeatPenalty', repeat_last_n: 'repeatLast', seed: 'seed' };
const KNOWN = new Set([...Object.keys(SAMPLING), 'model', 'messages', 'prompt', 'stream', 'stream_options', 'max_tokens', 'max_completion_tokens', 'stop', 'logprobs', 'top_logprobs', 'n', 'response_format', 'tools', 'tool_choice', 'parallel_tool_calls', 'chat_template_kwargs', 'continue_final_message', 'receipt', 'onPrompt', 'user', 'store', 'metadata']);

const bad = message => trouble('request', message);

// optionsOf makes the engine's options of a request.
function optionsOf(body, info) {
	for (const name of Object.keys(body)) if (body[name] !== undefined && !KNOWN.has(name)) throw bad(`${name} is not supported`);
	if ((body.n ?? 1) !== 1) throw bad('n: one answer at a time');
	const sampling = { ...info.sampling };
	for (const [name, own] of Object.entries(SAMPLING)) if (body[name] !== undefined && body[name] !== null) sampling[own] = body[name];
	const most = body.max_completion_tokens ?? body.max_tokens ?? -1, chats = body.messages !== undefined;
	if (!Number.isInteger(most) || most === 0) throw bad('max_tokens must be a whole number of at least 1');
	const o = { maxTokens: most, sampling, stop: body.stop === undefined || body.stop === null ? [] : [body.stop].flat(), args: body.chat_template_kwargs, continue: !!body.continue_final_message, receipt: !!body.receipt };
	if (body.logprobs !== undefined && body.logprobs !== false && body.logprobs !== null) o.top = Math.max(1, (chats ? body.top_logprobs : body.logprobs) ?? 0);
	else if (body.top_logprobs) throw bad('top_logprobs needs logprobs: true');
	const form = body.response_format ?? { type: 'text' };
	if (form.type === 'json_schema') o.schema = form.json_schema.schema ?? {};
	else if (form.type === 'json_object') o.schema = { type: 'object' };
	else if (form.type === 'regex' || form.type === 'grammar' || form.type === 'lark') o[form.type] = form[form.type];
	else if (form.type !== 'text') throw bad(`response_format.type: ${form.type}`);
	const choice = body.tool_choice ?? 'auto';
	if (body.tools?.length && choice !== 'none') {
		for (const t of body.tools) if (t.type !== 'function' || !t.function?.name) throw bad('tools: a function with a name is wanted');
		o.tools = body.tools;
		o.toolChoice = typeof choice === 'string' ? choice : choice.function?.name;
		if (choice !== 'auto' && choice !== 'required' && !o.tools.some(t => t.function.name === o.toolChoice)) throw bad(`tool_choice: there is no tool ${o.toolChoice}`);
		o.singleCall = body.parallel_tool_calls === false;
	}
	return o;
}

const ENDS = { end: 'stop', stop: 'stop', length: 'length' };
const usageOf = r => ({ prompt_tokens: r.prompt, completion_tokens: r.tokens, total_tokens: r.prompt + r.tokens, prompt_tokens_details: { cached_tokens: r.kept } });
const spelled = (text, logprob) => ({ token: text, logprob, bytes: [...new TextEncoder().encode(text)] });

// Stream is an answer as it comes. A loop that is left early ends the answer.
class Stream {
	#chunks;
	constructor(chunks, controller) {
		this.#chunks = chunks;
		this.controller = controller;
	}
	[Symbol.asyncIterator]() { return this.#chunks[Symbol.asyncIterator](); }
	abort() { this.controller.abort(); }
}

export class Model {
	#ask;
	#end;
	#turn = Promise.resolve(); // the end of the last call: a model answers one at a time

	constructor(info, ask, end) {
		this.info = info;
		this.#ask = ask;
		this.#end = end;
		this.chat = { completions: { create: (body, options) => this.#create(body, options, true) } };
		this.completions = { create: (body, options) => this.#create(body, options, false) };
		this.embeddings = { create: (body, options) => this.#embed(body, options) };
	}

	// ask asks the engine when all earlier calls are answered.
	#queue(op, args, { signal, event } = {}) {
		const run = async () => {
			signal?.throwIfAborted();
			const stop = () => this.#ask('stop').catch(() => {});
			signal?.addEventListener('abort', stop, { once: true });
			try {
				const r = await this.#ask(op, args, event);
				signal?.throwIfAborted();
				return r;
			} catch (e) {
				throw signal?.aborted ? signal.reason : e;
			} finally {
				signal?.removeEventListener('abort', stop);
			}
		};
		const answer = this.#turn.then(run);
		this.#turn = answer.catch(() => {});
		return answer;
	}

	// events yields what the engine tells of an answer, then its end as {end}.
	async *#events(args, controller) {
		const got = [];
		let wake = () => {}, failure, ended = false;
		const end = this.#queue('generate', args, { signal: controller.signal, event: e => { got.push(e); wake(); } })
			.then(r => got.push({ end: r }), e => { failure = e; }).then(() => { ended = true; wake(); });
		try {
			while (true) {
				while (got.length) yield got.shift();
				if (ended) break;
				await new Promise(go => { wake = go; if (got.length || ended) go(); });
			}
			if (failure) throw failure;
		} finally {
			if (!ended) controller.abort();
			await end;
		}
	}

	async #create(body, { signal } = {}, chats) {
		const options = optionsOf(body, this.info), prompt = chats ? body.messages : body.prompt, controller = new AbortController();
		if (chats ? !Array.isArray(prompt) : typeof prompt !== 'string') throw bad(chats ? 'messages must be an array' : 'prompt must be a string');
		if (signal) {
			signal.throwIfAborted();
			signal.addEventListener('abort', () => controller.abort(signal.reason), { once: true, signal: controller.signal });
		}
		const chunks = this.#chunks({ prompt, options }, body, controller, chats);
		if (body.stream) return new Stream(chunks, controller);
		return whole(chunks, chats);
	}

	// chunks yields an answer in OpenAI's chunks.
	async *#chunks(args, body, controller, chats) {
		const head = { id: id(chats ? 'chatcmpl' : 'cmpl'), object: chats ? 'chat.completion.chunk' : 'text_completion', created: now(), model: body.model ?? this.info.name };
		const top = chats ? body.top_logprobs ?? 0 : args.options.top;
		let seen = [], calls = 0; // tokens that no chunk has so far
		const chunk = (delta, finish = null) => {
			const logprobs = !args.options.top || !seen.length ? null : chats ? { content: seen, refusal: null } : { tokens: seen.map(x => x.token), token_logprobs: seen.map(x => x.logprob), top_logprobs: seen.map(x => Object.fromEntries(x.top_logprobs.map(y => [y.token, y.logprob]))) };
			seen = [];
			return { ...head, choices: [{ index: 0, ...chats ? { delta } : { text: delta.content ?? '' }, logprobs, finish_reason: finish }] };
		};
		if (chats) yield chunk({ role: 'assistant', content: '' });
		for await (const e of this.#events(args, controller)) {
			if (e.id !== undefined && args.options.top && e.stop !== 'end') seen.push({ ...spelled(e.token ?? e.text, e.logprob), top_logprobs: (e.top || []).slice(0, top).map(y => spelled(y.text ?? '', y.logprob)) });
			if (e.prompt) body.onPrompt?.(e.prompt);
			if (e.reasoning) yield chunk({ reasoning_content: e.reasoning });
			if (e.text) yield chunk({ content: e.text });
			if (e.call) yield chunk({ tool_calls: [{ index: calls++, id: e.call.id, type: 'function', function: { name: e.call.name, arguments: e.call.arguments } }] });
			if (!e.end) continue;
			if (e.end.stop === 'aborted') throw new DOMException('the answer was stopped', 'AbortError');
			const last = chunk({}, calls ? 'tool_calls' : ENDS[e.end.stop] ?? e.end.stop);
			if (e.end.receipt) last.receipt = e.end.receipt;
			yield last;
			if (!body.stream || body.stream_options?.include_usage) yield { ...head, choices: [], usage: usageOf(e.end) };
		}
	}

	async #embed({ input, dimensions, encoding_format = 'float', pooling, model, ...rest }, { signal } = {}) {
		for (const name of Object.keys(rest)) if (rest[name] !== undefined && name !== 'user') throw bad(`${name} is not supported`);
		const r = await this.#queue('embed', { texts: [input].flat(), options: { dimensions, pooling } }, { signal });
		const base64 = v => btoa(String.fromCharCode(...new Uint8Array(new Float32Array(v).buffer)));
		return { object: 'list', model: model ?? this.info.name, data: r.vectors.map((v, index) => ({ object: 'embedding', index, embedding: encoding_format === 'base64' ? base64(v) : v })), usage: { prompt_tokens: r.tokens, total_tokens: r.tokens } };
	}

	// tokenize returns the tokens of a text: [{id, text}].
	tokenize(text) { return this.#queue('tokenize', { text }); }

	// render returns the prompt that the model's template makes of messages: {text, tokens}.
	render({ messages, tools, chat_template_kwargs: args }) { return this.#queue('render', { messages, options: { tools, args } }); }

	// prove compares the model's logits here with a record, or else with its own in float64.
	prove({ record, signal, onProgress } = {}) { return this.#queue('prove', { record }, { signal, event: e => onProgress?.(e) }); }

	// verify computes the answer of a receipt again.
	verify(receipt, { signal } = {}) { return this.#queue('verify', { receipt: typeof receipt === 'string' ? receipt : JSON.stringify(receipt) + '\n' }, { signal }); }

	// stats returns the memory in use.
	stats() { return this.#queue('stats'); }

	// close ends the engine, and frees its memory.
	close() { this.#end(); }
}

// whole joins an answer's chunks.
async function whole(chunks, chats) {
	const message = { role: 'assistant', content: null, refusal: null }, tokens = [], seen = [];
	let head, finish, usage, receipt;
	for await (const c of chunks) {
		head = c;
		usage = c.usage ?? usage;
		receipt = c.receipt ?? receipt;
		const x = c.choices[0];
		if (!x) continue;
		const { content, reasoning_content: reasoning, tool_calls: calls } = x.delta ?? { content: x.text };
		if (content) message.content = (message.content ?? '') + content;
		if (reasoning) message.reasoning_content = (message.reasoning_content ?? '') + reasoning;
		if (calls) (message.tool_calls ??= []).push(...calls.map(({ index, ...call }) => call));
		if (x.logprobs?.content) tokens.push(...x.logprobs.content);
		else if (x.logprobs) seen.push(x.logprobs);
		finish = x.finish_reason ?? finish;
	}
	if (!message.tool_calls) message.content ??= '';
	const more = receipt && { receipt }, joined = name => seen.flatMap(x => x[name]);
	const logprobs = tokens.length ? { content: tokens, refusal: null } : seen.length ? { tokens: joined('tokens'), token_logprobs: joined('token_logprobs'), top_logprobs: joined('top_logprobs') } : null;
	const choice = chats ? { index: 0, message, logprobs, finish_reason: finish } : { index: 0, text: message.content, logprobs, finish_reason: finish };
	return { id: head.id, object: chats ? 'chat.completion' : 'text_completion', created: head.created, model: head.model, choices: [choice], usage, ...more };
}
