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

	let bytes = 0; // of the buffers of all devices
	let times = null; // of kernels while they are taken: seconds and dispatches by label
	const most = 2048; // dispatches of a run that are timed

	class Device {
		constructor(device) {
			this.device = device;
			this.bytes = 0;
			this.objects = []; // buffers, pipelines and groups, by the program's numbers
			this.lost = ''; // why nothing runs any more
			this.gone = device.lost.then(({reason, message}) => {
				this.lost ||= message || reason || 'no reason is given';
				throw new Error(this.lost);
			});
			this.gone.catch(() => {});
			this.late = []; // checks that a run waits for
			this.problem = '';
			this.labels = []; // of the dispatches of a run that are timed
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

		// told is p's problem, or ''. That of a device which is being lost is told before the loss.
		// Where many are made at a time, who waits for the first hears of the loss by that one.
		told(p) {
			const problem = this.tell(p);
			problem.catch(() => {});
			return problem;
		}

		async tell(p) {
			const problem = await this.wait(p);
			if (problem) await this.wait(new Promise((go) => { setTimeout(go, 50); }));
			return problem;
		}

		// buffer makes a buffer, and promises what is wrong with it, or ''.
		buffer(id, label, size) {
			const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
			const [made, wrong] = this.scope(['validation', 'out-of-memory'], () => this.device.createBuffer({label, size, usage}));
			this.objects[id] = made;
			if (made) this.count(size);
			return this.told(wrong);
		}

		// count adds to the bytes that are in use.
		count(n) { this.bytes += n, bytes += n; }

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
			const problem = await this.told(wrong);
			if (problem) {
				const {messages} = made ? await this.wait(made.module.getCompilationInfo()) : {messages: []};
				const m = messages.find(({type}) => type === 'error');
				return m ? `line ${m.lineNum}: ${m.message}` : problem;
			}
			const descriptor = {label, layout: made.all, compute: {module: made.module, entryPoint: 'main'}};
			const o = this.objects[id] = {
				layout: made.layout, label,
				compile: () => this.device.createComputePipelineAsync(descriptor).then((p) => { o.pipeline = p; return ''; }, (e) => e.message),
			};
			return '';
		}

		// ready has the driver compile a pipeline, once, and promises what is wrong, or ''.
		ready(id) {
			const o = this.objects[id];
			return this.told(o.compiled ||= o.compile());
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
			const o = this.objects[id];
			if (o?.destroy) this.count(-o.size), o.destroy();
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
			this.read = read, this.stamps = stamps, this.stamped = 0, this.labels.length = 0;
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

		// timed begins a pass for a dispatch alone, whose time is taken, if there is room for that.
		timed(label) {
			if (!this.marks) {
				this.marks = this.device.createQuerySet({label: 'marks', type: 'timestamp', count: 2 * most});
				this.marked = [GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC, GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST].map((usage) => (
					this.device.createBuffer({label: 'marks', size: 16 * most, usage})));
			}
			const i = 2 * this.labels.length, encoder = this.encode();
			if (i === 2 * most) return;
			this.labels.push(label);
			this.pass = encoder.beginComputePass({timestampWrites: {querySet: this.marks, beginningOfPassWriteIndex: i, endOfPassWriteIndex: i + 1}});
		}

		// sum adds what a run's kernels took.
		async sum() {
			const labels = this.labels.splice(0), n = 16 * labels.length, at = this.marked[1];
			await this.wait(at.mapAsync(GPUMapMode.READ, 0, n));
			const ticks = new BigUint64Array(at.getMappedRange(0, n));
			labels.forEach((label, i) => {
				const o = times?.get(label) || {seconds: 0, dispatches: 0};
				times?.set(label, {seconds: o.seconds + Number(ticks[2 * i + 1] - ticks[2 * i]) / 1e9, dispatches: o.dispatches + 1});
			});
			at.unmap();
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
					if (times && this.device.features.has('timestamp-query')) this.timed(objects[w[i + 1]].label);
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
			if (this.labels.length) {
				this.encode().resolveQuerySet(this.marks, 0, 2 * this.labels.length, this.marked[0], 0);
				this.encode().copyBufferToBuffer(this.marked[0], 0, this.marked[1], 0, 16 * this.labels.length);
			}
			this.submit();
			const size = this.read + 8 * this.stamps;
			const errors = [0, 1, 2].map(() => this.device.popErrorScope().then((e) => e?.message, (e) => e.message));
			const done = size ? this.back.mapAsync(GPUMapMode.READ, 0, size) : this.device.queue.onSubmittedWorkDone();
			const failed = done.then(() => '', (e) => e.message);
			const late = this.late.splice(0);
			const problem = await this.told(Promise.all([...errors, failed, ...late]).then((all) => this.problem || all.find(Boolean)));
			this.problem = '';
			if (problem) {
				this.back?.unmap();
				throw new Error(problem);
			}
			if (this.labels.length) await this.sum();
			return size ? new Uint8Array(this.back.getMappedRange(0, size)) : null;
		}

		// taken gives back what end promised.
		taken() { this.back.unmap(); }

		destroy() {
			this.count(-this.bytes);
			this.device.destroy();
		}
	}

	return {
		// bytes is what the buffers of all devices take.
		bytes: () => bytes,

		// time has kernels timed from now on, or no more; it gives what those so far took, by label.
		time: (on) => {
			const so = times;
			times = on ? new Map() : null;
			return [...so || []].map(([name, o]) => ({name, ...o})).sort((a, b) => b.seconds - a.seconds);
		},

		describe: async () => describe(await find()),
		open: async () => {
			const adapter = await find();
			const features = ['timestamp-query'].filter((f) => adapter.features.has(f));
			const {maxComputeInvocationsPerWorkgroup} = adapter.limits;
			return new Device(await adapter.requestDevice({label: 'karat', requiredFeatures: features, requiredLimits: {maxComputeInvocationsPerWorkgroup}}));
		},
	};
})();
