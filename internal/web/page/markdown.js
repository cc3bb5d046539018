// Markdown: an answer's text as elements. The library reads the text into tokens (marked); elements are made here, one
// by one, so that nothing of an answer is ever parsed as HTML. Code and mathematics have libraries of their own, which
// come when an answer needs them.

// library brings a script of this site once.
const libraries = {};
function library(name) {
	return libraries[name] ||= new Promise((done, gone) => {
		const e = document.createElement('script');
		e.src = scripts.createScriptURL(`lib/${name}.js`);
		e.onload = done;
		e.onerror = () => { delete libraries[name]; gone(trouble('network', `lib/${name}.js`)); };
		document.head.append(e);
	});
}

// mathematics reads $x$, $$x$$, \(x\) and \[x\]. A dollar before a digit or a blank is money.
const mathematics = [
	{ name: 'math', level: 'block', start: s => s.match(/\$\$|\\\[/)?.index, tokenizer: s => mathToken(/^(?:\$\$([\s\S]+?)\$\$|\\\[([\s\S]+?)\\\])[ \t]*(?:\n|$)/.exec(s), true) },
	{ name: 'math', level: 'inline', start: s => s.match(/\$|\\\(/)?.index, tokenizer: s => mathToken(/^(?:\$\$([^$]+)\$\$|\$(?![\s\d])([^$\n]*[^\s$\\])\$(?!\d)|\\\(([\s\S]+?)\\\)|\\\[([\s\S]+?)\\\])/.exec(s), false) },
];
const mathToken = (m, display) => m ? { type: 'math', raw: m[0], text: m.slice(1).find(x => x !== undefined).trim(), display } : undefined;

let markdown; // the reader of Markdown
const bringMarkdown = () => library('marked').then(() => { markdown ||= new globalThis.marked.Marked({ gfm: true, breaks: true, extensions: mathematics }); });

// formatted fills an element with the elements of a text, and leaves the plain text where the library does not come.
async function formatted(e, text) {
	if (!markdown) {
		try {
			await bringMarkdown();
		} catch {
			return;
		}
	}
	e.replaceChildren(...blocks(markdown.lexer(text)));
	e.classList.add('formatted');
}

const blocks = tokens => tokens.flatMap(x => (make[x.type] || make.other)(x));
const inside = x => x.tokens ? blocks(x.tokens) : [x.text ?? x.raw];

// make has a maker for each type of token.
const make = {
	space: () => [],
	heading: x => h('h' + Math.min(x.depth + 2, 6), null, inside(x)), // below the page's own
	paragraph: x => h('p', null, inside(x)),
	blockquote: x => h('blockquote', null, inside(x)),
	hr: () => h('hr'),
	br: () => h('br'),
	strong: x => h('strong', null, inside(x)),
	em: x => h('em', null, inside(x)),
	del: x => h('del', null, inside(x)),
	codespan: x => h('code', null, x.text),
	escape: x => [x.text],
	text: x => x.tokens ? inside(x) : [x.text],
	html: x => [x.raw], // is text here
	other: x => [x.raw ?? ''],
	list: x => h(x.ordered ? 'ol' : 'ul', { start: x.ordered && x.start !== 1 ? x.start : undefined }, x.items.map(item => h('li', null, item.task ? h('input', { type: 'checkbox', checked: item.checked, disabled: true, tLabel: 'task' }) : null, inside(item)))),
	checkbox: () => [],
	code: x => codeBlock(x.text, (x.lang || '').split(/\s/)[0]),
	math: x => mathBlock(x.text, x.display),
	table: x => h('div', { class: 'scroll', tabindex: '0', role: 'region', tLabel: 'table' }, h('table', null, h('thead', null, h('tr', null, x.header.map((c, i) => h('th', { scope: 'col', class: x.align[i] === 'right' ? 'n' : undefined }, inside(c))))),
		h('tbody', null, x.rows.map(r => h('tr', null, r.map((c, i) => h('td', { class: x.align[i] === 'right' ? 'n' : undefined }, inside(c)))))))),
	link: x => /^(https?:|mailto:)/i.test(x.href) ? h('a', { href: x.href, rel: 'noopener noreferrer', target: '_blank', title: x.href }, inside(x)) : inside(x),
	image: x => [x.raw], // nothing is fetched for an answer
};

// codeBlock is code with its language and a button that copies it.
function codeBlock(text, lang) {
	const code = h('code', { dir: 'ltr' }, text);
	if (lang) library('highlight').then(() => highlight(code, text, lang), () => {});
	return h('figure', { class: 'code', dir: 'ltr' }, h('figcaption', null, h('span', null, lang || ''), copier(() => text)), h('pre', { tabindex: '0' }, code));
}

function highlight(code, text, lang) {
	const { hljs } = globalThis;
	if (!hljs.getLanguage(lang)) return;
	const spans = node => typeof node === 'string' ? [node] : node.scope ? [h('span', { class: 'hl-' + node.scope.split('.')[0] }, node.children.flatMap(spans))] : node.children.flatMap(spans);
	code.replaceChildren(...spans(hljs.highlight(text, { language: lang, ignoreIllegals: true })._emitter.rootNode));
}

// mathBlock is mathematics as MathML; the text itself where it is not TeX.
function mathBlock(text, display) {
	const e = h(display ? 'div' : 'span', { class: 'math', dir: 'ltr' }, text);
	library('katex').then(() => {
		const made = h('span');
		globalThis.katex.render(text, made, { output: 'mathml', displayMode: display, throwOnError: true, trust: false, maxExpand: 200, maxSize: 20 });
		e.replaceChildren(made);
	}).catch(() => {});
	return e;
}

// copier is a button that copies a text.
function copier(text, key = 'copy') {
	const b = h('button', { type: 'button', class: 'small', t: key, onclick: async () => {
		try {
			await navigator.clipboard.writeText(text());
			say(b, 'copied');
			setTimeout(() => say(b, key), 2000);
		} catch {
			say(b, 'copyRefused');
		}
	} });
	return b;
}
