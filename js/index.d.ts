/** Language models in the browser and in Node, with provably right logits. */

/** Progress of a load: of the program, of the download, of the check of its SHA-256, or of the model's weights, in bytes. */
export interface Progress { what: 'program' | 'download' | 'check' | 'model'; have?: number; size?: number }

/** What the engine needs. */
export interface EngineOptions {
	/** Worker of the engine, or its address (a string, a URL, a TrustedScriptURL), or a function that starts it. By default the package's `entry.js`. */
	worker?: Worker | string | URL | object | (() => Worker);
	/** Address of the program. By default the package's `karat.wasm.gz`. */
	program?: string | URL;
	/** Threads that compute without a GPU: by default one for each processor, 16 at most. A page needs cross-origin isolation for more than one. */
	threads?: number;
	onProgress?: (progress: Progress) => void;
}

/** A model: exactly one of url, file, repo and id. */
export interface Source {
	/** Address of a GGUF file, or of its page at Hugging Face. Of a split model the address of one part is enough. */
	url?: string | URL;
	/** In a browser a File, in Node a path; of a split model all its parts. */
	file?: File | File[] | string | string[];
	/** `ORG/REPO` at Hugging Face, or `ORG/REPO:Q4_K_M`, or `ORG/REPO/file.gguf`. */
	repo?: string;
	/** The id of a kept model. */
	id?: string;
	/** SHA-256 that the file must have. Of a repository's file it is known. */
	sha256?: string;
}

export interface LoadOptions extends Source, EngineOptions {
	/** By default the GPU where there is a real one, else the processor. */
	backend?: 'webgpu' | 'cpu';
	/** Type of keys and values. */
	kv?: 'f16' | 'f32' | 'q8_0';
	/** Most tokens of a conversation. */
	context?: number;
	signal?: AbortSignal;
}

/** Loads a model. A download that broke goes on where it stopped, its SHA-256 is checked, and it is kept. */
export declare function load(source: LoadOptions, options?: EngineOptions): Promise<Model>;

export interface KeptModel { id: string; name: string; url: string; size: number; have: number; done: boolean; sha256?: string }

/** Lists the models that are kept: in the browser's private files, in Node in a folder. */
export declare function kept(options?: EngineOptions): Promise<KeptModel[]>;

/** Removes a kept model. */
export declare function remove(id: string, options?: EngineOptions): Promise<unknown>;

export interface RepoFile { name: string; size: number; url: string; sha256: string }

/** Lists the GGUF files of a repository at Hugging Face. */
export declare function ggufFiles(repo: string): Promise<RepoFile[]>;

/** An error of the package, and its kind: request, network, hash, quota, store, file, architecture, memory, full, template, lost, ... */
export interface KaratError extends Error { kind: string }

export interface ModelInfo {
	name: string; architecture: string; format: string; bytes: number; size: number; vocab: number; context: number; maxContext: number;
	template: string; backend: 'cpu' | 'webgpu'; sees: boolean; notes: string[]; sha256?: string; version: string;
	sampling: { temperature: number; topK: number; topP: number; minP: number; [name: string]: unknown };
}

export interface ToolCall { id: string; type: 'function'; function: { name: string; arguments: string } }
export type ContentPart = { type: 'text'; text: string } | { type: 'image_url'; image_url: { url: string } };
export type Message =
	| { role: 'system' | 'developer' | 'user'; content: string | ContentPart[]; name?: string }
	| { role: 'assistant'; content?: string | ContentPart[] | null; reasoning_content?: string; tool_calls?: ToolCall[]; name?: string; refusal?: null }
	| { role: 'tool'; content: string | ContentPart[]; tool_call_id?: string; name?: string };
export interface Tool { type: 'function'; function: { name: string; description?: string; parameters?: object; strict?: boolean } }
export type ResponseFormat =
	| { type: 'text' } | { type: 'json_object' }
	| { type: 'json_schema'; json_schema: { name?: string; schema?: object; strict?: boolean } }
	| { type: 'regex'; regex: string } | { type: 'grammar'; grammar: string } | { type: 'lark'; lark: string };

interface Sampling {
	temperature?: number; top_p?: number; top_k?: number; min_p?: number; seed?: number;
	presence_penalty?: number; frequency_penalty?: number; repetition_penalty?: number; repeat_last_n?: number;
	max_tokens?: number; max_completion_tokens?: number; stop?: string | string[] | null;
	model?: string; n?: 1; response_format?: ResponseFormat;
	/** Asks for a receipt of the answer, which `verify` checks. */
	receipt?: boolean;
	/** Hears how many tokens of the prompt are read, four times a second. */
	onPrompt?: (progress: { have: number; size: number }) => void;
	stream_options?: { include_usage?: boolean } | null;
}

