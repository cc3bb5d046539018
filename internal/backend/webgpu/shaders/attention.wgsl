{{$wide := eq (mod .Dim 8) 0 -}}
{{$words := pick .F16 (div .Dim 2) .Dim -}}
{{$room := max .Dim (max (mul 4 .ValueDim) (mul 64 (div .Dim .Chunk))) -}}
// attention lets a head of a row attend to its sequence: Attention. A workgroup takes one
// head of one row{{if .Part}}, and of its pages one: what that gives is joined by join{{end}}.
{{- if .Turn}}
// The step's one row is turned as rope does, and its keys and values are stored as store
// does: of the heads that share them the first one's workgroup writes them, and nobody reads
// them there, since workgroups do not wait for each other.
{{- end}}
{{template "seen.wgsl" .}}
{{- $chunks := div .Dim .Chunk}}
{{- $cs := ceil .ValueDim 64}}
{{- $early := and .Turn (and .F16 (and (eq .Groups 4) (and (eq .Dim .ValueDim) (or (eq .Dim 64) (eq .Dim 128)))))}}
var<workgroup> query: array<f32, {{.Dim}}>;
var<workgroup> weights: array<f32, 64>;
var<workgroup> tops: array<f32, 4>; // of 16 positions each
var<workgroup> totals: array<f32, 4>;
{{- if .Chosen}}
var<workgroup> places: array<u32, 64>; // slots of the block's positions
{{- end}}
var<workgroup> room: array<f32, {{$room}}>; // parts of scores, then of what values give

{{- if .Head.Quads}}

{{template "rms.wgsl" .Head}}
fn size() -> u32 {
	return DIM;
}
{{template "turn" .}}
{{- else if .Turn}}
fn size() -> u32 {
	return DIM;
}
{{template "turn" .}}
{{template "own" .}}
{{- end}}

// score is what {{.Chunk}} elements from d on give to the product of the query and the key
// whose first element is number at{{if .Turn}}, or which is the row's own{{end}}.
fn score(at: u32, d: u32{{if .Turn}}, mine: bool{{end}}) -> f32 {
	var s = 0.0;
{{- if and $wide .F16}}
{{- range $i := (div .Chunk 8)}}
{{- if $.Turn}}
	var k{{$i}} = vec4u(0u);
	if (mine) {
		k{{$i}} = own_key((d >> 3u) + {{$i}}u);
	} else {
		k{{$i}} = keys[((at + d) >> 3u) + {{$i}}u];
	}
{{- else}}
	let k{{$i}} = keys[((at + d) >> 3u) + {{$i}}u];
{{- end}}
{{- end}}
{{- template "scored" .}}
{{- else if $wide}}
	for (var i = 0u; i < {{.Chunk}}u; i += 4u) {
{{- if .Turn}}
		var word = vec4u(0u);
		if (mine) {
			word = own_key((d + i) >> 2u);
		} else {
			word = keys[(at + d + i) >> 2u];
		}
		let k = bitcast<vec4<f32>>(word);
{{- else}}
		let k = bitcast<vec4<f32>>(keys[(at + d + i) >> 2u]);
{{- end}}
		s = fma(query[d + i + 1u], k.y, fma(query[d + i], k.x, s));
		s = fma(query[d + i + 3u], k.w, fma(query[d + i + 2u], k.z, s));
	}
{{- else}}
	for (var i = d; i < d + {{.Chunk}}u; i++) {
		s = fma(query[i], {{if .F16}}halves(keys[(at + i) >> 1u])[(at + i) & 1u]{{else}}bitcast<f32>(keys[at + i]){{end}}, s);
	}
{{- end}}
	return s;
}

{{- if .Narrow}}
// score8 is score for 32 elements from d on of position j of a page in 8 bits, keys of width elements from word base on.
fn score8(base: u32, j: u32, width: u32, head: u32, d: u32) -> f32 {
	let block = (head + d) / 32u;
	let scale = halves(read_key(base + 16u * width + block * 32u + j / 2u))[j & 1u];
	let at = base + (j * width + head + d) / 4u;
	var s = 0.0;
	for (var i = 0u; i < 8u; i++) {
		let k = octets(read_key(at + i)) * scale;
		s = fma(query[d + 4u * i + 3u], k.w, fma(query[d + 4u * i + 2u], k.z, fma(query[d + 4u * i + 1u], k.y, fma(query[d + 4u * i], k.x, s))));
	}
	return s;
}

