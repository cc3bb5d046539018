// A provider of models for the Vercel AI SDK (LanguageModelV4, EmbeddingModelV4): generateText({ model: karat(model), … }).

const base64 = data => typeof data === 'string' ? data : btoa(Array.from(data, x => String.fromCharCode(x)).join(''));

// contentOf makes OpenAI's content of a user's parts.
function contentOf(parts) {
	return parts.map(p => {
		if (p.type === 'text') return p;
		const { data } = p, kind = p.mediaType === 'image' || p.mediaType === 'image/*' ? 'image/png' : p.mediaType;
		if (!kind.startsWith('image')) throw new Error(`a file of ${p.mediaType} is not supported`);
		const url = data.type === 'data' ? `data:${kind};base64,${base64(data.data)}` : data.type === 'url' && data.url.protocol === 'data:' ? data.url.href : null;
		if (!url) throw new Error('a picture must come with its data');
		return { type: 'image_url', image_url: { url } };
	});
}

const outputOf = o => o.type === 'text' || o.type === 'error-text' ? o.value : o.type === 'execution-denied' ? o.reason ?? 'denied'
	: o.type === 'content' ? o.value.map(p => p.text ?? '').join('') : JSON.stringify(o.value);

// messagesOf makes OpenAI's messages of a prompt.
function messagesOf(prompt) {
	return prompt.flatMap(({ role, content }) => {
		if (role === 'system') return { role, content };
		if (role === 'user') return { role, content: contentOf(content) };
		if (role === 'tool') return content.filter(p => p.type === 'tool-result').map(p => ({ role, tool_call_id: p.toolCallId, name: p.toolName, content: outputOf(p.output) }));
		const said = type => content.filter(p => p.type === type).map(p => p.text).join(''), calls = content.filter(p => p.type === 'tool-call');
		return {
			role, content: said('text') || null, reasoning_content: said('reasoning') || undefined,
			tool_calls: calls.length ? calls.map(p => ({ id: p.toolCallId, type: 'function', function: { name: p.toolName, arguments: typeof p.input === 'string' ? p.input : JSON.stringify(p.input) } })) : undefined,
		};
	});
}

// bodyOf makes a request, and warnings of what it lacks.
function bodyOf(o) {
	const warnings = (o.tools ?? []).filter(t => t.type !== 'function').map(t => ({ type: 'unsupported', feature: `tool ${t.id}` }));
	const tools = (o.tools ?? []).filter(t => t.type === 'function').map(t => ({ type: 'function', function: { name: t.name, description: t.description, parameters: t.inputSchema, strict: t.strict } }));
	const c = o.toolChoice, form = o.responseFormat;
	return { warnings, body: {
		messages: messagesOf(o.prompt), max_tokens: o.maxOutputTokens, temperature: o.temperature, top_p: o.topP, top_k: o.topK, presence_penalty: o.presencePenalty,
		frequency_penalty: o.frequencyPenalty, stop: o.stopSequences, seed: o.seed, tools: tools.length ? tools : undefined,
		tool_choice: !c ? undefined : c.type === 'tool' ? { type: 'function', function: { name: c.toolName } } : c.type,
		response_format: form?.type !== 'json' ? undefined : form.schema ? { type: 'json_schema', json_schema: { name: form.name ?? 'answer', schema: form.schema } } : { type: 'json_object' },
		...o.providerOptions?.karat,
	} };
}

const FINISH = { stop: 'stop', length: 'length', tool_calls: 'tool-calls' };
const finishOf = raw => ({ unified: FINISH[raw] ?? 'other', raw });
const usageOf = u => ({
	inputTokens: { total: u.prompt_tokens, cacheRead: u.prompt_tokens_details.cached_tokens, noCache: u.prompt_tokens - u.prompt_tokens_details.cached_tokens, cacheWrite: undefined },
	outputTokens: { total: u.completion_tokens, text: undefined, reasoning: undefined },
});
const callOf = c => ({ type: 'tool-call', toolCallId: c.id, toolName: c.function.name, input: c.function.arguments });

class LanguageModel {
	specificationVersion = 'v4';
	provider = 'karat';
	supportedUrls = {};

	constructor(model) {
		this.model = model;
		this.modelId = model.info.name;
	}

	async doGenerate(options) {
		const { body, warnings } = bodyOf(options), r = await this.model.chat.completions.create(body, { signal: options.abortSignal });
		const { message, finish_reason: finish } = r.choices[0], content = [];
		if (message.reasoning_content) content.push({ type: 'reasoning', text: message.reasoning_content });
		if (message.content) content.push({ type: 'text', text: message.content });
		content.push(...(message.tool_calls ?? []).map(callOf));
		return { content, finishReason: finishOf(finish), usage: usageOf(r.usage), warnings, request: { body }, response: { id: r.id, timestamp: new Date(r.created * 1000), modelId: r.model } };
	}

	async doStream(options) {
		const { body, warnings } = bodyOf(options);
		const chunks = await this.model.chat.completions.create({ ...body, stream: true, stream_options: { include_usage: true } }, { signal: options.abortSignal });
		return { stream: ReadableStream.from ? ReadableStream.from(parts(chunks, warnings)) : streamOf(parts(chunks, warnings)), request: { body } };
	}
}

// streamOf is ReadableStream.from for browsers without.
const streamOf = from => new ReadableStream({
	async pull(out) {
		const { done, value } = await from.next();
		done ? out.close() : out.enqueue(value);
	},
	cancel: () => from.return(),
});

// parts yields a stream's parts: texts and reasoning have a beginning and an end.
async function* parts(chunks, warnings) {
	yield { type: 'stream-start', warnings };
	let open = '', n = 0, finish, usage, begun = false;
	const shut = () => open ? [{ type: open + '-end', id: open + n }] : [];
	try {
		for await (const c of chunks) {
			if (!begun) yield { type: 'response-metadata', id: c.id, timestamp: new Date(c.created * 1000), modelId: c.model };
			begun = true;
			usage = c.usage ?? usage;
			const x = c.choices[0];
			if (!x) continue;
			finish = x.finish_reason ?? finish;
			const kind = x.delta.reasoning_content ? 'reasoning' : x.delta.content ? 'text' : '';
			if ((kind || x.delta.tool_calls) && kind !== open) {
				yield* shut();
				open = kind;
				n++;
				if (kind) yield { type: kind + '-start', id: kind + n };
			}
			if (kind) yield { type: kind + '-delta', id: kind + n, delta: x.delta.reasoning_content || x.delta.content };
			for (const call of x.delta.tool_calls ?? []) yield callOf(call);
		}
		yield* shut();
		yield { type: 'finish', finishReason: finishOf(finish), usage: usageOf(usage) };
	} catch (error) {
		yield { type: 'error', error };
	}
}

class EmbeddingModel {
	specificationVersion = 'v4';
	provider = 'karat';
	maxEmbeddingsPerCall = 256;
	supportsParallelCalls = false;

	constructor(model) {
		this.model = model;
		this.modelId = model.info.name;
	}

	async doEmbed({ values, abortSignal, providerOptions }) {
		const r = await this.model.embeddings.create({ input: values, ...providerOptions?.karat }, { signal: abortSignal });
		return { embeddings: r.data.map(x => x.embedding), usage: { tokens: r.usage.total_tokens }, warnings: [] };
	}
}

// karat returns a loaded model as the AI SDK has language models; karat.embedding as it has embedding models.
export const karat = model => new LanguageModel(model);
karat.embedding = model => new EmbeddingModel(model);