export interface ChatBody extends Sampling {
	messages: Message[];
	logprobs?: boolean; top_logprobs?: number;
	tools?: Tool[];
	tool_choice?: 'auto' | 'none' | 'required' | { type: 'function'; function: { name: string } };
	parallel_tool_calls?: boolean;
	chat_template_kwargs?: Record<string, unknown>;
	continue_final_message?: boolean;
}
export interface CompletionBody extends Sampling { prompt: string; logprobs?: number }
export interface RequestOptions { signal?: AbortSignal }

export interface TokenLogprob { token: string; logprob: number; bytes: number[]; top_logprobs: { token: string; logprob: number; bytes: number[] }[] }
export interface Usage { prompt_tokens: number; completion_tokens: number; total_tokens: number; prompt_tokens_details: { cached_tokens: number } }
export type FinishReason = 'stop' | 'length' | 'tool_calls';
interface Head { id: string; created: number; model: string; usage?: Usage; receipt?: string }

export interface ChatCompletion extends Head {
	object: 'chat.completion';
	choices: { index: 0; finish_reason: FinishReason; logprobs: { content: TokenLogprob[]; refusal: null } | null;
		message: { role: 'assistant'; content: string | null; refusal: null; reasoning_content?: string; tool_calls?: ToolCall[] } }[];
	usage: Usage;
}
export interface ChatCompletionChunk extends Head {
	object: 'chat.completion.chunk';
	choices: { index: 0; finish_reason: FinishReason | null; logprobs: { content: TokenLogprob[]; refusal: null } | null;
		delta: { role?: 'assistant'; content?: string; reasoning_content?: string; tool_calls?: (ToolCall & { index: number })[] } }[];
}
interface TextLogprobs { tokens: string[]; token_logprobs: number[]; top_logprobs: Record<string, number>[] }
export interface Completion extends Head {
	object: 'text_completion';
	choices: { index: 0; text: string; finish_reason: FinishReason | null; logprobs: TextLogprobs | null }[];
}

/** An answer as it comes. A loop that is left early ends the answer. */
export interface Stream<T> extends AsyncIterable<T> { controller: AbortController; abort(): void }

interface Create<Body, Whole, Chunk> {
	(body: Body & { stream: true }, options?: RequestOptions): Promise<Stream<Chunk>>;
	(body: Body & { stream?: false | null }, options?: RequestOptions): Promise<Whole>;
	(body: Body & { stream?: boolean | null }, options?: RequestOptions): Promise<Whole | Stream<Chunk>>;
}

export interface Token { id: number; text: string }
export interface RecordFile { url: string; sha256?: string }
export interface Proof { inside: boolean; all: Record<string, number>; prompts: Record<string, unknown>[]; taps?: Record<string, unknown>[] }
export interface Verdict { verified: boolean; findings: { kind: string; at: number; text: string }[]; tokens: number; signed: boolean; draws: boolean; distance: number }

/** A loaded model. It answers one request at a time; others wait. */
export interface Model {
	readonly info: ModelInfo;
	readonly chat: { completions: { create: Create<ChatBody, ChatCompletion, ChatCompletionChunk> } };
	readonly completions: { create: Create<CompletionBody, Completion, Completion> };
	readonly embeddings: { create(body: { input: string | string[]; dimensions?: number; encoding_format?: 'float' | 'base64'; model?: string;
		/** For a model that is not made for vectors. */
		pooling?: 'mean' | 'cls' | 'last' }, options?: RequestOptions): Promise<{
		object: 'list'; model: string; data: { object: 'embedding'; index: number; embedding: number[] | string }[]; usage: { prompt_tokens: number; total_tokens: number } }> };
	tokenize(text: string): Promise<Token[]>;
	/** The prompt that the chat template makes of messages. */
	render(body: { messages: Message[]; tools?: Tool[]; chat_template_kwargs?: Record<string, unknown> }): Promise<{ text: string; tokens: Token[] }>;
	/** Compares the logits here with a record's, or else with the model's own in float64. */
	prove(options?: { record?: { json: RecordFile; tensors: RecordFile }; signal?: AbortSignal; onProgress?: (progress: { done: number; total: number; text: string }) => void }): Promise<Proof>;
	/** Computes the answer of a receipt again. */
	verify(receipt: string | object, options?: RequestOptions): Promise<Verdict>;
	stats(): Promise<{ wasmBytes: number; heapBytes: number; gpuBytes: number }>;
	/** Ends the engine, and frees its memory. */
	close(): void;
}
