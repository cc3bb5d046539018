// What all clients ask, and what they are to get.
export const model = 'demo';
export const caller = 'tiny-llama'; // whose template has tools; it knows nothing, so that calls are forced
export const vectors = 'embeddinggemma';
export const question = 'What is the capital of Egypt?';
export const answer = 'The capital of Egypt is Cairo.';
export const code = 'func main() {';
export const continued = '\n\tGenerate()\n\tDefault';
export const weather = { type: 'object', additionalProperties: false, required: ['city'], properties: { city: { enum: ['Oslo', 'Cairo'] } } };
export const noVectors = /do not say how to make vectors/;
export const cities = ['Oslo', 'Cairo'];
