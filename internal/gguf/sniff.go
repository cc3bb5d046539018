package gguf

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// signatures lists first bytes of formats that are often mistaken for GGUF.
var signatures = []struct{ prefix, what string }{
	{"PK\x03\x04", "a ZIP archive (a PyTorch .pt or .bin file is one, with pickled code in it, which is never run)"},
	{"\x80\x02", pickle}, {"\x80\x03", pickle}, {"\x80\x04", pickle}, {"\x80\x05", pickle},
	{"lmgg", oldGGML}, {"fmgg", oldGGML}, {"tjgg", oldGGML}, {"algg", oldGGML},
	{"<!DOCTYPE", html}, {"<!doctype", html}, {"<html", html}, {"<HTML", html},
	{"<?xml", "an XML file, perhaps a server's error message"},
	{"version https://git-lfs", "a Git LFS pointer: the file itself was not downloaded"},
	{"{", "a JSON file"},
	{"\x1f\x8b", "a gzip file"},
	{"\x28\xb5\x2f\xfd", "a Zstandard file"},
	{"\x93NUMPY", "a NumPy file"},
	{"\x89HDF\r\n", "an HDF5 file"},
	{"\x7fELF", "a program"}, {"MZ", "a program"},
	{"\x00\x00\x00\x00\x00\x00\x00\x00", "an empty download, which begins with zeros"},
}

const (
	pickle  = "a Python pickle (an old PyTorch file): it holds code, which is never run; use safetensors or GGUF"
	oldGGML = "a GGML file, older than GGUF"
	html    = "a web page, perhaps a server's error message"
)

// identify names the format of a file without the magic of GGUF.
func identify(head []byte) string {
	if len(head) > 8 && head[8] == '{' && binary.LittleEndian.Uint64(head) < 100<<20 {
		return "not a GGUF file, but a safetensors file"
	}
	text := bytes.TrimLeft(head, " \t\r\n\ufeff")
	for _, s := range signatures {
		if bytes.HasPrefix(head, []byte(s.prefix)) || bytes.HasPrefix(text, []byte(s.prefix)) {
			return "not a GGUF file, but " + s.what
		}
	}
	return fmt.Sprintf("not a GGUF file: it begins with %q", head[:min(4, len(head))])
}
