package gpu

import _ "embed" // of gpu.js

// Shim is the JavaScript that a program for js needs: a classic script, which is to
// run before the program, where navigator.gpu is.
//
//go:embed gpu.js
var Shim string
