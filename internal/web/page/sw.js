// The service worker: the site's files when there is no network. With a network they come from there, so that a new
// version is never mixed with an old one. Models are kept by the page itself.
const CACHE = 'karat';
const site = url => url.origin === location.origin && /\/(|karat\.js|karat\.wasm|manifest\.json|icon\.svg|demo\.golden\.\w+|lib\/\w+\.js)$/.test(url.pathname);

self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('activate', e => e.waitUntil(self.clients.claim()));
self.addEventListener('fetch', e => {
	const url = new URL(e.request.url);
	if (e.request.method !== 'GET' || !site(url)) return;
	url.search = '';
	e.respondWith(fetch(e.request).then(async r => {
		if (r.ok) {
			const copy = r.clone(), cache = await caches.open(CACHE).catch(() => null);
			e.waitUntil(cache?.put(url.href, copy).catch(() => {}) ?? Promise.resolve()); // no room: the page works online
		}
		return r;
	}, async why => await caches.match(url.href) || Promise.reject(why)));
});
