// Package js holds the scripts of the npm package karat that the page uses as well: the engine's worker, the kernels of
// its program, the store of downloads, the addresses of the hub, and the worker's client.
package js

import (
	"embed"
	"regexp"
)

// Files are the scripts shared with the page, ECMAScript modules.
//
//go:embed client.js hub.js kernels.js simd.js store.js worker.js
var Files embed.FS

// joints are what holds modules together: within one script all see each other.
var joints = regexp.MustCompile(`(?m)^(?:import [^\n]*\n|export (?:\{[^\n]*\n)?)`)

// Joined returns modules as one script.
func Joined(names ...string) (script []byte, err error) {
	for _, name := range names {
		text, err := Files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		script = append(script, joints.ReplaceAll(text, nil)...)
	}
	return script, nil
}