fn read_key(i: u32) -> u32 {
	return {{if $wide}}keys[i >> 2u][i & 3u]{{else}}keys[i]{{end}};
}

// octets are the four integers of a word.
fn octets(word: u32) -> vec4f {
	let w = bitcast<i32>(word);
	return vec4f(vec4i(w << 24u, w << 16u, w << 8u, w) >> vec4u(24u));
}

// value8 is element e of position j of a page in 8 bits, from word base on.
fn value8(base: u32, j: u32, wide: u32, e: u32) -> f32 {
{{- if .Latent}}
	let scale = halves(values[base + 16u * wide + e / 32u * 32u + j / 2u])[j & 1u];
{{- else}}
	let scale = halves(values[base + 16u * wide + j / 32u * (wide / 2u) + e / 2u])[e & 1u];
{{- end}}
	return octets(values[base + (j * wide + e) / 4u])[e & 3u] * scale;
}

fn seen_value(old: bool, unit: u32, j: u32, wide: u32, e: u32) -> f32 {
	if (old) {
		return value8(unit * 17u * wide, j, wide, e);
	}
	return val(unit * 34u * wide + j * wide + e);
}

// spun is element d of runs of size elements in room, turned by a Hadamard matrix.
fn spun(d: u32, size: u32) -> f32 {
	let first = d / size * size;
	var s = 0.0;
	for (var j = 0u; j < size; j++) {
		s += select(room[first + j], -room[first + j], (countOneBits(j & (d % size)) & 1u) == 1u);
	}
	return s / sqrt(f32(size));
}
{{- end}}

fn val(i: u32) -> f32 {
	return {{if .F16}}from_half((values[i >> 1u] >> ((i & 1u) * 16u)) & 0xffffu){{else}}bitcast<f32>(values[i]){{end}};
}
{{- if .Turn}}

// own_val is element d of the row's own value.
fn own_val(d: u32) -> f32 {
	return {{if .F16}}from_half((own_values[d >> 1u] >> ((d & 1u) * 16u)) & 0xffffu){{else}}bitcast<f32>(own_values[d]){{end}};
}
{{- end}}

