//go:build !unix

package main

// suspend: programs cannot be stopped here.
var suspend func()
