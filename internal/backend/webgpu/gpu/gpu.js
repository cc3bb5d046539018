// WebGPU for Karat's program in a browser or in Node: its package gpu records what
// is to be done as words, and replays them here with one call.
'use strict';
globalThis.karatGPU = (() => {
	// The words of a command: its number, and what follows.
	const WRITE = 0; // buffer, to, at in data, size
	const COPY = 1; // buffer, to, buffer, from, size
	const DISPATCH = 2; // pipeline, group, x, y, z
	const READ = 3; // buffer, from, to in the readback, size
	const STAMP = 4;

	const find = async () => {
		const adapter = await globalThis.navigator?.gpu?.requestAdapter({powerPreference: 'high-performance'});
		if (!adapter) throw new Error(globalThis.navigator?.gpu ? 'the browser has WebGPU, but no adapter for it' : 'the browser has no WebGPU');
		return adapter;
	};

	const describe = ({info = {}, limits, features}) => ({
		name: [...new Set([info.vendor, info.architecture, info.device, info.description])].filter(Boolean).join(' ') || 'unnamed',
		fallback: !!info.isFallbackAdapter,
		timestamps: features.has('timestamp-query'),
		buffer: limits.maxBufferSize, binding: limits.maxStorageBufferBindingSize, bindings: limits.maxStorageBuffersPerShaderStage,
		alignment: limits.minStorageBufferOffsetAlignment, groups: limits.maxComputeWorkgroupsPerDimension,
		invocations: limits.maxComputeInvocationsPerWorkgroup, workgroupBytes: limits.maxComputeWorkgroupStorageSize,
	});

	class Device {
		constructor(device) {
			this.device = device;
			this.objects = []; // buffers, pipelines and groups, by the program's numbers
			this.lost = ''; // why nothing runs any more
			this.gone = device.lost.then(({reason, message}) => {
				this.lost ||= message || reason || 'no reason is given';
				throw new Error(this.lost);
			});
			this.gone.catch(() => {});
			this.late = []; // checks that a run waits for
			this.problem = '';
			device.onuncapturederror = ({error}) => { this.problem ||= error.message; };
		}

		// scope is what f makes, and a promise of what is wrong with it.
		scope(filters, f) {
			for (const filter of filters) this.device.pushErrorScope(filter);
			let made, thrown;
			try { made = f(); } catch (e) { thrown = e.message; }
			const errors = filters.map(() => this.device.popErrorScope().then((e) => e?.message, (e) => e.message));
			return [made, Promise.all(errors).then((all) => thrown || all.find(Boolean) || '')];
		}

		// wait is p's value, unless the device is lost before.
		wait(p) { return Promise.race([p, this.gone]); }

		// buffer makes a buffer, and promises what is wrong with it, or ''.
		buffer(id, label, size) {
			const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
			const [made, wrong] = this.scope(['validation', 'out-of-memory'], () => this.device.createBuffer({label, size, usage}));
			this.objects[id] = made;
			return this.wait(wrong);
		}

		// pipeline makes a shader, and promises what is wrong with its text, or ''. access
		// has a number for each binding.
		async pipeline(id, label, code, access) {
			const types = ['uniform', 'read-only-storage', 'storage'];
			const [made, wrong] = this.scope(['validation', 'out-of-memory', 'internal'], () => {
				const module = this.device.createShaderModule({label, code});
				const layout = this.device.createBindGroupLayout({label, entries: [...access].map((a, binding) => (
					{binding, visibility: GPUShaderStage.COMPUTE, buffer: {type: types[a]}}))});
				return {module, layout, all: this.device.createPipelineLayout({label, bindGroupLayouts: [layout]})};
			});
			const problem = await this.wait(wrong);
			if (problem) {
				const {messages} = made ? await this.wait(made.module.getCompilationInfo()) : {messages: []};
				const m = messages.find(({type}) => type === 'error');
				return m ? `line ${m.lineNum}: ${m.message}` : problem;
			}
			const descriptor = {label, layout: made.all, compute: {module: made.module, entryPoint: 'main'}};
			const o = this.objects[id] = {
				layout: made.layout,
				compile: () => this.device.createComputePipelineAsync(descriptor).then((p) => { o.pipeline = p; return ''; }, (e) => e.message),
			};
			return '';
		}

		// ready has the driver compile a pipeline, once, and promises what is wrong, or ''.
		ready(id) {
			const o = this.objects[id];
			return this.wait(o.compiled ||= o.compile());
		}

		// group gives a pipeline's bindings their buffers: buffer, at and size of each.
		group(id, label, pipeline, ranges) {
			const entries = [];
			for (let i = 0; i < ranges.length; i += 3) {
				entries.push({binding: i / 3, resource: {buffer: this.objects[ranges[i]], offset: ranges[i + 1], size: ranges[i + 2]}});
			}
			const [made, wrong] = this.scope(['validation'], () => this.device.createBindGroup({label, layout: this.objects[pipeline].layout, entries}));
			this.objects[id] = made;
			this.late.push(wrong.then((e) => { if (e) this.problem ||= `${label}: ${e}`; }));
		}

		release(id) {
			this.objects[id]?.destroy?.();
			delete this.objects[id];
		}

		// room is memory of so many bytes for what is written.
		room(size) { return this.data = new Uint8Array(size); }

		// script is memory for so many words of commands, or more.
		script(words) {
			if (!(this.words?.length >= words)) this.words = new Uint32Array(words);
			return new Uint8Array(this.words.buffer);
		}

		// begin begins a run that reads and stamps so much.
		begin(read, stamps) {
			const size = read + 8 * stamps;
			for (const filter of ['validation', 'out-of-memory', 'internal']) this.device.pushErrorScope(filter);
			this.read = read, this.stamps = stamps, this.stamped = 0;
			if (size && !(this.back?.size >= size)) {
				this.back?.destroy();
				this.back = this.device.createBuffer({label: 'readback', size: Math.max(1 << 16, 2 ** Math.ceil(Math.log2(size))), usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST});
			}
			if (stamps && !(this.queries?.count >= stamps)) {
				this.queries?.destroy(), this.ticks?.destroy();
				this.queries = this.device.createQuerySet({label: 'stamps', type: 'timestamp', count: stamps});
				this.ticks = this.device.createBuffer({label: 'stamps', size: 8 * stamps, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC});
			}
		}

		// encode is the encoder that commands go to, outside of a pass.
		encode() {
			this.pass?.end();
			this.pass = null;
			return this.encoder ||= this.device.createCommandEncoder({label: 'list'});
		}

		submit() {
			if (!this.encoder) return;
			this.device.queue.submit([this.encode().finish()]);
			this.encoder = null;
		}

		// replay does the first n words. What is wrong with them is told by end.
		replay(n) {
			try { this.commands(n); } catch (e) { this.problem ||= e.message; }
		}

		commands(n) {
			const {words: w, objects} = this;
			for (let i = 0; i < n;) {
				switch (w[i]) {
				case WRITE: // in the queue's order: what was encoded before it goes first
					this.submit();
					this.device.queue.writeBuffer(objects[w[i + 1]], w[i + 2], this.data, w[i + 3], w[i + 4]);
					i += 5;
					break;
				case COPY:
					this.encode().copyBufferToBuffer(objects[w[i + 3]], w[i + 4], objects[w[i + 1]], w[i + 2], w[i + 5]);
					i += 6;
					break;
				case DISPATCH:
					this.pass ||= this.encode().beginComputePass();
					this.pass.setPipeline(objects[w[i + 1]].pipeline);
					this.pass.setBindGroup(0, objects[w[i + 2]]);
					this.pass.dispatchWorkgroups(w[i + 3], w[i + 4], w[i + 5]);
					i += 6;
					break;
				case READ:
					this.encode().copyBufferToBuffer(objects[w[i + 1]], w[i + 2], this.back, w[i + 3], w[i + 4]);
					i += 5;
					break;
				case STAMP:
					this.pass = this.encode().beginComputePass({timestampWrites: {querySet: this.queries, beginningOfPassWriteIndex: this.stamped++}});
					i++;
				}
			}
		}

		// end ends a run, and promises what was read, or what is wrong.
		async end() {
			if (this.stamps) {
				this.encode().resolveQuerySet(this.queries, 0, this.stamps, this.ticks, 0);
				this.encode().copyBufferToBuffer(this.ticks, 0, this.back, this.read, 8 * this.stamps);
			}
			this.submit();
			const size = this.read + 8 * this.stamps;
			const errors = [0, 1, 2].map(() => this.device.popErrorScope().then((e) => e?.message, (e) => e.message));
			const done = size ? this.back.mapAsync(GPUMapMode.READ, 0, size) : this.device.queue.onSubmittedWorkDone();
			const failed = done.then(() => '', (e) => e.message);
			const late = this.late.splice(0);
			const wrong = await this.wait(Promise.all([...errors, failed, ...late]));
			const problem = this.problem || wrong.find(Boolean);
			this.problem = '';
			if (problem) {
				this.back?.unmap();
				throw new Error(problem);
			}
			return size ? new Uint8Array(this.back.getMappedRange(0, size)) : null;
		}

		// taken gives back what end promised.
		taken() { this.back.unmap(); }

		destroy() { this.device.destroy(); }
	}

	return {
		describe: async () => describe(await find()),
		open: async () => {
			const adapter = await find();
			const features = ['timestamp-query'].filter((f) => adapter.features.has(f));
			return new Device(await adapter.requestDevice({label: 'karat', requiredFeatures: features}));
		},
	};
})();
