// Drivers: what computes. The page asks for an operation by its name, and both drivers answer alike:
// the engine of this browser, which runs in a worker, and the server that sent the page.

// call asks the driver in use; event gets what the driver tells before it answers.
function call(op, args, event) {
	if (info?.driver === 'server' && inside_.includes(op)) return Promise.reject(trouble('browser', ''));
	const served = op === 'load' ? args.source.kind === 'served' : op in remote && info?.driver === 'server';
	if (op === 'load' && args.source.kind === 'demo') args = { ...args, source: { ...published('demo.gguf'), kind: 'url' } };
	return served ? remote[op](args || {}, event || (() => {})) : ask(op, args, event);
}

// inside_ are the operations on a model's inside, which the browser's engine alone has.
const inside_ = ['prove', 'nodes', 'probe', 'change', 'time', 'reset'];

// scripts makes addresses of this site's scripts that the page's policy trusts.
const scripts = globalThis.trustedTypes?.createPolicy('karat', { createScriptURL: url => url }) || { createScriptURL: url => url };

// The engine of this browser: the page's own script, as a worker.
const engine = new Engine(() => new Worker(scripts.createScriptURL('karat.js')), e => fail(e));
const ask = (op, args, event) => engine.ask(op, args, event);

// published is a file of this site.
const published = name => ({ url: name, name, ...SITE.files[name] });

// The key of a server that wants one, kept until this tab is closed.
const apiKey = () => recall('key', tabStore) || '';

let control; // the AbortController of what the server computes

// reach asks the server, and returns its answer if the answer is good.
async function reach(path, body, signal) {
	const headers = { 'Content-Type': 'application/json', ...apiKey() && { Authorization: 'Bearer ' + apiKey() } };
	let r;
	try {
		r = await fetch(path, body ? { method: 'POST', headers, body: typeof body === 'string' ? body : JSON.stringify(body), signal } : { headers, signal });
	} catch (e) {
		throw e.name === 'AbortError' ? e : trouble('server', e.message);
	}
	if (r.ok) return r;
	const said = await r.json().then(x => x.error, () => null), message = said?.message || (typeof said === 'string' ? said : `${path}: ${r.status}`);
	const kinds = { 401: 'key', 403: 'key', 503: 'serverBusy', 429: 'serverBusy' };
	throw trouble(said?.code === 'context_length_exceeded' ? 'full' : kinds[r.status] || 'other', message);
}

const json = async (path, body) => (await reach(path, body)).json();

// events are those of a stream of server-sent events, as objects.
async function* events(r) {
	let rest = '';
	for await (const part of r.body.pipeThrough(new TextDecoderStream())) {
		const lines = (rest + part).split('\n');
		rest = lines.pop();
		for (const line of lines) if (line.startsWith('data: {')) yield JSON.parse(line.slice(6));
	}
}

