// The client of an engine's worker: operations by name, answers by number.
import { trouble } from './hub.js';

// Engine has a worker that make returns. Failed hears of a worker that broke down.
export class Engine {
	#calls = new Map(); // without an answer so far
	#last = 0;
	#worker;

	constructor(make, failed = () => {}) {
		this.make = make;
		this.failed = failed;
	}

	// start starts the worker anew.
	start() {
		this.end('restarted');
		this.#worker = this.make();
		this.#worker.onmessage = ({ data: { id, result, error, event } }) => {
			if (id === undefined) return this.#broke(error);
			const c = this.#calls.get(id);
			if (!c) return;
			if (event !== undefined) return c.event?.(event);
			this.#calls.delete(id);
			error ? c.reject(Object.assign(new Error(error.message), error)) : c.resolve(result);
		};
		this.#worker.onerror = e => this.#broke({ kind: 'crash', message: e.message || 'the worker did not start' });
	}

	#broke(error) {
		for (const c of this.#calls.values()) c.reject(Object.assign(new Error(error.message), error));
		this.#calls.clear();
		this.failed(error);
	}

	// end ends the worker, and all calls.
	end(why = 'the engine was closed') {
		this.#worker?.terminate();
		this.#worker = undefined;
		for (const c of this.#calls.values()) c.reject(trouble('aborted', why));
		this.#calls.clear();
	}

	// ask asks the worker, which starts with the first call. Event gets what the worker tells before its answer.
	ask(op, args, event) {
		if (!this.#worker) this.start();
		return new Promise((resolve, reject) => {
			this.#calls.set(++this.#last, { resolve, reject, event });
			this.#worker.postMessage({ id: this.#last, op, args });
		});
	}
}
