//go:build !embedweb

package web

// embedded is a zero Program: this karat was built without -tags embedweb.
func embedded() (Program, error) { return Program{}, nil }