@compute @workgroup_size({{mul 64 .Groups}})
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) t: u32) {
	let i = wg.y * GX + wg.x;
	if (i >= step.rows * p.heads) {
		return;
	}
	let lane = t % 64u;
{{- if .Turn}}
	let row = 0u;
	let shared_by = i * p.kv_heads / p.heads; // number of the head of keys
{{- else}}
	let row = i / p.heads;
	let shared_by = i % p.heads * p.kv_heads / p.heads;
{{- end}}
	let head = shared_by * DIM;
	let width = {{if .F16}}(p.kv_heads * DIM + 1u) / 2u * 2u{{else}}p.kv_heads * DIM{{end}};
	let part = shared_by * VALUE_STEP;
	let wide = {{if .F16}}(p.kv_heads * VALUE_STEP + 1u) / 2u * 2u{{else}}p.kv_heads * VALUE_STEP{{end}};
	let pages = table[4u * row + 1u];
	let from_page = table[4u * row + 2u];
	let pos = table[4u * row + 3u];
{{- if .Chosen}}
	let first = 0u;
	let high = clamp(pos + 1u - min({{.Skip}}u, pos), 1u, p.choices) - 1u;
{{- else}}
	let first = bounds(row).x;
	let high = bounds(row).y;
{{- end}}
{{- if .Part}}
	let b = first / PAGE + wg.z;
	if (b > high / PAGE) {
		return;
	}
{{- end}}
{{- if $early}}
	var page = {{if .Part}}b{{else}}first / PAGE{{end}};
	var slot = 0u;
{{- range $i := (div .Chunk 8)}}
	var k{{$i}} = vec4u(0u);
{{- end}}
{{- range $e := 16}}
	var v{{$e}} = 0u;
{{- end}}
{{- template "fetch" .}}
{{- end}}
{{- if .Head.Quads}}
	var squares = 0.0;
{{- range $k := (ceil .Head.Quads .Head.Threads)}}
	let i{{$k}} = t + {{mul $k $.Head.Threads}}u;
	let in{{$k}} = t < {{$.Head.Threads}}u && i{{$k}} < {{$.Head.Quads}}u;
	let at{{$k}} = i * DIM + 4u * i{{$k}};
	var x{{$k}} = vec4f(0.0);
	var w{{$k}} = vec4f(0.0);
	if (in{{$k}}) {
		x{{$k}} = vec4f(q[at{{$k}}], q[at{{$k}} + 1u], q[at{{$k}} + 2u], q[at{{$k}} + 3u]);
		w{{$k}} = w[i{{$k}}];
	}
	squares = square(x{{$k}}, squares);
{{- end}}
	let r = rms(t, squares, DIM, p.eps);
{{- range $k := (ceil .Head.Quads .Head.Threads)}}
	if (in{{$k}}) {
		let e = x{{$k}} * r * (vec4f(p.offset) + w{{$k}});
		room[4u * i{{$k}}] = e.x;
		room[4u * i{{$k}} + 1u] = e.y;
		room[4u * i{{$k}} + 2u] = e.z;
		room[4u * i{{$k}} + 3u] = e.w;
	}
{{- end}}
	workgroupBarrier();
	for (var d = t; d < DIM; d += {{mul 64 .Groups}}u) {
		query[d] = turn(row, d, room[d], room[other(d)]) * p.scale;
	}
{{- else if .Turn}}
	let stored = table[4u * row];
	for (var e = t; e < DIM + {{mul 2 $words}}u; e += {{mul 64 .Groups}}u) {
		if (e < DIM) {
			query[e] = turn(row, e, q[i * DIM + e], q[i * DIM + other(e)]) * p.scale;
		} else if (e < DIM + {{$words}}u) {
			own_keys[e - DIM] = turned(row, head, e - DIM);
		} else {
			own_values[e - DIM - {{$words}}u] = kept(head, e - DIM - {{$words}}u);
		}
	}
	workgroupBarrier();
	if ({{if .Part}}b == pos / PAGE && {{end}}i * p.kv_heads == shared_by * p.heads) {
		for (var e = t; e < {{div $words 4}}u; e += {{mul 64 .Groups}}u) {
			keys[(stored * width + head) / {{div (mul 4 .Dim) $words}}u + e] = own_key(e);
		}
		for (var e = t; e < {{$words}}u; e += {{mul 64 .Groups}}u) {
			values[(stored * width + head) / {{div .Dim $words}}u + e] = own_values[e];
		}
	}
{{- else if .Narrow}}
	for (var d = t; d < DIM; d += {{mul 64 .Groups}}u) {
		room[d] = q[i * DIM + d];
	}
	workgroupBarrier();
	for (var d = t; d < DIM; d += {{mul 64 .Groups}}u) {
		query[d] = spun(d, {{.Spin}}u) * p.scale;
	}
{{- else}}
	for (var d = t; d < DIM; d += {{mul 64 .Groups}}u) {
		query[d] = q[i * DIM + d] * p.scale;
	}
{{- end}}
{{- if not .Part}}
{{- range $c := (ceil .ValueDim (mul 64 .Groups))}}
	var acc{{$c}} = 0.0;
{{- end}}
	var top = NONE;
	var sum = 0.0;
	for (var b = first / PAGE; b <= high / PAGE; b++) {
{{- end}}
		workgroupBarrier();
{{- if .Narrow}}
		let old = b < (pos - min(pos, {{.Recent}}u - 1u)) / PAGE && (b > 0u || p.window > 0u);
		let unit = table[pages + 2u * (b - from_page) + u32(!old)];
{{- else if .Chosen}}
		if (t < 64u) {
			let at = min(u32(max(chosen[row * p.choices + min(b * PAGE + t, high)], 0.0)), pos);
			places[t] = table[pages + at / PAGE - from_page] * PAGE + at % PAGE;
		}
		workgroupBarrier();
{{- else if not $early}}
		let slot = table[pages + b - from_page] * PAGE;
{{- end}}
		let begin = max(first, b * PAGE) - b * PAGE;
		let end = min(high - b * PAGE + 1u, PAGE);
		let seen = lane >= begin && lane < end;
{{- if $early}}
		if (seen && t < {{mul 64 $chunks}}u) {
			let d = t / 64u * {{.Chunk}}u;
			if (b * PAGE + lane == pos) {
{{- range $i := (div .Chunk 8)}}
				k{{$i}} = own_key((d >> 3u) + {{$i}}u);
{{- end}}
			}
			var s = 0.0;
{{- template "scored" .}}
			room[t] = s;
		}
{{- else}}
		if (seen) {
			for (var c = t / 64u; c < {{$chunks}}u; c += {{.Groups}}u) {
{{- if .Narrow}}
				if (old) {
					room[c * 64u + lane] = score8(unit * 17u * width, lane, width, head, c * {{.Chunk}}u);
				} else {
					room[c * 64u + lane] = score(unit * 34u * width + lane * width + head, c * {{.Chunk}}u);
				}
{{- else}}
				room[c * 64u + lane] = score({{if .Chosen}}places[lane]{{else}}(slot + lane){{end}} * width + head, c * {{.Chunk}}u{{if .Turn}}, b * PAGE + lane == pos{{end}});
{{- end}}
			}
		}
{{- end}}
		workgroupBarrier();
		var s = NONE;
		if (seen) {
			s = room[lane];
			for (var c = 1u; c < {{$chunks}}u; c++) {
				s += room[c * 64u + lane];
			}
{{- if .Capped}}
			s = p.cap * tanh_f(s / p.cap);
{{- end}}
		}
		if (t < 64u) {
			weights[lane] = s;
		}
		workgroupBarrier();
		for (var g = t / 64u; g < 4u; g += {{.Groups}}u) {
			var most = weights[g * 16u];
{{- range $j := 15}}
			most = max(most, weights[g * 16u + {{add $j 1}}u]);
{{- end}}
			if (lane == 0u) {
				tops[g] = most;
			}
		}
		workgroupBarrier();
		let highest = max(max(tops[0], tops[1]), max(tops[2], tops[3]));
		if (t < 64u) {
			weights[lane] = select(0.0, exp_f(s - highest), seen);
		}
		workgroupBarrier();
		for (var g = t / 64u; g < 4u; g += {{.Groups}}u) {
			var some = weights[g * 16u];
{{- range $j := 15}}
			some += weights[g * 16u + {{add $j 1}}u];
{{- end}}
			if (lane == 0u) {
				totals[g] = some;
			}
{{- if $early}}
			let least = max(begin, g * 16u);
			let until = min(end - u32(b == pos / PAGE), g * 16u + 16u);
{{- $two := eq .ValueDim 128}}
			var sum0 = 0.0;
			var sum1 = 0.0;
{{- range $e := 16}}
			if (g * 16u + {{$e}}u >= least && g * 16u + {{$e}}u < until) {
{{- if $two}}
				let v = halves(v{{$e}});
				sum1 = fma(weights[g * 16u + {{$e}}u], v.y, sum1);
{{- else}}
				let v = halves(v{{$e}} >> (16u * (lane & 1u)));
{{- end}}
				sum0 = fma(weights[g * 16u + {{$e}}u], v.x, sum0);
			}
{{- end}}
			if (b == pos / PAGE && g == pos % PAGE / 16u) {
{{- if $two}}
				let v = halves(own_values[lane]);
				sum1 = fma(weights[pos % PAGE], v.y, sum1);
{{- else}}
				let v = halves(own_values[lane / 2u] >> (16u * (lane & 1u)));
{{- end}}
				sum0 = fma(weights[pos % PAGE], v.x, sum0);
			}
{{- if $two}}
			room[g * VALUE_DIM + 2u * lane] = sum0;
			room[g * VALUE_DIM + 2u * lane + 1u] = sum1;
{{- else}}
			room[g * VALUE_DIM + lane] = sum0;
{{- end}}
{{- if not .Part}}
			if (b < high / PAGE) {
				page = b + 1u;
{{- template "fetch" .}}
			}
{{- end}}
{{- else}}
{{- range $c := $cs}}
			var part{{$c}} = 0.0;
{{- end}}
			var j = max(begin, g * 16u);
			let until = min(end{{if .Turn}} - u32(b == pos / PAGE){{end}}, g * 16u + 16u);
			for (; j + 8u <= until; j += 8u) {
{{- if not (or .Narrow .Chosen)}}
				let at = (slot + j) * wide + part + lane;
{{- end}}
{{- range $c := $cs}}
				let in{{$c}} = {{if eq (mod $.ValueDim 64) 0}}true{{else}}{{mul 64 $c}}u + lane < VALUE_DIM{{end}};
{{- range $e := 8}}
				var v{{$c}}_{{$e}} = 0.0;
{{- end}}
				if (in{{$c}}) {
{{- range $e := 8}}
					v{{$c}}_{{$e}} = {{if $.Narrow}}seen_value(old, unit, j + {{$e}}u, wide, part + lane + {{mul 64 $c}}u){{else if $.Chosen}}val(places[j + {{$e}}u] * wide + part + lane + {{mul 64 $c}}u){{else}}val(at + {{mul 64 $c}}u + {{$e}}u * wide){{end}};
{{- end}}
				}
{{- end}}
{{- range $c := $cs}}
{{- range $e := 8}}
				part{{$c}} = fma(weights[j + {{$e}}u], v{{$c}}_{{$e}}, part{{$c}});
{{- end}}
{{- end}}
			}
			for (; j < until; j++) {
{{- if not (or .Narrow .Chosen)}}
				let at = (slot + j) * wide + part + lane;
{{- end}}
{{- range $c := $cs}}
				if ({{mul 64 $c}}u + lane < VALUE_DIM) {
					part{{$c}} = fma(weights[j], {{if $.Narrow}}seen_value(old, unit, j, wide, part + lane + {{mul 64 $c}}u){{else if $.Chosen}}val(places[j] * wide + part + lane + {{mul 64 $c}}u){{else}}val(at + {{mul 64 $c}}u){{end}}, part{{$c}});
				}
{{- end}}
			}
{{- if .Turn}}
			if (b == pos / PAGE && g == pos % PAGE / 16u) {
{{- range $c := $cs}}
				if ({{mul 64 $c}}u + lane < VALUE_DIM) {
					part{{$c}} = fma(weights[pos % PAGE], own_val({{mul 64 $c}}u + lane), part{{$c}});
				}
{{- end}}
			}
{{- end}}
{{- range $c := $cs}}
			if ({{mul 64 $c}}u + lane < VALUE_DIM) {
				room[g * VALUE_DIM + {{mul 64 $c}}u + lane] = part{{$c}};
			}
{{- end}}
{{- end}}
		}
		workgroupBarrier();
		let more = totals[0] + totals[1] + totals[2] + totals[3];
{{- if .Part}}
	let to = (wg.z * step.rows * p.heads + i) * (VALUE_DIM + 2u);
	for (var d = t; d < VALUE_DIM; d += {{mul 64 .Groups}}u) {
		out[to + d] = room[d] + room[VALUE_DIM + d] + room[2u * VALUE_DIM + d] + room[3u * VALUE_DIM + d];
	}
	if (t == 0u) {
		out[to + VALUE_DIM] = highest;
		out[to + VALUE_DIM + 1u] = more;
	}
}
{{- else}}
		let next = max(top, highest);
		let shrink = exp_f(top - next);
		let grow = exp_f(highest - next);
		top = next;
		sum = fma(more, grow, sum * shrink);
{{- range $c := (ceil .ValueDim (mul 64 .Groups))}}
		{
			let d = {{mul 64 $.Groups $c}}u + t;
			if (d < VALUE_DIM) {
				acc{{$c}} = fma(room[d] + room[VALUE_DIM + d] + room[2u * VALUE_DIM + d] + room[3u * VALUE_DIM + d], grow, acc{{$c}} * shrink);
			}
		}
{{- end}}
	}
{{- if .Sinks}}
	let sink = sinks[i % p.heads];
	let last = max(top, sink);
	let left = exp_f(top - last);
	let by = left / fma(sum, left, exp_f(sink - last));
{{- else}}
	let by = 1.0 / sum;
{{- end}}
{{- if .Narrow}}
	workgroupBarrier();
{{- range $c := (ceil .ValueDim (mul 64 .Groups))}}
	if ({{mul 64 $.Groups $c}}u + t < VALUE_DIM) {
		room[{{mul 64 $.Groups $c}}u + t] = acc{{$c}} * by;
	}
{{- end}}
	workgroupBarrier();
	for (var d = t; d < VALUE_DIM; d += {{mul 64 .Groups}}u) {
		out[i * VALUE_DIM + d] = spun(d, {{.ValueSpin}}u);
	}
}
{{- else}}
{{- range $c := (ceil .ValueDim (mul 64 .Groups))}}
	if ({{mul 64 $.Groups $c}}u + t < VALUE_DIM) {
		out[i * VALUE_DIM + {{mul 64 $.Groups $c}}u + t] = acc{{$c}} * by;
	}
{{- end}}
}
{{- end}}
{{- end}}

