// Addresses of models: a file, its page at Hugging Face, a repository there, and the parts of a split model.

export const trouble = (kind, message, more) => Object.assign(new Error(message), { kind, ...more });

// repoOf returns the ORG/REPO that a text names, undefined if the text names no repository.
export const repoOf = text => /^(?:hf:|https:\/\/huggingface\.co\/)?([\w.-]+\/[\w.-]+)\/?$/.exec(text.trim())?.[1];

// addressOf makes a file's address of the usual text: the address of a file or of its page at Hugging Face.
export function addressOf(text) {
	const u = new URL(text);
	if (u.hostname === 'huggingface.co') u.pathname = u.pathname.replace(/^(\/[^/]+\/[^/]+)\/blob\//, '$1/resolve/');
	return u.href;
}

// ggufFiles lists the GGUF files of ORG/REPO at Hugging Face: {name, size, url, sha256}.
export async function ggufFiles(repo) {
	const r = await fetch(`https://huggingface.co/api/models/${repo}/tree/main?recursive=true`).catch(e => { throw trouble('network', e.message); });
	if (!r.ok) throw trouble('network', `${repo}: ${r.status}`);
	return (await r.json()).filter(f => /\.gguf$/i.test(f.path))
		.map(f => ({ name: f.path, size: f.size, url: `https://huggingface.co/${repo}/resolve/main/${f.path}`, sha256: f.lfs?.oid || '' }));
}

// findRepos returns the repositories with GGUF files at Hugging Face that words find, the most downloaded first.
export async function findRepos(words) {
	const r = await fetch(`https://huggingface.co/api/models?filter=gguf&sort=downloads&direction=-1&limit=20&search=${encodeURIComponent(words)}`).catch(e => { throw trouble('network', e.message); });
	if (!r.ok) throw trouble('network', `${words}: ${r.status}`);
	return (await r.json()).map(x => ({ repo: x.id, downloads: x.downloads }));
}

// aboutRepo returns what Hugging Face has read in a repository's GGUF files, undefined where it tells nothing.
export const aboutRepo = repo => fetch(`https://huggingface.co/api/models/${repo}?expand[]=gguf`).then(async r => r.ok ? (await r.json()).gguf : undefined, () => undefined);

// partsOf returns the addresses of all parts of a split model, given the address of one; of another model its own.
export function partsOf(address) {
	const m = /^(.*-)\d{5}(-of-(\d{5})\.gguf(?:[?#].*)?)$/i.exec(address), n = Number(m?.[3]);
	return n > 0 && n < 1000 ? Array.from({ length: n }, (_, i) => m[1] + String(i + 1).padStart(5, '0') + m[2]) : [address];
}

// partOf names the model of which a file's name says that the file is a part; undefined for others.
export const partOf = name => /^(.*)-\d{5}(-of-\d{5}\.gguf)$/.exec(name || '')?.slice(1).join('');

// nameOf returns the name of a model's file, given its address.
export function nameOf(url) {
	let last = new URL(url).pathname.split('/').pop();
	try { last = decodeURIComponent(last); } catch { /* as it is: it was not encoded so */ }
	return /\.gguf$/i.test(last) ? last : (last || 'model') + '.gguf';
}

// chooseFile returns the file of a repository that a name or a quantization says, else the usual one: in Q4_K_M.
export function chooseFile(files, wanted) {
	const first = files.filter(f => partsOf(f.url)[0] === f.url), has = text => first.find(f => f.name.toLowerCase().includes(text.toLowerCase()));
	const f = wanted ? has(wanted) : has('Q4_K_M') ?? has('Q8_0') ?? first[0];
	if (!f) throw trouble('file', wanted ? `no GGUF file with ${wanted} in its name: ${first.map(x => x.name).join(', ')}` : 'the repository has no GGUF files');
	return f;
}
