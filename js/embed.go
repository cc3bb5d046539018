// Package js holds the scripts of the npm package karat that the page uses as well: the engine's worker, the store of
// downloads, the addresses of the hub, and the worker's client.
package js

import "embed"

// Files are the scripts shared with the page, ECMAScript modules.
//
//go:embed client.js hub.js store.js worker.js
var Files embed.FS