{{- define "scored"}}
{{- range $i := (div .Chunk 8)}}
{{- range $j := 4}}
	{
		let k = halves(k{{$i}}.{{slice "xyzw" $j (add $j 1)}});
		s = fma(query[d + {{add (mul 8 $i) (mul 2 $j) 1}}u], k.y, fma(query[d + {{add (mul 8 $i) (mul 2 $j)}}u], k.x, s));
	}
{{- end}}
{{- end}}
{{- end}}

{{- define "fetch"}}
	// What an invocation needs of a page's keys and values, before it is needed. The row's
	// own are written meanwhile: a neighbour is read in their place, and not used.
	slot = table[pages + page - from_page] * PAGE;
	{
		let mine = pos - page * PAGE;
		let mine_of_16 = mine - t / 64u * 16u;
		let from_key = ((slot + (lane ^ u32(lane == mine))) * width + head + min(t / 64u, {{add (div .Dim .Chunk) -1}}u) * {{.Chunk}}u) >> 3u;
		let from_value = (((slot + t / 64u * 16u) * wide + part) >> 1u) + lane{{if eq .ValueDim 64}} / 2u{{end}};
{{- range $i := (div .Chunk 8)}}
		k{{$i}} = keys[from_key + {{$i}}u];
{{- end}}
{{- range $e := 16}}
		v{{$e}} = values[from_value + ({{$e}}u ^ u32({{$e}}u == mine_of_16)) * (wide >> 1u)];
{{- end}}
	}
{{- end}}

{{- define "own"}}{{- $words := pick .F16 (div .Dim 2) .Dim}}
// What is stored of the row's key and value, word by word.
var<workgroup> own_keys: array<u32, {{$words}}>;
var<workgroup> own_values: array<u32, {{$words}}>;

// own_key is 16 bytes of the key.
fn own_key(i: u32) -> vec4u {
	return vec4u(own_keys[4u * i], own_keys[4u * i + 1u], own_keys[4u * i + 2u], own_keys[4u * i + 3u]);
}

fn key(row: u32, head: u32, i: u32) -> f32 {
	return turn(row, i, k[head + i], k[head + other(i)]);
}

// turned is word i of the key of the head whose first element is number head.
fn turned(row: u32, head: u32, i: u32) -> u32 {
	return {{if .F16}}to_half(key(row, head, 2u * i)) | (to_half(key(row, head, 2u * i + 1u)) << 16u){{else}}bitcast<u32>(key(row, head, i)){{end}};
}

// kept is word i of its value.
fn kept(head: u32, i: u32) -> u32 {
	return {{if .F16}}to_half(v[head + 2u * i]) | (to_half(v[head + 2u * i + 1u]) << 16u){{else}}bitcast<u32>(v[head + i]){{end}};
}
{{end}}
