import type { EmbeddingModelV4, LanguageModelV4 } from '@ai-sdk/provider';
import type { Model } from './index.js';

/** A loaded model as a language model of the Vercel AI SDK: `generateText({ model: karat(model), prompt })`. */
export declare const karat: {
	(model: Model): LanguageModelV4;
	/** A loaded model as an embedding model: `embed({ model: karat.embedding(model), value })`. */
	embedding(model: Model): EmbeddingModelV4;
};