// remote are the operations that the server computes.
const remote = {
	async load({ source: { name } }) {
		const nothing = { details: {}, template: ' ' }; // for a key that may not ask for it: the model chats, as far as is known
		const [{ data }, show] = await Promise.all([json('v1/models'), json('api/show', { model: name }).catch(e => e.kind === 'key' ? nothing : Promise.reject(e))]);
		const about = data.find(m => m.id === name) || {};
		return { driver: 'server', name, architecture: show.details.family, quantization: show.details.quantization_level, parameters: show.details.parameter_size,
			template: show.template, context: about.max_model_len, sees: !!about.modalities?.vision, sampling: {}, backend: 'server' };
	},

	stop() { control?.abort(); },

	async tokenize({ text }) {
		const { tokens } = await json('tokenize', { model: info.name, content: text, with_pieces: true, add_special: true, parse_special: false });
		return tokens.map(x => ({ id: x.id, text: typeof x.piece === 'string' ? x.piece : new TextDecoder().decode(new Uint8Array(x.piece)) }));
	},

	async render({ messages, options: { tools } = {} }) {
		const { prompt: text } = await json('apply-template', { model: info.name, messages, tools });
		const { tokens } = await json('tokenize', { model: info.name, content: text, with_pieces: true, parse_special: true });
		return { text, tokens: tokens.map(x => ({ id: x.id, text: typeof x.piece === 'string' ? x.piece : new TextDecoder().decode(new Uint8Array(x.piece)) })) };
	},

	// generate streams an answer: tell gets each token's {text, logprob, top}, or {reasoning}, or a {call}.
	async generate({ prompt, options }, tell) {
		control = new AbortController();
		const { sampling: s, schema, tools } = options, chats = Array.isArray(prompt), began = performance.now();
		const body = { model: info.name, stream: true, stream_options: { include_usage: true }, max_tokens: options.maxTokens, seed: s.seed, temperature: s.temperature,
			top_k: s.topK, top_p: s.topP, min_p: s.minP, repetition_penalty: s.repeatPenalty,
			...chats ? { messages: prompt, logprobs: true, top_logprobs: options.top } : { prompt, logprobs: options.top },
			...options.continue && { continue_final_message: true, add_generation_prompt: false },
			...tools && { tools },
			...schema && { response_format: { type: 'json_schema', json_schema: { name: 'answer', schema, strict: true } } } };
		for (const [name, v] of Object.entries(body)) if (v === undefined || v === null) delete body[name];
		const said = { text: '', stop: 'end', tokens: 0, prompt: 0, kept: 0 };
		const calls = []; // as far as they are said
		let first = 0;
		try {
			const r = await reach(chats ? 'v1/chat/completions' : 'v1/completions', body, control.signal);
			said.receipt = r.headers.get('Karat-Receipt') || undefined;
			for await (const e of events(r)) {
				if (e.error) throw trouble('other', e.error.message);
				if (e.usage) Object.assign(said, { tokens: e.usage.completion_tokens, prompt: e.usage.prompt_tokens, kept: e.usage.prompt_tokens_details?.cached_tokens || 0 });
				const c = e.choices[0];
				if (!c) continue;
				if (c.finish_reason) said.stop = { stop: 'end', length: 'length' }[c.finish_reason] || c.finish_reason;
				const reasoning = c.delta?.reasoning_content, text = (chats ? c.delta?.content : c.text) || '';
				for (const { index, id, function: f } of c.delta?.tool_calls || []) {
					const call = calls[index] ||= { id, name: '', arguments: '' };
					call.name += f.name || '';
					call.arguments += f.arguments || '';
				}
				if (!reasoning && !text && !c.logprobs) continue;
				first ||= performance.now();
				said.text += text;
				tell({ text, reasoning, tokens: likely(c.logprobs, chats) });
			}
		} catch (e) {
			if (e.name !== 'AbortError' && !control.signal.aborted) throw e;
			said.stop = 'aborted';
		}
		for (const call of calls) tell({ call });
		const end = performance.now();
		return { ...said, promptSeconds: ((first || end) - began) / 1000, seconds: (end - (first || end)) / 1000 };
	},

	// verify sends the receipt as it was written: JavaScript's numbers are too short for some of its own.
	verify: ({ receipt }) => json('v1/receipts/verify', `{"model":${JSON.stringify(info.name)},"receipt":${receipt}}`),

	async stats() { return null; },
};

// likely are the tokens of a part of an answer, with the likeliest at their places.
function likely(logprobs, chats) {
	if (!logprobs) return [];
	if (chats) return logprobs.content.map(x => ({ text: x.token, logprob: x.logprob, top: x.top_logprobs.map(y => ({ text: y.token, logprob: y.logprob })) }));
	return logprobs.tokens.map((text, i) => ({ text, logprob: logprobs.token_logprobs[i], top: Object.entries(logprobs.top_logprobs?.[i] || {}).map(([text, logprob]) => ({ text, logprob })) }));
}

// served lists the server's models.
const served = async () => (await json('v1/models')).data;
